"""The training loop: collect a rollout, learn from it, report. Every execution runs it, or its two halves apart."""

import io
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import torch

from rlcb.comm.process_group import ProcessGroup
from rlcb.errors import Diverged
from rlcb.execution.schedule import Schedule, ending
from rlcb.execution.worker import Worker, training_rewards
from rlcb.files import write_whole
from rlcb.learner import Learner, Update
from rlcb.rollout import Rollout
from rlcb.run.state import Progress, UpdateReport
from rlcb.words import counted

_STEPS_TO_REPEAT = 4096  # environment steps that a lost worker may cost: keeping the state takes time too
MAX_BAD_UPDATES = 3  # updates in a row with optimizer steps skipped as not finite; one more ends the run
_ENDINGS = (None, "finished", "interrupted")  # as numbers that a group can add up


def run_updates(
    worker: Worker,
    schedule: Schedule,
    emit: Callable[[UpdateReport], None],
    stop: Callable[[], bool],
    keep_states: bool,
    dumps: Path,
) -> None:
    """Collect, learn, report, until the group agrees that it is time to stop.

    `keep_states`: report the worker's own state every so often, so that another process could continue from it.
    `dumps`: the folder for the batch that made training diverge, if one does.
    """
    rank, progress = worker.group.rank, worker.progress
    how, fraction, _ = _agree(worker, schedule, stop)
    shared = worker.shared_state() if rank == 0 and (how or not progress.updates) else None
    every = max(_STEPS_TO_REPEAT // worker.config.rollout_size, 1)
    emit(UpdateReport(rank, progress.copy(), schedule.now(), worker.state(), shared, ending=how, fraction=fraction))
    schedule.lap()
    while not how:
        rollout = worker.collector.collect()
        update, seconds = learn(worker, rollout, schedule.learning_rate(fraction), dumps)
        now = schedule.lap()
        how, fraction, save = _agree(worker, schedule, stop)
        keep = save or (keep_states and progress.updates % every == 0)
        emit(
            UpdateReport(
                rank=rank,
                progress=progress.copy(),
                now=now,
                own=worker.state() if keep else None,
                shared=worker.shared_state() if keep and rank == 0 else None,
                save=save,
                weights_checksum=zlib.adler32(worker.learner.weights.numpy().data) if keep_states and keep else None,
                ending=how,
                fraction=fraction,
                elapsed=schedule.update_seconds,
                seconds=seconds,
                metrics=update.metrics,
                skipped_steps=update.skipped_steps,
                episodes=worker.collector.episodes,
            )
        )


def _agree(worker: Worker, schedule: Schedule, stop: Callable[[], bool]) -> tuple[str | None, float, bool]:
    """Rank 0's decisions for the whole group: whether and how the run ends, how much is done, whether to save."""
    decision, progress = torch.zeros(3, dtype=torch.float64), worker.progress
    if worker.group.rank == 0:
        how = ending(schedule.reached(progress.env_steps, progress.updates), stop())
        save = schedule.save_due(progress.updates)
        decision[0] = _ENDINGS.index(how)
        decision[1] = schedule.fraction(progress.env_steps)
        decision[2] = save or how is not None
    number, fraction, saves = worker.group.sum(decision).tolist()
    return _ENDINGS[int(number)], fraction, bool(saves)


def learn(worker: Worker, rollout: Rollout, learning_rate: float, dumps: Path) -> tuple[Update, dict[str, float]]:
    """Learn from a rollout that this worker has collected; returns also where the time of the update went."""
    group, collector, rewards = worker.group, worker.collector, training_rewards(worker.config, rollout.rewards)
    group.seconds.reset()
    if worker.config.training.normalize_rewards:
        dones = rollout.dones.numpy()
        scaled = worker.normalizer(rewards.numpy(), dones, lambda x: group.sum(torch.from_numpy(x)).numpy())
        rewards = torch.from_numpy(scaled)
    started, crossed = time.perf_counter(), group.seconds.total
    update = worker.learner.update(rollout, rewards, learning_rate)
    learning = time.perf_counter() - started - (group.seconds.total - crossed)
    finish_update(worker.learner, worker.progress, update, dumps)
    worker.learner.observe(rollout)
    seconds = {"env": collector.env_seconds, "acting": collector.acting_seconds, "learning": learning}
    return update, {**seconds, **crossing_seconds(group)}


def finish_update(learner: Learner, progress: Progress, update: Update, dumps: Path) -> None:
    """Count an update, and end the run if weights are not finite or optimizer steps that are not do not stop."""
    progress.count(learner.config.rollout_size, update.skipped_steps)
    if learner.group.rank > 0:
        return  # all ranks see the same; the first one tells
    kept = f"the last good checkpoint is in {dumps}; try a lower learning rate"
    if not learner.is_finite():
        raise Diverged(f"diverged: weights are not finite after update {progress.updates}; {kept}")
    if progress.bad_updates_in_a_row <= MAX_BAD_UPDATES:
        return
    assert update.bad_batch is not None
    dump = dumps / f"diverged_update_{progress.updates}.pt"
    content = io.BytesIO()
    torch.save(dict(vars(update.bad_batch)), content)
    write_whole(dump, content.getvalue())
    raise Diverged(
        f"diverged: gradients were not finite in {counted(progress.bad_updates_in_a_row, 'update')} in a row; "
        f"the last batch is in {dump}, {kept}"
    )


def crossing_seconds(group: ProcessGroup) -> dict[str, float]:
    """Where the time of an update went in exchange with other processes, if there are any."""
    return {"allreduce": group.seconds.reduce, "waiting": group.seconds.wait} if group.size > 1 else {}
