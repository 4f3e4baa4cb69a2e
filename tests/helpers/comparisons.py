"""Comparisons of made-up runs, and what is changed in these runs before."""

import json
from pathlib import Path
from typing import Any

from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_runs
from rlcb.analysis.records import Advice, Comparison

PARALLEL: dict[str, Any] = {"mode": "parallel", "workers": 2, "threads": 4}


def compared(*paths: Path) -> Comparison:
    """The comparison of the runs in these folders."""
    return compare(load_runs(paths, lambda _: None))


def advice_on(*paths: Path) -> Advice:
    """The advice of that comparison."""
    found = compared(*paths).advice
    assert found is not None
    return found


def put(path: Path, **values: Any) -> None:
    """Put values into a run's benchmark_metrics.json."""
    content = json.loads((path / "benchmark_metrics.json").read_text())
    (path / "benchmark_metrics.json").write_text(json.dumps({**content, **values}))


def disturb(path: Path) -> None:
    """Have a run say that other programs disturbed it."""
    put(path, disturbance={"disturbed": True, "lost_percent": 30.0})
