"""Sequential execution: one process collects, learns, logs, and does it again."""

import time
from datetime import datetime

import torch

from rlcb.checkpoint import load_newest, prune, save_checkpoint
from rlcb.config import Config
from rlcb.console import Console, note, update_line, warn
from rlcb.errors import Diverged
from rlcb.execution.state import TrainingState
from rlcb.learner import Update
from rlcb.metrics import Metrics, MetricsWriter, want_tensorboard
from rlcb.resources import ResourceMeter
from rlcb.run import RunDirectory
from rlcb.signals import StopRequest
from rlcb.summary import Outcome, summary_block, write_summaries

MAX_BAD_UPDATES = 3  # updates in a row with steps left out as not finite; one more ends the run


class Session:
    """One stretch of a run in this process: its directory, its state, its clock."""

    def __init__(self, run: RunDirectory, config: Config, device: str, num_threads: int, resume: bool):
        torch.set_num_threads(num_threads)
        self.run, self.config, self.device, self.num_threads = run, config, device, num_threads
        self.state = TrainingState(config, run.algorithm, device, num_threads)
        if resume:
            path, content = load_newest(run.checkpoints, run.prefix, self._warn)
            self.state.load(path, content)
            note(f"resuming from {path} at step {self.state.progress.env_steps:,}")
            run.event("resumed", checkpoint=path.name, env_steps=self.state.progress.env_steps)
        self.meter = ResourceMeter()
        self._zero = time.perf_counter() - self.state.progress.seconds
        self._saved_at = time.perf_counter()

    def seconds(self) -> float:
        """Training time so far, earlier stretches included."""
        return time.perf_counter() - self._zero

    def save(self, name: str) -> None:
        """Write a checkpoint of this moment, then remove the oldest."""
        self.state.progress.seconds = self.seconds()
        path = self.run.checkpoints / f"{self.run.prefix}_{name}.pt"
        save_checkpoint(path, self.state.content())
        self._saved_at = time.perf_counter()
        prune(self.run.checkpoints, self.run.prefix, self.config.logging.keep_checkpoints)

    def save_due(self) -> bool:
        """Whether the next checkpoint is due, by updates or by time."""
        logging = self.config.logging
        if self.state.progress.updates % logging.save_interval == 0:
            return True
        minutes = logging.save_every_minutes
        return minutes is not None and time.perf_counter() - self._saved_at >= 60 * minutes

    def _warn(self, text: str) -> None:
        warn(text)
        self.run.event("checkpoint_unusable", reason=text)


def train(session: Session, stop: StopRequest) -> Outcome:
    """Train until the configured steps or time are reached or a signal asks to stop; everything is on disk then."""
    state, run, config = session.state, session.run, session.config
    tensorboard = want_tensorboard(config.logging.tensorboard)
    with MetricsWriter(run.logs, tensorboard, state.progress.updates) as writer, Console("Training") as console:
        try:
            _loop(session, stop, writer, console)
        except Diverged:
            write_summaries(run, config, _outcome(session, "diverged", writer.history))
            raise
        status = "finished" if stop.signal is None else "interrupted"
        session.save("final" if stop.signal is None else f"step_{state.progress.env_steps}")
        outcome = _outcome(session, status, writer.history)
    write_summaries(run, config, outcome)
    print(summary_block(run, config, outcome), flush=True)
    return outcome


def _loop(session: Session, stop: StopRequest, writer: MetricsWriter, console: Console) -> None:
    """The training loop: collect, learn, log, save, until it is time to stop."""
    state, config = session.state, session.config
    if not state.progress.updates:
        session.save("step_0")
    mark = session.seconds()
    last_update = 0.0
    while stop.signal is None and not _reached(session, last_update):
        update, seconds = _one_update(session)
        now = session.seconds()
        last_update, mark = now - mark, now
        metrics = _metrics(session, update, seconds, now, last_update)
        writer.write(metrics)
        _refuse_divergence(session, update)
        if state.progress.updates % config.logging.log_interval == 0:
            console.line(update_line(metrics))
        console.progress(_fraction(session), f"{metrics['time/fps']:,.0f} FPS")
        if session.save_due():
            session.save(f"step_{state.progress.env_steps}")
            write_summaries(session.run, config, _outcome(session, "running", writer.history))


