"""rl-cluster-benchmark: train, time and compare reinforcement-learning algorithms on Procgen."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlcb.analysis.evaluations import Evaluation
    from rlcb.analysis.frames import Runs
    from rlcb.analysis.records import Comparison
    from rlcb.analysis.run import Run
    from rlcb.api.functions import Benchmark, benchmark, compare, evaluate, load_runs, train
    from rlcb.api.process import Interrupted
    from rlcb.errors import (
        CheckpointUnusable,
        Diverged,
        GpuFailed,
        OwnCodeFailed,
        ResourceError,
        RlcbError,
        RlcbWarning,
        UsageError,
        WorkersLost,
    )
    from rlcb.evaluation.results import EpisodeResults, Evaluated
    from rlcb.report.compare import Compared

__version__ = "0.1.0"
__all__ = [
    "Benchmark",
    "CheckpointUnusable",
    "Compared",
    "Comparison",
    "Diverged",
    "EpisodeResults",
    "Evaluated",
    "Evaluation",
    "GpuFailed",
    "Interrupted",
    "OwnCodeFailed",
    "ResourceError",
    "RlcbError",
    "RlcbWarning",
    "Run",
    "Runs",
    "UsageError",
    "WorkersLost",
    "__version__",
    "benchmark",
    "compare",
    "evaluate",
    "load_runs",
    "train",
]
# Where each name is defined; it is imported when it is first used, so that `import rlcb` loads nothing else.
_HOMES = {
    "rlcb.analysis.evaluations": ("Evaluation",),
    "rlcb.analysis.frames": ("Runs",),
    "rlcb.analysis.records": ("Comparison",),
    "rlcb.analysis.run": ("Run",),
    "rlcb.api.functions": ("Benchmark", "benchmark", "compare", "evaluate", "load_runs", "train"),
    "rlcb.api.process": ("Interrupted",),
    "rlcb.evaluation.results": ("EpisodeResults", "Evaluated"),
    "rlcb.report.compare": ("Compared",),
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'rlcb' has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "rlcb.errors")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
