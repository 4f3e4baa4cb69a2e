"""Failures of a GPU as one line: memory that does not suffice, a device that reports an error or is lost."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rlcb.config.schema import fields
from rlcb.errors import GpuFailed, ResourceError

# What CUDA's libraries write into the RuntimeErrors that torch raises for them; torch.AcceleratorError is one, too.
_FAILURE = re.compile(r"CUDA (driver )?error|CUDA out of memory|\bcuDNN error|\b(CUDNN|CUBLAS|CUSOLVER)_STATUS_[A-Z]")
_NO_MEMORY = re.compile(r"out of memory|_STATUS_ALLOC_FAILED")
_ASKED = re.compile(r"[Tt]ried to allocate ([\d.]+ \w+)")


def is_gpu_failure(error: BaseException) -> bool:
    """Whether the GPU failed, or its memory did not suffice, and not the program or its input."""
    return isinstance(error, RuntimeError) and _FAILURE.search(str(error)) is not None


def less_memory(algorithm: str) -> str:
    """The flags that make a training of this algorithm take less of a GPU's memory."""
    known = {key for _, key, _ in fields(algorithm)}
    flags = [f"--{key.replace('_', '-')}" for key in ("batch_size", "micro_batch_size") if key in known]
    return f"fewer --num-envs, a smaller {' or '.join(flags)}"


@contextmanager
def gpu_failures(smaller: str, afterwards: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Turn failures of the GPU into ResourceErrors.

    `smaller`: what makes the work need less memory; `afterwards`: how the work can be continued, asked when it failed.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_gpu_failure(error):
            raise
        full = _NO_MEMORY.search(str(error)) is not None
        words = _memory_words(str(error), smaller) if full else _error_words(str(error))
        kind = ResourceError if full else GpuFailed
        raise kind("; ".join(part for part in (words, afterwards()) if part)) from None


def _error_words(text: str) -> str:
    """The error's line; nothing can be read from the device any more."""
    line = next(line for line in text.splitlines() if _FAILURE.search(line))
    return f"the GPU failed: {line.strip()}"


def _memory_words(text: str, smaller: str) -> str:
    """What did not fit, who holds the memory, and what helps."""
    asked = _ASKED.search(text)
    what = f"{asked[1]} more did not fit" if asked else "a request for memory was refused"
    return f"out of memory on the GPU: {what}{_holders()}; use {smaller}, or end other programs on the GPU"


def _holders() -> str:
    """The GPU's memory and who holds it; empty where the GPU does not answer."""
    import torch

    try:
        free, total = torch.cuda.mem_get_info()
        own, name = torch.cuda.memory_reserved(), torch.cuda.get_device_name()
    except (RuntimeError, AssertionError):  # the latter from a torch without CUDA
        return ""
    others = max(total - free - own, 0)
    sizes = [f"{size / 2**30:.1f} GB" for size in (total, free, own, others)]
    return f"; {name} has {sizes[0]}: {sizes[1]} free, {sizes[2]} held by this process, {sizes[3]} by others and CUDA"
