"""Calls inside the caller's process: changed state is restored; a signal ends the call, not the process."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from rlcb.analysis.run import Run
from rlcb.console import quieted
from rlcb.envs.own_code import FOLDER, permitted_meanwhile
from rlcb.hardware import THREAD_VARIABLES
from rlcb.signals import CallerStop, handlers_restored

_VARIABLES = (*THREAD_VARIABLES, "OMP_WAIT_POLICY", "CUBLAS_WORKSPACE_CONFIG", FOLDER)  # that a run sets for itself


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came, and what was in progress is saved; `run` is the training that it was, None otherwise."""

    def __init__(self, text: str, run: Run | None = None):
        super().__init__(text)
        self.run = run


def pass_on(stop: CallerStop, text: str, run: Run | None = None) -> None:
    """Let a signal that ended a call early do what it would have done: of Ctrl-C that is Interrupted with this text."""
    if not stop.passed_on():
        raise Interrupted(text, run)


@contextlib.contextmanager
def borrowed_process(quiet: bool) -> Iterator[None]:
    """Signal handlers, variables, torch's settings and permissions to import are afterwards as they were before."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    torch = sys.modules.get("torch")
    settings = _settings(torch) if torch else None
    try:
        with handlers_restored(), quieted(quiet), permitted_meanwhile():
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if settings:
            _restore(torch, settings)


def _settings(torch: Any) -> dict[str, Any]:
    """Those settings of torch that a run changes."""
    return {
        "threads": torch.get_num_threads(),
        "random": torch.get_rng_state(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cudnn": (torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic),
    }


def _restore(torch: Any, settings: dict[str, Any]) -> None:
    torch.set_num_threads(settings["threads"])
    torch.set_rng_state(settings["random"])
    torch.use_deterministic_algorithms(settings["deterministic"])
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic = settings["cudnn"]
