"""Actors and learners (IMPALA): actors fill rollout slots, learners update from full ones, neither waits for a round.

The supervisor hands slots out, orders an update whenever enough of them are full and records what the learners report.
An actor that dies is replaced by one with new environments. Learners are replaced together: they go on from the last
update that was reported, whose weights and moments lie in shared memory, and whose rollouts are still in the slots.
"""

import os
import time
from collections import Counter, deque
from dataclasses import astuple, fields, replace
from typing import NoReturn

from rlcb.comm.pool import LocalPool, NoRoom, WorkerDied, WorkerHandle, WorkerPool
from rlcb.comm.rollout_slots import SlotBook
from rlcb.comm.tickets import Filled
from rlcb.config.plan import Plan
from rlcb.config.schema import Config
from rlcb.errors import Diverged
from rlcb.execution.messages import (
    ActorSetup,
    GetShared,
    Learn,
    Learned,
    LearnerSetup,
    LearnerState,
    SharedMemory,
    Started,
)
from rlcb.execution.schedule import Schedule, ending
from rlcb.execution.supervisor import Supervisor, drain, poll
from rlcb.run.directory import RunDirectory
from rlcb.run.recorder import Recorder
from rlcb.run.state import Progress, RunState, SharedState, UpdateReport
from rlcb.run.summary import Outcome
from rlcb.signals import StopRequest

_ORDERS_AHEAD = 2  # updates that the learners know of: the one under way and the next
_LEARNERS = 0  # their one place in the restart budget: they are replaced together
_ACTOR_TIMES = ("env", "acting", "waiting")


