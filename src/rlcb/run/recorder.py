"""Turns workers' reports into what a run leaves behind: lines, metrics, checkpoints, summaries."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rlcb.config.plan import Plan
from rlcb.config.schema import Config
from rlcb.console import Console, note, say, warn
from rlcb.disturbance.meter import DisturbanceMeter
from rlcb.disturbance.verdict import as_columns
from rlcb.envs.episodes import EpisodeStatistics
from rlcb.errors import Diverged, ResourceError
from rlcb.run.checkpoint import from_content, load_newest, prune, save_checkpoint, to_content
from rlcb.run.directory import RunDirectory
from rlcb.run.gpu import GpuMeter, gpu_memory
from rlcb.run.history import Metrics, MetricsWriter, write_columns
from rlcb.run.lines import UpdateLines
from rlcb.run.neighbours import note_jobs_beside
from rlcb.run.resources import ResourceMeter
from rlcb.run.state import Progress, RunState, RunTotals, UpdateReport
from rlcb.run.summary import Outcome, summary_block, write_summaries
from rlcb.run.tracking import Sinks
from rlcb.words import counted

if TYPE_CHECKING:
    from rlcb.comm.pool import WorkerPool


class Recorder:
    """Owns the run directory's files during a run; one per run, wherever the workers are."""

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        plan: Plan,
        pool: "WorkerPool | None" = None,
        on_update: Callable[[Metrics], None] | None = None,
    ):
        """`pool`: where the workers run, if they are not this process itself; `on_update` gets each update's line."""
        self.run, self.config, self._plan, self._pool = run, config, plan, pool
        self._on_update = on_update
        self.episodes = EpisodeStatistics(config.env.num_envs)
        self.seconds, self.worker_restarts = 0.0, 0
        self.ending: str | None = None  # how the run ended, once it has
        self._started = datetime.now().astimezone()
        self._progress = Progress()
        self._meter: ResourceMeter | None = None
        self._gpu = GpuMeter(plan.device)
        self._learners_gpu_memory: dict[str, float] = {}  # where another process learns on a GPU
        self._jobs_beside = 0

    def restore(self) -> RunState:
        """Load the newest whole checkpoint; returns the run as its workers left it."""
        path, content = load_newest(self.run.checkpoints, self.run.algorithm, self._warn, self.config)
        state, totals = from_content(content)
        self.episodes.load(totals.episodes)
        self.seconds, self.worker_restarts = totals.seconds, totals.worker_restarts
        self._started = datetime.fromisoformat(totals.started)
        self._progress = state.shared.progress.copy()
        note(f"resuming from {path} at step {self._progress.env_steps:,}")
        self.run.event("resumed", checkpoint=path.name, env_steps=self._progress.env_steps)
        return state

    def __enter__(self) -> Self:
        self._jobs_beside = note_jobs_beside(self.run)
        self._writer = MetricsWriter(self.run.logs, self._progress.updates)
        self._sinks = Sinks(self.run, self.config, self._writer.last_step)
        self.console = Console("Training")
        self._lines = UpdateLines(self.console, self.config)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._lines.finish()
            if kind is Diverged:
                self.finish("diverged")
            elif kind is not None:
                with suppress(ResourceError):  # the failure that ended the run is what the user must hear of
                    self._write_columns()
        finally:
            self._gpu.close()
            self.console.close()
            self._writer.close()
            self._sinks.close("diverged" if kind is Diverged else "failed" if kind else self.ending or "running")

    def record(self, reports: list[UpdateReport]) -> None:
        """Take in all workers' reports of one update, in the order of their ranks."""
        first = reports[0]
        steps = first.progress.env_steps - self._progress.env_steps
        self.seconds, self._progress = first.now, first.progress
        known = self._learners_gpu_memory
        self._learners_gpu_memory = known | {k: max(v, known.get(k, v)) for k, v in first.gpu_memory.items()}
        if first.metrics is not None:
            self._record_update(reports, steps)
        elif self._meter is None:
            self._meter = self._new_meter()  # from here on training is measured, not starting up
            self._lines.begin(first.now, first.fraction)
            self._gpu.start()
        if first.ending:
            self._lines.finish()
        if first.shared is not None and first.save:
            workers = [report.own for report in reports if report.own is not None]
            self.save(RunState(first.shared, workers), final=first.ending == "finished")
            if not first.ending:
                write_summaries(self.run, self.config, self.outcome("running"))
        self.ending = first.ending

    def _record_update(self, reports: list[UpdateReport], steps: int) -> None:
        first = reports[0]
        self.episodes.add(episode for report in reports for episode in report.episodes)
        metrics = self._metrics(reports, steps)
        self._writer.write(metrics)
        self._sinks.write(metrics)
        if first.skipped_steps:
            self.run.event("not_finite", update=metrics["update"], skipped_steps=first.skipped_steps)
            skipped = counted(first.skipped_steps, "optimizer step")
            warn(f"update {metrics['update']}: {skipped} skipped: gradient not finite")
        self._lines.show(metrics, first.fraction)
        self.console.progress(first.fraction, f"{metrics['time/fps']:,.0f} FPS")
        if self._on_update:
            self._on_update(metrics)

    def _metrics(self, reports: list[UpdateReport], steps: int) -> Metrics:
        """The line of one update, under the names that docs/metrics.md explains; times are means over the workers."""
        first = reports[0]
        recent = self.episodes.recent()
        spent = {name: sum(report.seconds[name] for report in reports) / len(reports) for name in first.seconds}
        assert self._meter is not None
        memory, cpu = self._meter.sample()
        return {
            "update": first.progress.updates,
            "step": first.progress.env_steps,
            "time": round(first.now, 4),
            "rollout/ep_reward_mean": recent[0] if recent else None,
            "rollout/ep_reward_std": recent[1] if recent else None,
            "rollout/ep_len_mean": self.episodes.recent_length(),
            "rollout/episodes": self.episodes.num_episodes,
            "time/fps": steps / first.elapsed,
            **{f"time/{name}_seconds": round(value, 4) for name, value in spent.items()},
            "time/other_seconds": round(max(first.elapsed - sum(spent.values()), 0.0), 4),
            **(first.metrics or {}),
            "update/skipped_steps": first.skipped_steps,
            "resource/memory_gb": round(memory, 4),
            "resource/cpu_percent": round(cpu, 2),
            **as_columns(self._meter.amounts()),
            **self._gpu.sample(),
        }

    def save(self, state: RunState, final: bool = False) -> None:
        """Write a checkpoint, named after its steps unless it is the final one, then remove the oldest."""
        self._writer.sync()
        started = self._started.isoformat(timespec="seconds")
        totals = RunTotals(self.episodes.state(), self.seconds, started, self.worker_restarts)
        save_checkpoint(self._path(state, final), to_content(self.config, state, totals))
        steps = state.shared.progress.env_steps
        prune(self.run.checkpoints, self.run.prefix, self.config.logging.keep_checkpoints, newest=steps)

    def _path(self, state: RunState, final: bool = False) -> Path:
        """The file of a checkpoint."""
        name = "final" if final else f"step_{state.shared.progress.env_steps}"
        return self.run.checkpoints / f"{self.run.prefix}_{name}.pt"

    def finish(self, status: str | None = None) -> Outcome:
        """Write metrics.json and the summaries."""
        outcome = self.outcome(status or self.ending or "running")
        self._write_columns()
        write_summaries(self.run, self.config, outcome)
        self.console.close()  # the bar must not be drawn below what follows
        return outcome

    def show_summary(self, outcome: Outcome) -> None:
        """Print the summary, from an outcome that may know more than the one that `finish` wrote."""
        say(summary_block(self.run, write_summaries(self.run, self.config, outcome), outcome))

    def _write_columns(self) -> None:
        write_columns(self._writer.path, self.run.path / "metrics.json")

    @property
    def has_begun(self) -> bool:
        """Whether training has begun."""
        return self._meter is not None

    def abandon(self, state: RunState) -> None:
        """Leave a run that cannot continue so that it can be resumed: a checkpoint and summaries of how far it came."""
        if not self._path(state).exists():  # one that was saved in time may have more
            self.save(state)
        write_summaries(self.run, self.config, self.outcome("interrupted"))

    def keep(self, state: RunState) -> None:
        """The same for a run that fails: should the disk fail too, the first failure is what the user must hear of."""
        try:
            self.abandon(state)
        except ResourceError as error:
            warn(f"the run could not be saved: {error}")

    def note_loss(self, name: str, how: str, times: int) -> None:
        """A process was lost and is being replaced."""
        self.worker_restarts += 1
        self.run.event("worker_lost", worker=name, how=how, restarts=times)
        warn(f"{name} was lost ({how}); replacing it")

    def note_size(self, before: int, now: int) -> None:
        """The run continues with another number of workers."""
        self.run.event("regrouped", workers_before=before, workers=now)
        warn(f"continuing with {counted(now, 'worker')} instead of {before}; environments are redistributed")

    def outcome(self, status: str) -> Outcome:
        """How far the run is."""
        return Outcome(
            status=status,
            started=self._started,
            ended=datetime.now().astimezone(),
            seconds=self.seconds,
            progress=self._progress,
            episodes=self.episodes,
            history=self._writer.totals,
            resources={
                **(self._meter or self._new_meter()).totals(),
                **(self._learners_gpu_memory or gpu_memory(self._plan.device)),
                **self._gpu.totals(),
            },
            plan=self._plan,
            worker_restarts=self.worker_restarts,
            nodes=self._pool.nodes() if self._pool else [],
            jobs_beside=self._jobs_beside,
        )

    def _new_meter(self) -> ResourceMeter:
        if self._pool is not None:
            return ResourceMeter(self._pool.usage, self._pool.cores(), apart=self._sinks.process)
        return ResourceMeter(disturbance=DisturbanceMeter(), apart=self._sinks.process)

    def _warn(self, text: str) -> None:
        warn(text)
        self.run.event("checkpoint_unusable", reason=text)
