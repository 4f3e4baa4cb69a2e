"""A short chaos run of `perf/chaos.py`, and what it takes for a fault in a run's history."""

import json
import sys
from pathlib import Path

import pytest

from helpers.processes import CARTPOLE, ROOT, run

PARALLEL = ("--mode", "parallel", "--num-workers", "2")


def test_a_short_chaos_run(tmp_path: Path) -> None:
    result = tmp_path / "chaos.json"
    short = ("--minutes", "0.3", "--seed", "6", "--json", str(result))
    done = run([sys.executable, str(ROOT / "perf/chaos.py"), *short, "--", "ppo", *CARTPOLE, *PARALLEL], timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(result.read_text())
    assert not any(found["totals"].values())
    assert sum(kind["injected"] for kind in found["faults"].values()) > 0
    assert all(kind["survived"] == kind["injected"] for kind in found["faults"].values())


def test_a_run_that_does_not_start_is_named() -> None:
    done = run(
        [sys.executable, str(ROOT / "perf/chaos.py"), "--", "ppo", "--mode", "sequential", "--env", "Nothing-v9"]
    )
    assert done.returncode == 1
    assert "Nothing-v9" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("steps", "kinds"),
    [
        ([(1, 8), (2, 16), (3, 24)], []),
        ([(1, 8), (2, 16), (2, 16), (3, 24)], ["double counts"]),
        ([(1, 8), (2, 16), (4, 32)], ["holes"]),
        ([(1, 8), (2, 24)], ["holes"]),
        ([(1, 8), (2, 12), (3, 20)], ["holes"]),
        ([(1, 8), (2, 14), (3, 22)], []),  # the run was resumed at step 14
    ],
)
def test_faults_of_a_history(
    steps: list[tuple[int, int]], kinds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "perf")
    from chaos_history import History

    log = tmp_path / "logs" / "PPO_Parallel" / "metrics.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f'{{"update": {update}, "step": {step}}}\n' for update, step in steps) + '{"update": 9')
    history = History(tmp_path)
    history.read()
    assert history.lines == steps
    assert [kind for kind, _ in history.faults(8, {14})] == kinds
