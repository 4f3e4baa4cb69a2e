"""What a run is doing, from its files alone: nothing is written or locked, and of its logs only the ends are read."""

import os
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from rlcb.analysis.alive import Owner, owner_of
from rlcb.analysis.load import config_of, identity_of, places_of, variant_of
from rlcb.analysis.run import FINAL_UPDATES
from rlcb.analysis.untrusted import (
    env_names,
    failure_reason,
    number,
    plain,
    read_object,
    read_tail,
    section,
    whole_number,
)
from rlcb.errors import UsageError
from rlcb.words import counted, short_time

STATES = ("running", "failed", "dead", "unknown", "interrupted", "waiting", "finished")  # by how much they matter
_LOG_BYTES = 64 * 2**10  # read from the end of a log or of the events
_LARGEST_SUMMARY = 4 * 2**20
_MOST_FILES = 10_000  # looked at in a folder of checkpoints
_QUIET_SECONDS = 60.0  # without an update that are worth a word; more where updates take long
_SILENT_SECONDS = 300.0  # without news after which a run of another machine is not taken for running
_QUIET_UPDATES = 10  # updates whose time may pass without one


@dataclass(frozen=True)
class RunStatus:
    """A run and what it is doing; None where something is not known."""

    run: str  # its directory, relative to the folder that was named
    algorithm: str = ""
    mode: str = ""
    variant: str = ""  # empty where it has none
    game: str = ""
    seed: int | None = None
    state: str = "unknown"  # one of STATES
    fraction: float | None = None  # of its steps or its time
    eta_seconds: float | None = None
    fps: float | None = None  # over the last updates
    reward: float | None = None  # mean of the last 100 episodes
    step: int | None = None
    seconds: float | None = None  # of training
    checkpoint_age_seconds: float | None = None
    news_age_seconds: float | None = None  # since any of its files changed
    detail: str = ""  # what it waits for, or why it failed
    where: str = ""  # the node of a cluster that a suite runs it on, while it does
    replaced_by: str = ""  # if it was moved aside: the run that it made room for


def run_status(path: Path, now: float) -> RunStatus:
    """What the run in a directory is doing, whatever its files are like."""
    benchmark, problem = _summary(path / "benchmark_metrics.json")
    summary, other_problem = _summary(path / "training_summary.json")
    status, problem, owner = RunStatus(path.name), problem or other_problem, owner_of(path)
    events = read_tail(path / "events.jsonl", _LOG_BYTES)
    said = plain(benchmark.get("status", summary.get("status", "finished" if benchmark else "")))
    finished = said == "finished" and not _resumed_since(benchmark, events)
    try:
        algorithm, mode = identity_of(path, benchmark, summary)
        status = replace(status, algorithm=algorithm, mode=mode)
        # The summary's configuration is quicker to read, but a run that was resumed since may have got another.
        config = config_of(path, benchmark if finished else {})
    except UsageError as error:  # also for an instant when a run begins
        state = "running" if owner and owner.alive else "unknown"
        return replace(status, state=state, detail=plain(str(error).removeprefix(f"{path}: ")))
    env = section(config, "env")
    name, game = env_names(env["name"])
    checkpoints, log = places_of(path, config, algorithm, mode)
    rows = read_tail(log, _LOG_BYTES)
    saved = _newest(checkpoints, f"{algorithm}_")
    changed = [saved, _changed(log), _changed(path / "events.jsonl"), _changed(path / "benchmark_metrics.json")]
    news = max((time for time in changed if time is not None), default=_changed(path / "run.json"))
    status = replace(
        status,
        variant=variant_of(config),
        game=game or name,
        seed=whole_number(env.get("seed")),
        checkpoint_age_seconds=None if saved is None else max(now - saved, 0.0),
        news_age_seconds=None if news is None else max(now - news, 0.0),
        **_progress(rows, section(config, "training")),
    )
    steps = number(benchmark.get("total_timesteps", summary.get("total_timesteps")))
    if finished and (status.step is None or steps is None or status.step <= steps):
        return replace(status, state="finished", fraction=1.0, eta_seconds=None)
    patience, news = _QUIET_UPDATES * _seconds_of_update(rows), status.news_age_seconds
    if owner and owner.alive:
        updated = _changed(log) if rows else None
        quiet = None if updated is None else max(now - updated, 0.0)
        return replace(status, state="running", detail=_doing(events, quiet, max(_QUIET_SECONDS, patience)))
    if owner and owner.alive is None and news is not None and news <= max(_SILENT_SECONDS, patience):
        return replace(status, state="running", detail=f"{owner}, last update {short_time(news)} ago")
    return _state(status, owner, said, problem, events)


