"""The training loop: every worker of every execution runs this one."""

import io
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from rlcb.config.schema import Config
from rlcb.envs.episodes import Episode
from rlcb.errors import Diverged
from rlcb.execution.state import Progress, Worker
from rlcb.files import write_whole
from rlcb.learner import Update

_STEPS_TO_REPEAT = 4096  # environment steps that a lost worker may cost: keeping the state takes time too
MAX_BAD_UPDATES = 3  # updates in a row with steps left out as not finite; one more ends the run


@dataclass(frozen=True)
class Report:
    """What a worker tells about an update; the first of a stretch tells where it starts and has no metrics."""

    rank: int
    progress: dict[str, int]
    now: float  # training time in seconds at the end of the update
    part: dict[str, Any] | None
    common: dict[str, Any] | None  # from rank 0, when a checkpoint is due
    ending: str | None  # after the last update: "finished" or "interrupted"
    fraction: float  # how much of the run is done
    elapsed: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float | None] | None = None
    skipped_steps: int = 0
    episodes: list[Episode] = field(default_factory=list)


class Pace:
    """The run's clock and what depends on it: when to save, when to stop, how far along it is. Rank 0's counts."""

    def __init__(self, config: Config, zero: float):
        """`zero`: the reading of the system's monotonic clock at which the training time was 0."""
        self._training, self._logging, self._zero = config.training, config.logging, zero
        self._saved = time.perf_counter()

    def now(self) -> float:
        """Training time in seconds, earlier stretches included."""
        return time.perf_counter() - self._zero

    def fraction(self, env_steps: int) -> float:
        """How much of the run is done, from 0 to 1."""
        hours = self._training.duration_hours
        return min(self.now() / (3600 * hours) if hours else env_steps / self._training.total_timesteps, 1.0)

    def reached(self, worker: Worker, last_update: float) -> bool:
        """Whether to stop: a timed run ends at the end of the update that is nearest to its time."""
        training, progress = self._training, worker.progress
        if training.duration_hours:
            return progress.updates > 0 and self.now() + last_update / 2 >= 3600 * training.duration_hours
        return progress.env_steps >= training.total_timesteps

    def save_due(self, updates: int) -> bool:
        """Whether a checkpoint is due, by updates or by time; asking starts the time anew."""
        minutes = self._logging.save_every_minutes
        waited = time.perf_counter() - self._saved
        due = updates % self._logging.save_interval == 0 or (minutes is not None and waited >= 60 * minutes)
        if due:
            self._saved = time.perf_counter()
        return due


def run_updates(worker: Worker, pace: Pace, emit: Callable[[Report], None], keep_parts: bool, dumps: Path) -> None:
    """Collect, learn, report, until the group agrees that it is time to stop.

    `keep_parts`: report the worker's own part every so often, so that somebody else could continue from it.
    """
    group, progress = worker.group, worker.progress
    ending, fraction, _ = _agree(worker, pace, 0.0)
    common = worker.common() if group.rank == 0 and (ending or not progress.updates) else None
    every = max(_STEPS_TO_REPEAT // worker.config.rollout_size, 1)
    emit(Report(group.rank, dict(vars(progress)), pace.now(), worker.part(), common, ending, fraction))
    mark = pace.now()
    while not ending:
        update, episodes, spent = one_update(worker, fraction)
        now = pace.now()
        elapsed, mark = now - mark, now
        refuse_divergence(progress, update, dumps, group.rank)
        ending, fraction, save = _agree(worker, pace, elapsed)
        keep = keep_parts and progress.updates % every == 0
        emit(
            Report(
                rank=group.rank,
                progress=dict(vars(progress)),
                now=now,
                part=worker.part() if keep or save else None,
                common=worker.common() if save and group.rank == 0 else None,
                ending=ending,
                fraction=fraction,
                elapsed=elapsed,
                spent=spent,
                metrics=update.metrics,
                skipped_steps=update.skipped_steps,
                episodes=episodes,
            )
        )


def _agree(worker: Worker, pace: Pace, last_update: float) -> tuple[str | None, float, bool]:
    """Rank 0's opinion made everybody's: whether the run ends, and why; how far along it is; whether to save."""
    group = worker.group
    opinion = torch.zeros(3, dtype=torch.float64)
    if group.rank == 0:
        reached = pace.reached(worker, last_update)
        opinion[0] = 1 if reached else 2 if group.stop_wanted() else 0
        opinion[1] = pace.fraction(worker.progress.env_steps)
        opinion[2] = pace.save_due(worker.progress.updates) or opinion[0] > 0
    verdict, fraction, save = group.sum(opinion).tolist()
    return (None, "finished", "interrupted")[int(verdict)], fraction, bool(save)


def one_update(worker: Worker, fraction: float) -> tuple[Update, list[Episode], dict[str, float]]:
    """Collect a rollout and learn from it; returns also the episodes that ended and where the time went."""
    config, group, progress = worker.config, worker.group, worker.progress
    group.reduce_seconds = group.wait_seconds = 0.0
    rollout = worker.collector.collect()
    rewards = rollout.rewards
    if config.training.normalize_rewards:
        dones = rollout.dones.cpu().numpy()
        scaled = worker.normalizer(rewards.numpy(), dones, lambda x: group.sum(torch.from_numpy(x)).numpy())
        rewards = torch.from_numpy(scaled)
    training = config.training
    learning_rate = training.learning_rate * (1 - fraction if training.lr_schedule == "linear" else 1.0)
    started, crossing = time.perf_counter(), group.reduce_seconds + group.wait_seconds
    update = worker.learner.update(rollout, rewards.to(worker.device), learning_rate)
    learning = time.perf_counter() - started - (group.reduce_seconds + group.wait_seconds - crossing)
    progress.count(config.rollout_size, update.skipped_steps)
    spent = {"env": worker.collector.env_seconds, "acting": worker.collector.acting_seconds, "learning": learning}
    if group.size > 1:
        spent |= {"allreduce": group.reduce_seconds, "waiting": group.wait_seconds}
    return update, worker.collector.episodes, spent


def refuse_divergence(progress: Progress, update: Update, dumps: Path, rank: int) -> None:
    """End the run when optimizer steps that are not finite do not stop."""
    if progress.bad_updates_in_a_row <= MAX_BAD_UPDATES or rank > 0:  # all see the same; the first one tells
        return
    assert update.bad_batch is not None
    dump = dumps / f"diverged_update_{progress.updates}.pt"
    content = io.BytesIO()
    torch.save(dict(vars(update.bad_batch)), content)
    write_whole(dump, content.getvalue())
    raise Diverged(
        f"diverged: gradients were not finite in {progress.bad_updates_in_a_row} updates in a row; "
        f"the last batch is in {dump}, the last good checkpoint in {dumps}; try a lower learning rate"
    )
