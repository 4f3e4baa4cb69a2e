"""Actors and learners (IMPALA): actors fill rollout slots, learners update from full ones, neither waits for a round.

The supervisor hands slots out, orders an update whenever enough of them are full and records what the learners report.
An actor that dies is replaced by one with new environments.
"""

import os
import time
from collections import Counter, deque
from dataclasses import astuple, fields, replace
from typing import NoReturn

from rlcb.comm.pool import WorkerDied, WorkerHandle
from rlcb.comm.rollout_slots import SlotBook
from rlcb.comm.tickets import Filled
from rlcb.errors import OwnCodeFailed
from rlcb.execution.learner_group import ORDERS_AHEAD, LearnerGroup
from rlcb.execution.messages import ActorSetup, Learned, SharedMemory, Started
from rlcb.execution.schedule import Schedule, ending
from rlcb.execution.supervisor import Job, Supervisor, poll
from rlcb.run.state import RunState, SharedState, UpdateReport

_ACTOR_TIMES = ("env", "acting", "waiting")


class ActorLearner:
    """Runs actors and learners to the end of the run."""

    def __init__(self, job: Job, checkpoint: SharedState | None):
        self.config, self.plan, self.recorder, self.stop = job.config, job.plan, job.recorder, job.stop
        self._memory = SharedMemory(*(os.memfd_create(f"rlcb-{field.name}") for field in fields(SharedMemory)))
        self._descriptors = astuple(self._memory)
        self._actors = Supervisor("actor", job.plan.num_workers, job)
        self._learners = LearnerGroup(job, self._memory, self._descriptors, checkpoint)
        self._first = self._learners.ordered  # updates before this stretch of the run
        self._book = SlotBook(job.plan.num_slots, per_update=job.plan.num_workers)
        self._queue: deque[WorkerHandle] = deque()  # actors without a slot, in the order in which they became idle
        self._actor_seconds = Counter[str]()  # since the last update
        self._schedule: Schedule | None = None  # once everybody is ready

    def run(self) -> None:
        """Start everybody, keep them busy, record what they report, until the run is over."""
        try:
            while self.recorder.ending is None:
                if story := self._actors.fill(self._actor_setup, self._descriptors):
                    self._give_up(story)
                if self._schedule is None:
                    self._begin_when_ready()
                else:
                    self._hand_out_slots(self._schedule)
                    self._order_updates(self._schedule)
                    self._finish_when_done(self._schedule)
                for worker, message in poll(self._actors, self._learners.supervisor):
                    self._take(worker, message)
        except OwnCodeFailed:
            if shared := self._last_state():
                self.recorder.keep(RunState(shared, []))
            raise
        finally:
            self._actors.end()
            self._learners.supervisor.end()
            for descriptor in self._descriptors:
                os.close(descriptor)

    def _actor_setup(self, place: int) -> ActorSetup:
        return ActorSetup(
            config=self.config,
            index=place,
            incarnation=self._actors.incarnations[place],
            num_threads=1,
            num_envs=self.plan.envs_per_worker,
            num_slots=self.plan.num_slots,
            memory=self._memory,
            seed_key=self._actors.seed_key(place, self._first),
            device=self.plan.actor_device,
            env_threads=self.plan.env_threads,
        )

    def _begin_when_ready(self) -> None:
        """Once all have said that they are ready, training is measured."""
        if not (self._actors.all_ready and self._learners.is_ready):
            return
        self._schedule = Schedule(self.config, zero=time.perf_counter() - self.recorder.seconds)
        progress = self._learners.progress
        shared = None if progress.updates else self._learners.shared
        self._record(UpdateReport(0, progress, self._schedule.now(), shared=shared))

    # Working

    def _hand_out_slots(self, schedule: Schedule) -> None:
        """Give idle actors slots to fill, as far as there are free ones."""
        while self._queue and not self._is_over(schedule):
            ticket = self._book.hand_out(self._queue[0].index)
            if ticket is None:
                return
            self._actors.send(self._queue.popleft(), ticket)

    def _order_updates(self, schedule: Schedule) -> None:
        """Order the next updates as soon as their rollouts are there."""
        learners = self._learners
        while len(learners.orders) < ORDERS_AHEAD and not self._is_over(schedule) and (tickets := self._book.take()):
            rate = schedule.learning_rate(schedule.fraction(learners.ordered * self.config.rollout_size))
            learners.order(tickets, rate, save=schedule.save_due(learners.ordered + 1))
        learners.tell()

    def _is_over(self, schedule: Schedule) -> bool:
        """Whether no further update is to be ordered."""
        ordered, pending = self._learners.ordered, len(self._learners.orders)
        reached = schedule.reached(ordered * self.config.rollout_size, ordered, pending)
        return reached or self.stop.signal is not None

    def _take(self, worker: WorkerHandle, message: object) -> None:
        if isinstance(message, Filled):
            self._book.filled(message.ticket)
            self._queue.append(worker)
            self._actors.idle.add(worker)
            self._actors.budget.delivered(worker.index)
            self._actor_seconds.update(message.seconds)
        elif isinstance(message, Learned):
            self._take_update(message)
        elif isinstance(message, SharedState):
            self._learners.take_state(message)
        elif isinstance(message, Started) and worker.role == "actor":
            self._actors.has_started(worker, message)
            self._queue.append(worker)
        elif isinstance(message, Started):
            self._learners.supervisor.has_started(worker, message)
        else:
            assert isinstance(message, WorkerDied)
            self._lose(message)

    def _lose(self, died: WorkerDied) -> None:
        """An actor's place is filled again; what it was filling is worth nothing. Learners are replaced together."""
        worker = died.worker
        if worker.role == "learner":
            for message in self._learners.sent_before(died):
                self._take(worker, message)
            self._learners.replace(died)
            return
        story = self._actors.lose(died)
        self._book.lost(worker.index)
        self._queue = deque(actor for actor in self._queue if actor is not worker)
        if story:
            self._give_up(story)

    # Recording

    def _take_update(self, learned: Learned) -> None:
        """An update is done: its slots are free, its metrics are recorded."""
        assert self._schedule is not None
        self._book.learned(self._learners.take(learned).tickets)
        now, report = self._schedule.lap(), learned.report
        spent, actors = self._actor_seconds, self.plan.num_workers
        times = {f"actor/{name}_seconds": round(spent[name] / actors, 4) for name in _ACTOR_TIMES}
        self._actor_seconds = Counter[str]()
        metrics = {**(report.metrics or {}), "queue/depth": self._book.depth, **times}
        self._record(replace(report, now=now, elapsed=self._schedule.update_seconds, metrics=metrics))

    def _record(self, report: UpdateReport) -> None:
        assert self._schedule is not None
        fraction = 1.0 if report.ending else self._schedule.fraction(report.progress.env_steps)
        self.recorder.record([replace(report, fraction=fraction)])

    def _finish_when_done(self, schedule: Schedule) -> None:
        """When all that was ordered is done: get the learners' state, save it and say how the run ended."""
        if self._learners.orders or not self._is_over(schedule):
            return
        shared, progress = self._learners.newest_state(), self._learners.progress
        if shared is None:
            return
        reached = schedule.reached(progress.env_steps, progress.updates)
        how = ending(reached, self.stop.signal is not None) or "finished"
        self._record(UpdateReport(0, progress, self.recorder.seconds, shared=shared, ending=how))

    def _give_up(self, story: str) -> NoReturn:
        """End a run that has lost its actors, with a checkpoint where there is something to keep."""
        shared = self._last_state()
        self._actors.give_up(story, RunState(shared, []) if shared else None)

    def _last_state(self) -> SharedState | None:
        """Have the learners finish what they know of; returns their state then, None if it cannot be had."""
        if self._schedule is None:
            return None
        try:
            while True:
                shared = None if self._learners.has_work else self._learners.newest_state()
                if shared is not None:
                    return shared
                for worker, message in poll(self._learners.supervisor):
                    if isinstance(message, WorkerDied):
                        return None
                    self._take(worker, message)
        except OwnCodeFailed:  # of a learner
            return None


def train(job: Job, state: RunState | None) -> None:
    """Train with actors and learners until steps or time are reached or a signal asks to stop."""
    ActorLearner(job, state.shared if state else None).run()
