"""What a process that computes on a GPU sets up: PyTorch's settings, and how the network is computed."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import nn

from rlcb.config.schema import HardwareConfig
from rlcb.networks.computation import Computation
from rlcb.networks.impala import ImpalaCNN


def prepare_gpu(deterministic: bool) -> None:
    """Let libraries choose the fastest kernels, or only such as give the same bits every time."""
    torch.backends.cudnn.benchmark = not deterministic
    if deterministic:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # what cuBLAS needs for that; read when it is first used
        torch.backends.cudnn.deterministic = True
        torch.use_deterministic_algorithms(True)
        # Nothing here reads memory before writing it.
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        from torch._inductor import config as inductor

        if hasattr(inductor, "deterministic"):
            inductor.deterministic = True  # torch.compile chooses no kernel by timing it


@contextmanager
def distinct_writes() -> Iterator[None]:
    """For writes by index to places that all differ: they repeat exactly as they are.

    In deterministic mode torch sorts every index first, in case some are equal.
    """
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    yield
    torch.use_deterministic_algorithms(before)


def gpu_computation(policy: nn.Module, hardware: HardwareConfig) -> Computation:
    """How a policy is computed: compiled if that is wanted, the residual CNN in bf16 by kernels written for it."""
    computation = Computation(policy, hardware.precision, compiled=hardware.compile is True)
    network = computation.network
    if hardware.compile is True and hardware.precision == "bf16" and isinstance(network, ImpalaCNN):
        from rlcb.gpu.kernels.impala_network import fast_forward  # imports Triton

        computation.compute = partial(fast_forward, network)
    return computation
