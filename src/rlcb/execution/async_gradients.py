"""Asynchronous gradients (A3C): every worker acts, computes and applies on its own, to parameters that all share.

The supervisor counts out the rollouts to do, records what the workers report, a round of as many rollouts as there are
workers at a time, and replaces a worker that dies by one with new environments. Where there is no room for that, the
others do what it would have done.
"""

import os
import time
from collections import Counter
from functools import reduce
from typing import Any, NoReturn

import numpy as np
import torch

from rlcb.comm.pool import WorkerDied, WorkerHandle
from rlcb.comm.shared_parameters import SharedParameters, WorkCounter
from rlcb.envs.families import spec_of
from rlcb.envs.normalize import joined_moments
from rlcb.errors import OwnCodeFailed
from rlcb.execution.messages import Applied, AsyncSetup, Go, Started, Waiting
from rlcb.execution.schedule import Schedule, ending
from rlcb.execution.supervisor import Job, Supervisor, poll
from rlcb.execution.worker import make_policy
from rlcb.learner import Learner
from rlcb.run.state import Progress, RunState, SharedState, UpdateReport

_ENDLESS = 2**62  # rollouts


class AsyncGradients:
    """Runs asynchronous workers to the end of the run."""

    def __init__(self, job: Job):
        self.config, self.plan, self.recorder, self.stop = job.config, job.plan, job.recorder, job.stop
        self._share = job.config.changed("env", num_envs=job.plan.envs_per_worker)  # one worker's configuration
        self._workers = Supervisor("async_worker", job.plan.num_workers, job)
        self._parameters = os.memfd_create("rlcb-parameters")
        self._work = WorkCounter(os.memfd_create("rlcb-work"))
        self._round: list[tuple[int, Applied]] = []  # gradients of the round in progress, with their workers
        self._schedule: Schedule | None = None  # once everybody is ready

    def run(self, checkpoint: SharedState | None) -> None:
        """Start the workers, record what they report, replace those that die, until the run is over."""
        self._progress = checkpoint.progress.copy() if checkpoint else Progress()
        self._before = self._progress.copy()
        count, mean, squares = checkpoint.reward_moments if checkpoint else (0.0, 0.0, 0.0)
        size = self.plan.num_workers
        # Every worker has moments of its own: each begins with an equal part of what is known.
        self._moments = [(count / size, mean, squares / size)] * size
        try:
            self._make_parameters(checkpoint)
            while self.recorder.ending is None:
                if story := self._workers.fill(self._setup, (self._parameters, self._work.descriptor)):
                    self._give_up(story)
                if self._schedule is None:
                    self._begin_when_ready()
                else:
                    self._advance(self._schedule)
                for worker, message in poll(self._workers):
                    self._take(worker, message)
        except OwnCodeFailed:
            if self._schedule is not None:
                self.recorder.keep(RunState(self._shared_state(), []))
            raise
        finally:
            self._workers.end()
            os.close(self._work.descriptor)
            os.close(self._parameters)

    # Starting

    def _make_parameters(self, checkpoint: SharedState | None) -> None:
        """The shared weights and moments, and a learner that only looks at them."""
        policy, generator = make_policy(self.config, spec_of(self.config.env)), torch.Generator()
        self._shared = SharedParameters(self._parameters, self._workers.control.arrivals, worker=None, create=True)
        self._observer = Learner(policy, self._share, generator, self._shared)
        if checkpoint:
            self._observer.load(checkpoint.policy, checkpoint.optimizer)
            self._shared.publish()

    def _setup(self, place: int) -> AsyncSetup:
        return AsyncSetup(
            config=self._share,
            index=place,
            incarnation=self._workers.incarnations[place],
            num_threads=self.plan.threads,
            parameters=self._parameters,
            work=self._work.descriptor,
            dumps=self.recorder.run.path.resolve(),
            steps_before=self._before.env_steps,
            reward_moments=self._moments[place],
            seed_key=self._workers.seed_key(place, self._before.updates),
        )

    def _begin_when_ready(self) -> None:
        """Once all have said that they are ready, training is measured."""
        if not self._workers.all_ready:
            return
        self._schedule = Schedule(self.config, time.perf_counter() - self.recorder.seconds)
        self._record(self._schedule, None if self._before.env_steps else self._shared_state())
        self._give_work(self._schedule)

    # Working

    def _give_work(self, schedule: Schedule) -> None:
        """Count out the rollouts that are missing, and let everybody who is idle go for them."""
        self._work.offer(max(self._missing(), 0))
        for worker in list(self._workers.idle):
            self._go(worker, schedule)

    def _missing(self) -> int:
        """Rollouts that are still to be done."""
        if self.config.training.duration_hours:
            return _ENDLESS
        rounds = -(-self.config.training.total_timesteps // self.config.rollout_size)
        done = self._progress.env_steps // self._share.rollout_size + len(self._round)
        return rounds * self.plan.num_workers - done

    def _go(self, worker: WorkerHandle, schedule: Schedule) -> None:
        self._workers.send(worker, Go(self._workers.control.generation, schedule.zero))

    def _take(self, worker: WorkerHandle, message: object) -> None:
        if isinstance(message, Applied):
            self._workers.budget.delivered(worker.index)
            self._moments[worker.index] = message.reward_moments
            self._round.append((worker.index, message))
            if len(self._round) == self.plan.num_workers:
                self._record_round()
        elif isinstance(message, Started):
            self._workers.has_started(worker, message)
            if self._schedule is not None:
                self._go(worker, self._schedule)  # in the place of one that died
        elif isinstance(message, Waiting):
            self._workers.idle.add(worker)
        else:
            assert isinstance(message, WorkerDied)
            if story := self._workers.lose(message):
                self._give_up(story)

    def _advance(self, schedule: Schedule) -> None:
        """Ask the workers to stop in time; once all are idle, end the run or give out what dead ones had taken on."""
        progress, timed = self._progress, self.config.training.duration_hours is not None
        if self.stop.signal is not None or (timed and schedule.reached(progress.env_steps, progress.updates)):
            self._workers.control.request_stop()
        if len(self._workers.idle) < len(self._workers.workers):
            return
        if not self._workers.control.stop and self._missing() > 0:
            self._give_work(schedule)
            return
        if self._round:
            self._record_round()
        reached = schedule.reached(progress.env_steps, progress.updates)
        how = ending(reached, self.stop.signal is not None) or "finished"
        self._record(schedule, self._shared_state(), ending=how)

    # Recording

    def _record_round(self) -> None:
        """Put the gradients of a round on record as one update."""
        assert self._schedule is not None
        rollouts, steps = [applied for _, applied in self._round], self.config.training.n_steps
        skipped = sum(applied.skipped_steps for applied in rollouts)
        self._progress.count(len(rollouts) * self._share.rollout_size, skipped)
        metrics = {name: _mean([applied.metrics[name] for applied in rollouts]) for name in rollouts[0].metrics}
        lags, size = [applied.lag for applied in rollouts], self.plan.num_workers
        metrics |= {"lag/mean": float(np.mean(lags)), "lag/max": max(lags)}
        seconds = {name: sum(applied.seconds[name] for applied in rollouts) / size for name in rollouts[0].seconds}
        episodes, seen = [], Counter[int]()
        for worker, applied in self._round:  # the second rollout of a worker in a round comes after its first
            episodes += [episode._replace(t=episode.t + steps * seen[worker]) for episode in applied.episodes]
            seen[worker] += 1
        self._round = []
        self._schedule.lap()
        shared = self._shared_state() if self._schedule.save_due(self._progress.updates) else None
        self._record(self._schedule, shared, metrics=metrics, seconds=seconds, skipped_steps=skipped, episodes=episodes)

    def _record(self, schedule: Schedule, shared: SharedState | None, ending: str | None = None, **rest: Any) -> None:
        report = UpdateReport(
            rank=0,
            progress=self._progress.copy(),
            now=self.recorder.seconds if ending else schedule.now(),
            shared=shared,
            ending=ending,
            fraction=schedule.fraction(self._progress.env_steps),
            elapsed=schedule.update_seconds,
            **rest,
        )
        self.recorder.record([report])

    def _shared_state(self) -> SharedState:
        """What a checkpoint holds, of the parameters as they are now."""
        self._shared.refresh()
        policy, optimizer = self._observer.state()
        return SharedState(policy, optimizer, reduce(joined_moments, self._moments), self._progress.copy())

    def _give_up(self, story: str) -> NoReturn:
        """End a run that cannot continue, with a checkpoint once there is something to keep."""
        state = RunState(self._shared_state(), []) if self._schedule is not None else None
        self._workers.give_up(story, state)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def train(job: Job, state: RunState | None) -> None:
    """Train with asynchronous workers until steps or time are reached or a signal asks to stop."""
    AsyncGradients(job).run(state.shared if state else None)
