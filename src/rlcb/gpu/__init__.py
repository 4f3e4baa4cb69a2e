"""Acting and learning on one NVIDIA GPU: the same mathematics as on CPUs, arranged so that nothing waits needlessly."""