def _summary(path: Path) -> tuple[dict[str, Any], str]:
    """A JSON object, or an empty one and what is wrong; that it is not there is not wrong."""
    try:
        return read_object(path, _LARGEST_SUMMARY), ""
    except UsageError as error:
        return {}, str(error) if os.path.lexists(path) else ""


def _changed(path: Path) -> float | None:
    """When a file was changed, in seconds since the epoch."""
    try:
        return os.stat(path).st_mtime
    except OSError:
        return None


def _newest(folder: Path, prefix: str) -> float | None:
    """When the newest checkpoint in a folder was written."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, _MOST_FILES)]
    except OSError:
        return None
    times = [_changed(folder / name) for name in names if name.startswith(prefix) and name.endswith(".pt")]
    return max((time for time in times if time is not None), default=None)


def _progress(rows: list[dict[str, Any]], training: dict[str, Any]) -> dict[str, Any]:
    """How far a run is, as fields of a RunStatus, from the last updates of its log and from its budget."""
    known = [(number(row.get("step")), number(row.get("time"))) for row in rows[-FINAL_UPDATES - 1 :]]
    points = [(step, time) for step, time in known if step is not None and time is not None]
    hours, steps = number(training.get("duration_hours")), number(training.get("total_timesteps"))
    if not points:
        return {"fraction": 0.0 if hours or steps else None}
    (first, begun), (step, time) = points[0], points[-1]
    fps = (step - first) / (time - begun) if time > begun else number(rows[-1].get("time/fps"))
    fps = fps if fps is not None and fps > 0 else None
    fraction = left = None
    if hours and hours > 0:
        fraction, left = time / (3600 * hours), 3600 * hours - time
    elif steps and steps > 0:
        fraction, left = step / steps, (steps - step) / fps if fps else None
    return {
        "fraction": None if fraction is None else min(max(fraction, 0.0), 1.0),
        "eta_seconds": None if left is None else number(max(left, 0.0)),
        "fps": number(fps),
        "reward": next(
            (reward for row in rows[::-1] if (reward := number(row.get("rollout/ep_reward_mean"))) is not None), None
        ),
        "step": int(step),
        "seconds": time,
    }


def _seconds_of_update(rows: list[dict[str, Any]]) -> float:
    """What an update took lately."""
    times = [time for row in rows[-FINAL_UPDATES - 1 :] if (time := number(row.get("time"))) is not None]
    return max((times[-1] - times[0]) / (len(times) - 1), 0.0) if len(times) > 1 else 0.0


def _resumed_since(benchmark: dict[str, Any], events: list[dict[str, Any]]) -> bool:
    """Whether a run was resumed after its summary was written."""
    ended = _time(benchmark.get("end_time"))
    resumed = [_time(event.get("time")) for event in events if event.get("event") == "resumed"]
    return ended is not None and any(time is not None and time > ended for time in resumed)


def _time(text: Any) -> float | None:
    try:
        return datetime.fromisoformat(plain(text)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _state(status: RunStatus, owner: Owner | None, said: str, problem: str, events: list[dict[str, Any]]) -> RunStatus:
    """The status of a run that is not finished and not known to be alive, with its state and the reason."""
    turns = [event for event in events if event.get("event") in ("failed", "interrupted", "resumed")]
    last = turns[-1] if turns else {}
    ending = last.get("event") or said
    where = f"at step {status.step:,}" if status.step is not None else "before its first update"
    if ending == "failed":
        state, detail = "failed", failure_reason(last)
    elif ending == "diverged":
        state, detail = "failed", f"diverged {where}"
    elif ending == "interrupted":
        state, detail = "interrupted", where
    elif owner and owner.alive is None:
        state, detail = "unknown", f"{owner}: no update for {short_time(status.news_age_seconds or 0.0)}"
    elif problem:
        state, detail = "unknown", problem
    else:
        state, detail = "dead", f"{owner} ended {where}" if owner else f"ended {where} without recording a reason"
    return replace(status, state=state, detail=detail, eta_seconds=None)


def _doing(events: list[dict[str, Any]], quiet: float | None, patience: float) -> str:
    """What a living run waits for, or continues without."""
    if quiet is None:
        return "starting, no update yet"
    since = max((index for index, event in enumerate(events) if event.get("event") == "resumed"), default=-1) + 1
    sizes = [event for event in events[since:] if event.get("event") == "regrouped"]
    fewer = [f"with {counted(whole_number(sizes[-1].get('workers')) or 0, 'worker')}"] if sizes else []
    losses = [event for event in events[since:] if event.get("event") == "worker_lost"]
    lost = plain(losses[-1].get("worker")) if losses else ""
    waits = f", {lost} was lost" if lost and events[-1] is losses[-1] else ""
    return "; ".join([*([f"no update for {short_time(quiet)}{waits}"] if quiet > patience else []), *fewer])