def _one_update(session: Session) -> tuple[Update, dict[str, float]]:
    """Collect a rollout and learn from it; returns also where the time went."""
    state, config = session.state, session.config
    rollout = state.collector.collect()
    rewards = rollout.rewards
    if config.training.normalize_rewards:
        rewards = torch.from_numpy(state.normalizer(rewards.numpy(), rollout.dones.cpu().numpy()))
    started = time.perf_counter()
    update = state.learner.update(rollout, rewards.to(session.device), _learning_rate(session))
    learning = time.perf_counter() - started
    state.progress.env_steps += config.rollout_size
    state.progress.updates += 1
    state.progress.skipped_steps += update.skipped_steps
    state.progress.bad_updates_in_a_row = state.progress.bad_updates_in_a_row + 1 if update.skipped_steps else 0
    return update, {
        "env": state.collector.env_seconds,
        "acting": state.collector.acting_seconds,
        "learning": learning,
    }


def _metrics(session: Session, update: Update, seconds: dict[str, float], now: float, elapsed: float) -> Metrics:
    """The line of one update, under the names that docs/metrics.md explains."""
    state = session.state
    episodes = state.collector.episodes
    recent = episodes.recent()
    lengths = episodes.recent_lengths
    memory, cpu = session.meter.sample()
    return {
        "update": state.progress.updates,
        "step": state.progress.env_steps,
        "time": round(now, 4),
        "rollout/ep_reward_mean": recent[0] if recent else None,
        "rollout/ep_reward_std": recent[1] if recent else None,
        "rollout/ep_len_mean": sum(lengths) / len(lengths) if lengths else None,
        "rollout/episodes": episodes.num_episodes,
        "time/fps": session.config.rollout_size / elapsed,
        **{f"time/{name}_seconds": round(value, 4) for name, value in seconds.items()},
        "time/other_seconds": round(max(elapsed - sum(seconds.values()), 0.0), 4),
        **update.metrics,
        "update/skipped_steps": update.skipped_steps,
        "resource/memory_gb": round(memory, 4),
        "resource/cpu_percent": round(cpu, 2),
    }


def _refuse_divergence(session: Session, update: Update) -> None:
    """Report optimizer steps that were not finite and end the run when they do not stop."""
    progress, run = session.state.progress, session.run
    if not update.skipped_steps:
        return
    run.event("not_finite", update=progress.updates, skipped_steps=update.skipped_steps)
    warn(f"update {progress.updates}: {update.skipped_steps} optimizer steps left out, their gradient was not finite")
    if progress.bad_updates_in_a_row <= MAX_BAD_UPDATES:
        return
    dump = run.path / f"diverged_update_{progress.updates}.pt"
    torch.save(dict(vars(update.bad_batch)), dump)
    raise Diverged(
        f"diverged: gradients were not finite in {progress.bad_updates_in_a_row} updates in a row; "
        f"the last batch is in {dump}, the last good checkpoint in {run.checkpoints}; try a lower learning rate"
    )


def _fraction(session: Session) -> float:
    """How much of the run is done, from 0 to 1."""
    training, progress = session.config.training, session.state.progress
    if training.duration_hours:
        return min(session.seconds() / (3600 * training.duration_hours), 1.0)
    return min(progress.env_steps / training.total_timesteps, 1.0)


def _reached(session: Session, last_update: float) -> bool:
    """Whether to stop: a timed run ends at the end of the update that is nearest to its time."""
    training, progress = session.config.training, session.state.progress
    if training.duration_hours:
        return progress.updates > 0 and session.seconds() + last_update / 2 >= 3600 * training.duration_hours
    return progress.env_steps >= training.total_timesteps


def _learning_rate(session: Session) -> float:
    training = session.config.training
    return training.learning_rate * (1 - _fraction(session) if training.lr_schedule == "linear" else 1.0)


def _outcome(session: Session, status: str, history: list[Metrics]) -> Outcome:
    progress = session.state.progress
    return Outcome(
        status=status,
        started=datetime.fromisoformat(progress.started),
        ended=datetime.now().astimezone(),
        seconds=session.seconds() if status == "running" else progress.seconds,
        env_steps=progress.env_steps,
        updates=progress.updates,
        skipped_steps=progress.skipped_steps,
        episodes=session.state.collector.episodes,
        history=history,
        resources=session.meter.totals(),
        device=session.device,
        num_threads=session.num_threads,
    )
