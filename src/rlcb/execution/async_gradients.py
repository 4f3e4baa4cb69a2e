"""Asynchronous gradients: every worker acts, computes and applies on its own, to parameters that all of them share.

The supervisor trains nothing. It counts out the rollouts to do, records what the workers report, a round of as many
rollouts as there are workers at a time, and replaces a worker that is lost by one with new environments. Where there
is no room for that, the others do what it would have done.
"""

import contextlib
import os
import time
from collections import Counter
from dataclasses import asdict
from functools import reduce
from multiprocessing.connection import wait
from typing import Any, NoReturn

import numpy as np
import torch

from rlcb.comm.local_process import STARTUP_SECONDS, Lost
from rlcb.comm.pool import Child, Crew, NoRoom
from rlcb.comm.restarts import Losses
from rlcb.comm.shared_parameters import SharedParameters, WorkCounter
from rlcb.config.schema import Config
from rlcb.envs.families import spec_of
from rlcb.envs.normalize import joined_moments
from rlcb.errors import Diverged, WorkersLost
from rlcb.execution.loop import Pace, Report
from rlcb.execution.messages import Applied, AsyncSetup, Go, OutOfWork, Started
from rlcb.execution.state import Progress, Start, make_policy
from rlcb.learner import Learner
from rlcb.run.directory import RunDirectory
from rlcb.run.recorder import Recorder
from rlcb.run.summary import Outcome
from rlcb.signals import StopRequest

_ENDLESS = 2**62  # rollouts


