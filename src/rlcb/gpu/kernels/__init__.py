"""Triton kernels for the residual CNN, whose few channels NVIDIA's libraries compute far below the memory's speed."""