class ActorLearner:
    """Runs actors and learners to the end of the run."""

    def __init__(self, recorder: Recorder, config: Config, plan: Plan, stop: StopRequest, pool: WorkerPool):
        self.recorder, self.config, self.plan, self.stop = recorder, config, plan, stop
        self._actors = Supervisor("actor", plan.num_workers, pool, recorder, config)
        # Learners share memory with this process, wherever the actors are.
        self._learners = Supervisor("learner", plan.num_learners, LocalPool(), recorder, config)
        self._memory = SharedMemory(*(os.memfd_create(f"rlcb-{field.name}") for field in fields(SharedMemory)))
        self._book = SlotBook(plan.num_slots, per_update=plan.num_workers)
        self._queue: deque[WorkerHandle] = deque()  # actors without a slot, in the order in which they became idle
        self._orders: deque[Learn] = deque()  # updates to do
        self._told = 0  # of which the learners know
        self._ordered = 0  # updates ordered since the run began
        self._shared: SharedState | None = None  # the learners' last one that was sent
        self._asked = False  # for the one that the run ends with
        self._previous: LearnerState | None = None  # where replaced learners would have to go on from
        self._actor_seconds = Counter[str]()  # since the last update
        self._schedule: Schedule | None = None  # once everybody is ready
        self._mark = self._update_seconds = 0.0

    def run(self, checkpoint: SharedState | None) -> Outcome:
        """Start everybody, keep them busy, record what they report; everything is on disk then."""
        self._checkpoint = checkpoint
        self._progress = checkpoint.progress.copy() if checkpoint else Progress()
        self._first = self._ordered = self._progress.updates
        try:
            self._start_learners()
            while self.recorder.ending is None:
                self._start_missing_actors()
                if self._schedule is None:
                    self._begin_when_ready()
                else:
                    self._hand_out_slots(self._schedule)
                    self._order_updates(self._schedule)
                    self._finish_when_done(self._schedule)
                for worker, message in poll(self._actors, self._learners):
                    self._take(worker, message)
            return self.recorder.finish()
        except Diverged:
            self.recorder.finish("diverged")
            raise
        finally:
            self._actors.end()
            self._learners.end()
            for descriptor in astuple(self._memory):
                os.close(descriptor)

    # Starting

    def _start_missing_actors(self) -> None:
        """Start an actor in every vacant place, as far as there is room; too few end the run."""
        if lost := self._actors.pool_lost():
            self._give_up(lost)
        for place in self._actors.vacant():
            setup = ActorSetup(
                config=self.config,
                index=place,
                incarnation=self._actors.incarnation(place),
                num_threads=1,
                num_envs=self.plan.envs_per_worker,
                num_slots=self.plan.num_slots,
                memory=self._memory,
                seed_key=self._actors.seed_key(place, self._first),
            )
            try:
                self._actors.start(place, setup, astuple(self._memory))
            except NoRoom:
                break
        if few := self._actors.too_few():
            self._give_up(few)

    def _start_learners(self) -> None:
        """Start all of them: those left of an earlier group could not agree with new ones."""
        self._told, self._asked = 0, False
        setup = LearnerSetup(
            config=self.config,
            rank=0,
            num_threads=self.plan.threads,
            num_actors=self.plan.num_workers,
            envs_per_actor=self.plan.envs_per_worker,
            num_slots=self.plan.num_slots,
            memory=self._memory,
            generation=self._learners.control.next_generation(),
            dumps=self.recorder.run.path.resolve(),
            checkpoint=self._checkpoint,
            previous=self._previous,
        )
        for rank in range(self.plan.num_learners):
            self._learners.start(rank, replace(setup, rank=rank), astuple(self._memory))

    def _begin_when_ready(self) -> None:
        """Once all have said that they are ready, training is measured."""
        if not (self._actors.all_ready and self._learners.all_ready) or self._shared is None:
            return
        self._schedule = Schedule(self.config, zero=time.perf_counter() - self.recorder.seconds)
        self._mark = self._schedule.now()
        fresh = self._progress.updates == 0
        self._record(UpdateReport(0, self._progress, self._mark, shared=self._shared if fresh else None))

    # Working

    def _hand_out_slots(self, schedule: Schedule) -> None:
        """Give idle actors slots to fill, as far as there are free ones."""
        while self._queue and not self._is_over(schedule):
            ticket = self._book.hand_out(self._queue[0].index)
            if ticket is None:
                return
            self._actors.send(self._queue.popleft(), ticket)

    def _order_updates(self, schedule: Schedule) -> None:
        """Decide on the next updates as soon as their rollouts are there, and let the learners know."""
        while len(self._orders) < _ORDERS_AHEAD and not self._is_over(schedule) and (tickets := self._book.take()):
            rate = schedule.learning_rate(schedule.fraction(self._ordered * self.config.rollout_size))
            self._ordered += 1
            self._orders.append(Learn(tickets, rate, schedule.save_due(self._ordered)))
        while self._told < len(self._orders) and self._learners.all_ready:
            for learner in self._learners.workers.values():
                self._learners.send(learner, self._orders[self._told])
            self._told += 1

    def _is_over(self, schedule: Schedule) -> bool:
        """Whether no further update is to be ordered."""
        steps, pending = self._ordered * self.config.rollout_size, len(self._orders)
        reached = schedule.reached(steps, self._ordered, self._update_seconds, pending)
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
        elif isinstance(message, Started):
            (self._actors if worker.role == "actor" else self._learners).has_started(worker, message)
            if worker.role == "actor":
                self._queue.append(worker)
        elif isinstance(message, WorkerDied):
            (self._lose_actor if worker.role == "actor" else self._lose_learners)(message)
        else:
            assert isinstance(message, SharedState)
            self._shared = message
            self._learners.idle.add(worker)

    def _take_update(self, learned: Learned) -> None:
        """An update is done: its slots are free, its metrics go on record."""
        assert self._schedule is not None
        self._book.learned(self._orders.popleft().tickets)
        self._told -= 1
        if not self._told:
            self._learners.idle.update(self._learners.workers.values())
        self._learners.budget.delivered(_LEARNERS)
        self._previous, self._progress = learned.state, learned.state.progress
        now = self._schedule.now()
        self._update_seconds, self._mark = now - self._mark, now
        seconds, actors = self._actor_seconds, self.plan.num_workers
        times = {f"actor/{name}_seconds": round(seconds[name] / actors, 4) for name in _ACTOR_TIMES}
        self._actor_seconds = Counter[str]()
        self._record(
            UpdateReport(
                rank=0,
                progress=self._progress,
                now=now,
                shared=learned.shared,
                elapsed=self._update_seconds,
                seconds=learned.seconds,
                metrics={**learned.metrics, "queue/depth": self._book.depth, **times},
                skipped_steps=learned.skipped_steps,
                episodes=learned.episodes,
            )
        )

    def _record(self, report: UpdateReport) -> None:
        assert self._schedule is not None
        fraction = 1.0 if report.ending else self._schedule.fraction(self._progress.env_steps)
        self.recorder.record([replace(report, fraction=fraction)])

    def _finish_when_done(self, schedule: Schedule) -> None:
        """When all that was ordered is done: get the learners' state, save it and say how the run ended."""
        if self._orders or not self._is_over(schedule):
            return
        if not self._has_newest_state():
            self._ask_for_state()
            return
        reached = schedule.reached(self._progress.env_steps, self._progress.updates, self._update_seconds)
        how = ending(reached, self.stop.signal is not None) or "finished"
        self._record(UpdateReport(0, self._progress, self.recorder.seconds, shared=self._shared, ending=how))

    def _has_newest_state(self) -> bool:
        return self._shared is not None and self._shared.progress.updates == self._progress.updates

    def _ask_for_state(self) -> None:
        """Ask the first learner for the shared state, once; new learners send it without being asked."""
        if not self._asked and self._learners.all_ready:
            self._asked = True
            self._learners.send(self._learners.workers[0], GetShared(self._progress.updates))

    # Losing

    def _lose_actor(self, died: WorkerDied) -> None:
        """An actor is gone: what it was filling is worth nothing, its place is filled again."""
        self._actors.lose(died)
        self._book.lost(died.worker.index)
        self._queue = deque(actor for actor in self._queue if actor is not died.worker)
        if story := self._actors.hopeless(died):
            self._give_up(story)

    def _lose_learners(self, died: WorkerDied) -> None:
        """A learner is gone: what the first one had reported counts, then all are replaced."""
        if self._learners.workers.get(died.worker.index) is not died.worker:
            return  # replaced already, together with another one
        for message in drain(self._learners.workers[0]):
            self._take(self._learners.workers[0], message)
        deaths = self._learners.budget.add(_LEARNERS)
        self.recorder.note_loss(died.worker.name, died.how, deaths)
        for learner in list(self._learners.workers.values()):
            self._learners.remove(learner)
        if self._learners.budget.exhausted(_LEARNERS):
            self._learners.give_up(self._learners.budget.story(_LEARNERS, died.worker.name, died.how), None)
        self._start_learners()

    def _give_up(self, story: str) -> NoReturn:
        """End a run that has lost its actors: the learners finish what they know of, then their state is saved."""
        while self._schedule is not None and (self._told or not self._has_newest_state()):
            if not self._told:
                self._ask_for_state()
            for worker, message in poll(self._learners):
                if isinstance(message, WorkerDied):
                    self._actors.give_up(story, None)
                self._take(worker, message)
        state = RunState(self._shared, []) if self._schedule is not None and self._shared is not None else None
        self._actors.give_up(story, state)


def train(run: RunDirectory, config: Config, plan: Plan, resume: bool, stop: StopRequest, pool: WorkerPool) -> Outcome:
    """Train with actors and learners until steps or time are reached or a signal asks to stop."""
    recorder = Recorder(run, config, plan, pool)
    checkpoint = recorder.restore().shared if resume else None
    with recorder:
        return ActorLearner(recorder, config, plan, stop, pool).run(checkpoint)