class Supervisor:
    """Runs asynchronous workers to the end of the run."""

    def __init__(self, recorder: Recorder, config: Config, threads_per_worker: int, stop: StopRequest, crew: Crew):
        assert isinstance(config.parallel.num_workers, int)
        self.recorder, self.config, self.stop, self.crew = recorder, config, stop, crew
        self.size, self._threads = config.parallel.num_workers, threads_per_worker
        share = config.env.model_copy(update={"num_envs": config.env.num_envs // self.size})
        self._share = config.model_copy(update={"env": share})
        self._control = crew.control("rlcb-control", self.size)
        self._parameters = os.memfd_create("rlcb-parameters")
        self._work = WorkCounter(os.memfd_create("rlcb-work"))
        self._workers: dict[int, Child] = {}  # by place; one that nobody could be found for is missing
        self._ready: set[Child] = set()
        self._idle: set[Child] = set()
        self._reports: list[tuple[int, Applied]] = []  # of the round under way, by worker
        self._lives, self._losses = Counter[int](), Losses()
        self._pace: Pace | None = None  # once everybody is ready

    def run(self, start: Start | None) -> Outcome:
        """Start the workers, record what they report, replace those that are lost; everything is on disk then."""
        self._progress = Progress(**start["progress"]) if start else Progress()
        self._before, self._resumed_at = self._progress.env_steps, self._progress.updates
        count, mean, squares = start["normalizer"] if start else (0.0, 0.0, 0.0)
        # Every worker has moments of its own: each begins with an equal part of what is known.
        self._moments = [(count / self.size, mean, squares / self.size)] * self.size
        try:
            self._make_parameters(start)
            self._fill_places()
            while len(self._ready) < len(self._workers):
                self._attend()
            self._begin()
            while self.recorder.ending is None:
                self._attend()
                self._stop_in_time()
                if len(self._idle) == len(self._workers):
                    self._end_or_go_on()
            return self.recorder.finish()
        except Diverged:
            self.recorder.finish("diverged")
            raise
        finally:
            for worker in self._workers.values():
                worker.end()
            for descriptor in (self._work.descriptor, self._parameters, self._control.descriptor):
                os.close(descriptor)

    def _make_parameters(self, start: Start | None) -> None:
        """The shared weights and moments, and a learner that only looks at them."""
        policy, generator = make_policy(self.config, spec_of(self.config.env)), torch.Generator()
        self._shared = SharedParameters(self._control, None, self._parameters, create=True)
        self._observer = Learner(policy, self._share, generator, self._shared)
        if start:
            self._observer.load(start)
            self._shared.publish()

    def _fill_places(self) -> None:
        """Start a worker in every place that is empty, as far as there is room; too few end the run."""
        for place in range(self.size):
            if place not in self._workers and self.crew.room() != 0:
                with contextlib.suppress(NoRoom):
                    self._workers[place] = self._start(place)
        least = self.config.parallel.min_workers
        if len(self._workers) < least:
            self._give_up(f"there is room for {len(self._workers)} workers, and min_workers is {least}")

    def _start(self, worker: int) -> Child:
        life = self._lives[worker]
        self._lives[worker] += 1
        # Every process that is this worker gets random streams of its own.
        key = (worker, self._resumed_at, life) if life or self._before else (worker,)
        setup = AsyncSetup(
            self._share, worker, self._threads, self._parameters, self._work.descriptor,
            self.recorder.run.path.resolve(), self._before, self._moments[worker], key,
        )  # fmt: skip
        name, module = f"worker {worker}", "rlcb.execution.async_worker"
        descriptors = (self._parameters, self._work.descriptor)
        return self.crew.start(name, module, worker, setup, self._control, descriptors)

    def _begin(self) -> None:
        """All are ready: from now on training is measured."""
        self._zero = time.perf_counter() - self.recorder.seconds
        self._pace = Pace(self.config, self._zero)
        self._mark, self._last_round = self._pace.now(), 0.0
        self._tell_recorder(None if self._before else self._common())
        self._give_work()

    # Working

    def _give_work(self) -> None:
        """Count out the rollouts that are missing, and let everybody who has nothing to do go for them."""
        missing = self._missing()
        if missing > 0:
            self._work.offer(missing)
        for worker in list(self._idle):
            self._go(worker)

    def _missing(self) -> int:
        """Rollouts that are still to be done."""
        if self.config.training.duration_hours:
            return _ENDLESS
        rounds = -(-self.config.training.total_timesteps // self.config.rollout_size)
        return rounds * self.size - self._progress.env_steps // self._share.rollout_size - len(self._reports)

    def _go(self, worker: Child) -> None:
        worker.told_to_go()
        self._idle.discard(worker)
        with contextlib.suppress(Lost):  # one that is gone is noticed by whoever listens to it
            worker.send(Go(self._control.generation, self._zero))

    def _attend(self) -> None:
        """Take in what the workers have to say; whoever is lost or silent for too long is replaced."""
        try:
            self.crew.attend()
        except WorkersLost as lost:
            self._give_up(str(lost))
        self._fill_places()
        try:
            by_channel = {worker.channel: worker for worker in self._workers.values()}
            for channel in wait(list(by_channel), timeout=0.1):
                worker = by_channel[channel]
                self._take(worker, worker.receive())
            for worker in self._workers.values():
                patience = self.config.parallel.worker_timeout if worker in self._ready else STARTUP_SECONDS
                if worker not in self._idle and worker.silent_for() > patience:
                    worker.give_up(patience)
        except Lost as lost:
            self._replace(lost)

    def _take(self, worker: Child, message: Any) -> None:
        if isinstance(message, Started):
            self._ready.add(worker)
            self._idle.add(worker)
            self.recorder.console.line(f"{worker.name.capitalize()} started with {message.num_envs} environments")
            if self._pace is not None:
                self._go(worker)  # in the place of one that was lost
        elif isinstance(message, OutOfWork):
            self._idle.add(worker)
        else:
            assert isinstance(message, Applied)
            self._losses.delivered(worker.index)
            self._moments[worker.index] = message.moments
            self._reports.append((worker.index, message))
            if len(self._reports) == self.size:
                self._record_round()

    def _stop_in_time(self) -> None:
        """Ask the workers to stop after their current rollout: on a signal, or when the time is nearly over."""
        assert self._pace is not None
        hours = self.config.training.duration_hours
        late = hours is not None and self._pace.now() + self._last_round / 2 >= 3600 * hours
        if self.stop.signal is not None or (late and self._progress.updates > self._resumed_at):
            self._control.request_stop()

    def _end_or_go_on(self) -> None:
        """Nobody has anything to do: the run is over, or what lost workers had taken on is still to be done."""
        if not self._control.stop and self._missing() > 0:
            self._give_work()
            return
        if self._reports:
            self._record_round()
        cut_short = self.stop.signal is not None and self._missing() > 0
        self._tell_recorder(self._common(), ending="interrupted" if cut_short else "finished")

    # Recording

    def _record_round(self) -> None:
        """Put the gradients of a round on record as one update."""
        assert self._pace is not None
        rollouts, steps = [applied for _, applied in self._reports], self.config.training.n_steps
        skipped = sum(applied.skipped_steps for applied in rollouts)
        self._progress.count(len(rollouts) * self._share.rollout_size, skipped)
        metrics = {name: _mean([applied.metrics[name] for applied in rollouts]) for name in rollouts[0].metrics}
        lags = [applied.lag for applied in rollouts]
        metrics |= {"lag/mean": float(np.mean(lags)), "lag/max": max(lags)}
        spent = {name: sum(applied.spent[name] for applied in rollouts) / self.size for name in rollouts[0].spent}
        episodes, seen = [], Counter[int]()
        for worker, applied in self._reports:  # the second rollout of a worker in a round comes after its first
            episodes += [episode._replace(t=episode.t + steps * seen[worker]) for episode in applied.episodes]
            seen[worker] += 1
        self._reports = []
        now = self._pace.now()
        self._last_round, self._mark = now - self._mark, now
        common = self._common() if self._pace.save_due(self._progress.updates) else None
        self._tell_recorder(common, metrics=metrics, spent=spent, skipped_steps=skipped, episodes=episodes)

    def _tell_recorder(self, common: dict[str, Any] | None, ending: str | None = None, **figures: Any) -> None:
        assert self._pace is not None
        now = self.recorder.seconds if ending else self._pace.now()
        fraction = self._pace.fraction(self._progress.env_steps)
        progress = asdict(self._progress)
        self.recorder.record([Report(0, progress, now, None, common, ending, fraction, self._last_round, **figures)])

    def _common(self) -> dict[str, Any]:
        """What a checkpoint holds, of the parameters as they are now."""
        self._shared.refresh()
        moments = reduce(joined_moments, self._moments)
        return {**self._observer.state(), "normalizer": list(moments), "progress": asdict(self._progress)}

    # Losing

    def _replace(self, lost: Lost) -> None:
        """Put a new worker in the place of one that is lost; what it was doing is done again by somebody."""
        place, name = lost.process.index, lost.process.name
        self._ready.discard(lost.process)
        self._idle.discard(lost.process)
        self.recorder.note_loss(name, lost.how, self._losses.add(place))
        if not self.crew.spread and self._losses.all_together(range(self.size)):
            self._give_up(f"all {self.size} workers are lost, the last one {lost.how}")
        if self._losses.too_many(place):
            self._give_up(self._losses.story(place, name, lost.how))
        lost.process.end()
        del self._workers[place]
        self._fill_places()

    def _give_up(self, story: str) -> NoReturn:
        """End a run that cannot go on, with a checkpoint once there is something to keep."""
        if self._pace is not None:
            self.recorder.abandon(self._common(), [])
            story = f"{story}; saved"
        raise WorkersLost(f"{story}; go on with --resume {self.recorder.run.path}")


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def train(
    run: RunDirectory, config: Config, device: str, num_threads: int, resume: bool, stop: StopRequest, crew: Crew
) -> Outcome:
    """Train with asynchronous workers until steps or time are reached or a signal asks to stop."""
    assert isinstance(config.parallel.num_workers, int)
    recorder = Recorder(run, config, device, num_threads, config.parallel.num_workers, crew)
    start = recorder.restore()[0] if resume else None
    with recorder:
        return Supervisor(recorder, config, num_threads, stop, crew).run(start)
