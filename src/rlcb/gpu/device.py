"""Settings of PyTorch for a process that computes on a GPU."""

import os

import torch


def prepare_gpu(deterministic: bool) -> None:
    """Let libraries choose the fastest kernels, or only such as give the same bits every time."""
    torch.backends.cudnn.benchmark = not deterministic
    if deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what cuBLAS needs for that; read when it is first used
        torch.backends.cudnn.deterministic = True
        torch.use_deterministic_algorithms(True)
        # Nothing here reads memory before writing it.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
