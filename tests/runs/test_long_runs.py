"""A run needs as much memory after many updates as after few, and its checkpoints take no more of it."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from helpers.in_process import rlcb_here
from helpers.run_directories import assert_whole_history
from rlcb.config.load import build_config
from rlcb.config.plan import make_plan
from rlcb.envs.episodes import Episode
from rlcb.run.directory import create_run
from rlcb.run.history import HistoryTotals, as_line, write_columns
from rlcb.run.recorder import Recorder
from rlcb.run.state import Progress, SharedState, UpdateReport

# The most bytes per update, of which one that is kept takes about 3,000. What the interpreter keeps for reuse grows in
# the first hundreds of updates.
MOST_AT_FIRST, MOST_LATER = 1000, 100


def live_bytes() -> int:
    """What the objects that were made since tracing began take now."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@pytest.fixture
def traced() -> Iterator[None]:
    """Traces allocations from the test's first use of them on."""
    yield
    tracemalloc.stop()


def report(update: int, shared: bool) -> UpdateReport:
    """A worker's report of an update with an episode, with values of its own; some with a checkpoint."""
    progress = Progress(env_steps=32 * update, updates=update)
    weights = {"weight": np.full(3, update, np.float32)}
    return UpdateReport(
        rank=0,
        progress=progress,
        now=update / 8,
        shared=SharedState(weights, weights, (1.0, 2.0, 3.0), progress) if shared else None,
        elapsed=0.125,
        seconds=dict.fromkeys(("env", "acting", "learning"), update / 9000000.0),
        metrics={f"loss/{number}": update / (number + 3) for number in range(12)},
        episodes=[Episode(0, update % 8, update / 7, 1000 + update)],
    )


def test_the_recorder_keeps_nothing_of_an_update(tmp_path: Path, traced: None) -> None:
    path = tmp_path / "run"
    config, plan = make_plan(build_config(None, {}, mode="sequential", algorithm="a2c"), "sequential")
    run = create_run(path, config, "sequential")
    found = {}
    with Recorder(run, config, plan) as recorder:
        recorder.console.line = lambda text: None  # type: ignore[method-assign]
        recorder.record([UpdateReport(0, Progress(), 0.0)])
        for update in range(1, 2001):
            if update == 100:
                tracemalloc.start()
            recorder.record([report(update, shared=update % 200 == 0)])
            if update in (200, 2000):
                found[update] = live_bytes()
                assert not (path / "metrics.json").exists()
        recorder.finish("interrupted")
    run.release()
    assert found[2000] - found[200] < MOST_LATER * 1800, found
    assert len(assert_whole_history(path, updates=2000)) == 2000


DIVISIONS = {
    "sequential": ("a2c", "--mode", "sequential", "--num-envs", "8"),
    "data-parallel": ("a2c", "--mode", "parallel", "--num-workers", "2", "--num-envs", "4"),
    "actors and learners": ("impala", "--mode", "parallel", "--num-actors", "2", "--num-envs-per-actor", "4"),
    "asynchronous gradients": ("a3c", "--mode", "parallel", "--num-workers", "2", "--num-envs", "4"),
}
EVERY = 4096 // 128  # updates after which a data-parallel supervisor has recorded all that it knows of


@pytest.mark.parametrize("division", DIVISIONS)
def test_the_process_that_records_a_run_does_not_grow(
    division: str, tmp_path: Path, traced: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[int, int] = {}
    record: Callable[[Recorder, list[UpdateReport]], None] = Recorder.record

    def record_and_measure(recorder: Recorder, reports: list[UpdateReport]) -> None:
        record(recorder, reports)
        update = reports[0].progress.updates
        if update == EVERY:
            tracemalloc.start()
        elif update in (2 * EVERY, 6 * EVERY):
            found[update] = live_bytes()

    monkeypatch.setattr(Recorder, "record", record_and_measure)
    flags = ("--env", "CartPole-v1", "--n-steps", "16", "--num-threads", "1", "--log-interval", "1000")
    steps = ("--save-interval", "100", "--total-timesteps", str(128 * 7 * EVERY), "--output-dir", tmp_path / "run")
    done = rlcb_here("train", *DIVISIONS[division], *flags, *steps)
    assert done.returncode == 0, done.stderr
    assert found[6 * EVERY] - found[2 * EVERY] < MOST_AT_FIRST * 4 * EVERY, found
    assert_whole_history(tmp_path / "run", updates=7 * EVERY)


def test_metrics_json_is_made_without_the_history_in_memory(tmp_path: Path, traced: None) -> None:
    log, peaks = tmp_path / "metrics.jsonl", []
    for updates in (3000, 9000):
        with log.open("wb") as file:
            for n in range(1, updates + 1):
                needed = {"update": n, "step": 40 * n, "time": n / 8, "time/fps": n / 3}
                file.write(as_line({**needed, **{f"loss/{number}": n / (number + 3) for number in range(12)}}))
        tracemalloc.start()
        write_columns(log, tmp_path / "metrics.json")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0], peaks


def test_totals_are_those_of_the_whole_history() -> None:
    """The same as from all lines at once, also where the run went over to a mode with other activities."""
    rng = np.random.default_rng(1)
    names = ("env", "acting", "learning", "allreduce", "waiting", "other")
    lines, totals = [], HistoryTotals()
    for n in range(1, 3001):
        there = [name for name in names if n > 1000 or name not in ("allreduce", "waiting")]
        spent = {f"time/{name}_seconds": round(float(rng.uniform()), 4) for name in there}
        lines.append({"update": n, "step": 40 * n, "time": round(n / 8 + rng.uniform(), 4), "time/fps": 1.0, **spent})
        totals.add(lines[-1])
    sums = {name: float(np.sum([line.get(f"time/{name}_seconds", 0.0) for line in lines])) for name in names}
    assert totals.time_shares() == {name: round(value / sum(sums.values()), 4) for name, value in sums.items()}
    first, last = lines[-11], lines[-1]
    assert totals.final_fps() == (last["step"] - first["step"]) / (last["time"] - first["time"])
