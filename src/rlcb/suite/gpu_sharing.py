"""Several runs on one GPU at a time, by NVIDIA's Multi-Process Service.

Without it a GPU serves processes in slices of time, one after the other: a step that takes a fraction of a millisecond
waits for the slices of all others. With it their kernels run beside each other.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlcb.console import note

_PIPE, _LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
_PATIENCE = 30.0  # seconds that the service may take to start or end


def service() -> str | None:
    """The program that controls the service; None where it is not installed."""
    return shutil.which("nvidia-cuda-mps-control")


@contextmanager
def shared_gpu(wanted: bool) -> Iterator[None]:
    """Start the service for what is done here, unless the user has started one; `wanted`: whether it is needed."""
    program = service()
    if not wanted or _PIPE in os.environ:
        yield
        return
    if program is None:
        note("several runs share the GPU by time slicing, because NVIDIA MPS is not installed; --jobs 1 may be faster")
        yield
        return
    with tempfile.TemporaryDirectory(prefix="rlcb-mps-", ignore_cleanup_errors=True) as folder:
        places = {_PIPE: str(Path(folder) / "pipe"), _LOG: str(Path(folder) / "log")}
        for place in places.values():
            Path(place).mkdir()
        if (problem := _command(program, ["-d"], "", places)) is not None:
            note(f"several runs share the GPU by time slicing, because NVIDIA MPS did not start: {problem}")
            yield
            return
        os.environ.update(places)
        try:
            yield
        finally:
            for name in places:
                del os.environ[name]
            if (problem := _command(program, [], "quit\n", places)) is not None:
                note(f"NVIDIA MPS could not be stopped: {problem}")


def _command(program: str, arguments: list[str], text: str, places: dict[str, str]) -> str | None:
    """Give the service a command; returns what went wrong, if anything did."""
    environment = {**os.environ, **places}
    try:
        # Into files: the service keeps what it inherits open, and a pipe would never end.
        with tempfile.TemporaryFile() as output:
            done = subprocess.run(
                [program, *arguments], input=text.encode(), stdout=output, stderr=output, env=environment,
                timeout=_PATIENCE, check=False,
            )  # fmt: skip
            output.seek(0)
            said = output.read().decode(errors="replace").strip().splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return None if done.returncode == 0 else (said or [f"exit code {done.returncode}"])[-1]
