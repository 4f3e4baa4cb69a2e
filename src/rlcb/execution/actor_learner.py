"""Actors and learners: actors fill slots with rollouts, learners update from full ones, nobody waits for a whole round.

The supervisor trains nothing. It hands slots out, orders an update whenever enough of them are full, records what the
learners report, and replaces whoever is lost: an actor by a new one with new environments, the learners by new ones
that go on from the last update, whose weights and moments lie in shared memory; their rollouts are still in the slots.
"""

import contextlib
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, fields, replace
from multiprocessing.connection import wait
from typing import Any, NoReturn

from rlcb.comm.local_process import STARTUP_SECONDS, Lost
from rlcb.comm.pool import Child, Crew, LocalCrew, NoRoom
from rlcb.comm.process_group import Control
from rlcb.comm.restarts import Losses
from rlcb.comm.rollout_slots import SlotBook
from rlcb.config.schema import Config
from rlcb.errors import Diverged, WorkersLost
from rlcb.execution.loop import Pace, Report
from rlcb.execution.messages import ActorSetup, Filled, Give, Learn, Learned, LearnerSetup, Memory, Started
from rlcb.execution.state import Start
from rlcb.run.directory import RunDirectory
from rlcb.run.recorder import Recorder
from rlcb.run.summary import Outcome
from rlcb.signals import StopRequest

_ORDERS_AHEAD = 2  # updates that the learners know of: the one under way and the next
_LEARNERS = -1  # their place in the count of losses: they are replaced together
_ACTOR_TIMES = ("env", "acting", "waiting")


class Supervisor:
    """Runs actors and learners to the end of the run."""

    def __init__(self, recorder: Recorder, config: Config, threads_per_learner: int, stop: StopRequest, crew: Crew):
        actors, learners = config.parallel.num_workers, config.parallel.num_learners
        assert isinstance(actors, int)
        assert learners is not None
        self.recorder, self.config, self.stop, self.crew = recorder, config, stop, crew
        self._num_actors, self._num_learners, self._threads = actors, learners, threads_per_learner
        self._num_slots = config.parallel.num_slots or 2 * actors
        self._book = SlotBook(self._num_slots, per_update=actors)
        self._here = LocalCrew()  # learners share memory with this process, wherever the actors are
        self._actor_control = crew.control("rlcb-actors", actors)
        self._learner_control = self._here.control("rlcb-learners", learners)
        self._memory = Memory(*(os.memfd_create(f"rlcb-{field.name}") for field in fields(Memory)))
        self._actors: dict[int, Child] = {}  # by place; one that nobody could be found for is missing
        self._learners: list[Child] = []
        self._ready: set[Child] = set()  # those that have said that they are
        self._idle: deque[int] = deque()  # actors without a slot
        self._orders: deque[Learn] = deque()  # updates to do
        self._told = 0  # of which the learners know
        self._common: dict[str, Any] | None = None  # what a checkpoint holds of the learners, once they have sent it
        self._carried: dict[str, Any] | None = None  # where new learners would have to go on from
        self._lives, self._losses = Counter[int](), Losses()
        self._spent = Counter[str]()  # the actors' time since the last update
        self._pace: Pace | None = None  # once everybody is ready

    def run(self, start: Start | None) -> Outcome:
        """Start everybody, keep them busy, record what they report; everything is on disk then."""
        self._start = start
        self._progress = dict(start["progress"]) if start else {"env_steps": 0, "updates": 0, "skipped_steps": 0}
        self._first = self._ordered = self._progress["updates"]
        try:
            self._start_learners()
            self._fill_places()
            self._pace = self._begin()
            while self.recorder.ending is None:
                self._look_after_crew()
                self._fill_places()
                self._attended(self._hand_out)
                self._attended(self._order)
                self._attended(self._listen)
                if not self._orders and self._is_over():
                    self._finish()
            return self.recorder.finish()
        except Diverged:
            self.recorder.finish("diverged")
            raise
        finally:
            for process in (*self._actors.values(), *self._learners):
                process.end()
            controls = (self._actor_control.descriptor, self._learner_control.descriptor)
            for descriptor in (*astuple(self._memory), *controls):
                os.close(descriptor)

    # Starting

    def _fill_places(self) -> None:
        """Start an actor in every place that is empty, as far as there is room."""
        for actor in range(self._num_actors):
            if actor not in self._actors and self.crew.room() != 0:
                with contextlib.suppress(NoRoom):
                    self._actors[actor] = self._start_actor(actor)
        self._refuse_too_few()

    def _start_actor(self, actor: int) -> Child:
        life = self._lives[actor]
        self._lives[actor] += 1
        # Every process that is this actor gets random streams of its own.
        key = (actor, self._first, life) if self._first or life else (actor,)
        setup = ActorSetup(self.config, actor, life, 1, self._num_slots, self._memory, key)
        return self._child(self.crew, "actor", "rlcb.execution.actor", actor, setup, self._actor_control)

    def _start_learners(self) -> None:
        """All at once: those that go on alone could not agree with new ones."""
        generation, folder = self._learner_control.next_generation(), self.recorder.run.path.resolve()
        setup = LearnerSetup(
            0, self.config, self._threads, self._num_slots, self._memory, generation, folder, self._start, self._carried
        )
        self._learners, self._told = [], 0
        for rank in range(self._num_learners):
            mine, control = replace(setup, rank=rank), self._learner_control
            self._learners.append(
                self._child(self._here, "learner", "rlcb.execution.learner_worker", rank, mine, control)
            )

    def _child(self, crew: Crew, kind: str, module: str, index: int, setup: Any, control: Control) -> Child:
        return crew.start(f"{kind} {index}", module, index, setup, control, astuple(self._memory))

    def _begin(self) -> Pace:
        """Wait until all are ready; from then on training is measured."""
        while len(self._ready) < len(self._actors) + self._num_learners or self._common is None:
            self._attended(self._listen)
            self._look_after_crew()
            self._fill_places()
        pace = Pace(self.config, zero=time.perf_counter() - self.recorder.seconds)
        self._mark, self._last_update = pace.now(), 0.0
        fresh = self._progress["updates"] == 0
        self._tell_recorder(pace.now(), pace.fraction(self._progress["env_steps"]), self._common if fresh else None)
        return pace

    # Working

    def _attended(self, step: Callable[[], None]) -> None:
        """Do a step; whoever turns out to be lost is replaced."""
        try:
            step()
        except Lost as lost:
            self._replace(lost)

    def _listen(self) -> None:
        self._hear((*self._actors.values(), *self._learners))

    def _hear(self, processes: Iterable[Child]) -> None:
        """Take in what these have to say, and look after those who should and do not."""
        by_channel = {process.channel: process for process in processes}
        for channel in wait(list(by_channel), timeout=0.1):
            process = by_channel[channel]
            self._take(process, process.receive())
        for process, patience in self._busy(processes):
            if process.silent_for() > patience:
                process.give_up(patience)

    def _busy(self, processes: Iterable[Child]) -> Iterator[tuple[Child, float]]:
        """Who of these has something to do, and for how long they may be silent about it."""
        for process in processes:
            if process not in self._ready:
                yield process, STARTUP_SECONDS
            elif self._has_work(process):
                yield process, self.config.parallel.worker_timeout

    def _is_actor(self, process: Child) -> bool:
        return self._actors.get(process.index) is process

    def _has_work(self, process: Child) -> bool:
        if self._is_actor(process):
            return process.index not in self._idle
        return self._told > 0 or (process is self._learners[0] and self._common is None)

    def _take(self, process: Child, message: Any) -> None:
        if isinstance(message, Started):
            self._ready.add(process)
            process.told_to_go()
            if self._is_actor(process):
                self._idle.append(process.index)
                self.recorder.console.line(f"{process.name.capitalize()} started with {message.num_envs} environments")
        elif isinstance(message, Filled):
            self._book.filled(message.ticket)
            self._idle.append(process.index)
            self._spent.update(message.seconds)
            self._losses.delivered(process.index)
        elif isinstance(message, Learned):
            self._record(message)
            self._losses.delivered(_LEARNERS)
        else:
            self._common = message

    def _hand_out(self) -> None:
        """Give idle actors slots to fill, as far as there are free ones."""
        while self._idle and not self._is_over():
            ticket = self._book.hand_out(self._idle[0])
            if ticket is None:
                return
            actor = self._actors[self._idle.popleft()]
            actor.told_to_go()
            actor.send(ticket)

    def _order(self) -> None:
        """Decide on the next updates as soon as their rollouts are there, and let the learners know."""
        while len(self._orders) < _ORDERS_AHEAD and not self._is_over() and (tickets := self._book.take()):
            assert self._pace is not None
            done, training = self._pace.fraction(self._ordered * self.config.rollout_size), self.config.training
            rate = training.learning_rate * (1 - done if training.lr_schedule == "linear" else 1.0)
            self._ordered += 1
            self._orders.append(Learn(tickets, rate, self._pace.save_due(self._ordered)))
        if not all(process in self._ready for process in self._learners):
            return
        while self._told < len(self._orders):
            for process in self._learners:
                process.told_to_go()
                process.send(self._orders[self._told])
            self._told += 1

    def _is_over(self) -> bool:
        """Whether no further update is to be ordered: a timed run ends with the update that is nearest to its time."""
        assert self._pace is not None
        hours = self.config.training.duration_hours
        if self.stop.signal is not None:
            return True
        if hours:
            ahead = (len(self._orders) + 0.5) * self._last_update
            return self._ordered > self._first and self._pace.now() + ahead >= 3600 * hours
        return self._ordered * self.config.rollout_size >= self.config.training.total_timesteps

    # Recording

    def _record(self, learned: Learned) -> None:
        """An update is done: its slots are free, its figures go on record."""
        assert self._pace is not None
        self._book.learned(self._orders.popleft().tickets)
        self._told -= 1
        self._carried, self._progress = learned.carried, learned.progress
        now = self._pace.now()
        self._last_update, self._mark = now - self._mark, now
        times = {f"actor/{name}_seconds": round(self._spent[name] / self._num_actors, 4) for name in _ACTOR_TIMES}
        self._spent.clear()
        metrics = {**learned.metrics, "queue/depth": self._book.depth, **times}
        fraction = self._pace.fraction(self._progress["env_steps"])
        self._tell_recorder(now, fraction, learned.common, learned, metrics)

    def _tell_recorder(
        self,
        now: float,
        fraction: float,
        common: dict[str, Any] | None,
        learned: Learned | None = None,
        metrics: dict[str, Any] | None = None,
        ending: str | None = None,
    ) -> None:
        report = Report(0, self._progress, now, None, common, ending, fraction, self._last_update, metrics=metrics)
        if learned:
            skipped, episodes = learned.skipped_steps, learned.episodes
            report = replace(report, spent=learned.spent, skipped_steps=skipped, episodes=episodes)
        self.recorder.record([report])

    def _finish(self) -> None:
        """All that was ordered is done: save and say how the run ended."""
        common = None
        while common is None or common["progress"]["updates"] != self._progress["updates"]:
            self._attended(self._ask_for_common)
            common = self._common
        training = self.config.training
        by_steps = training.duration_hours is None and self._progress["env_steps"] >= training.total_timesteps
        ending = "finished" if by_steps or self.stop.signal is None else "interrupted"
        self._tell_recorder(self.recorder.seconds, 1.0, common, ending=ending)

    def _ask_for_common(self) -> None:
        """Wait for what a checkpoint holds of the learners; they must have nothing else to do."""
        self._common = None
        if all(process in self._ready for process in self._learners):  # new ones send it anyway
            self._learners[0].told_to_go()
            self._learners[0].send(Give(self._progress["updates"]))
        while self._common is None:
            self._hear(self._learners)

    # Losing

    def _replace(self, lost: Lost) -> None:
        """Put new processes in the place of what is lost."""
        is_actor = self._is_actor(lost.process)
        place = lost.process.index if is_actor else _LEARNERS
        self._ready.discard(lost.process)
        self.recorder.note_loss(lost.process.name, lost.how, self._losses.add(place))
        if is_actor:
            self._book.lost(place)
            self._idle = deque(actor for actor in self._idle if actor != place)
            self._refuse_hopeless(lost, place)
            lost.process.end()
            del self._actors[place]
            self._fill_places()
            return
        with contextlib.suppress(Lost):  # what the first learner has reported counts
            while self._learners[0].channel.poll():
                self._take(self._learners[0], self._learners[0].receive())
        for process in self._learners:
            self._ready.discard(process)
            process.end()
        self._refuse_hopeless(lost, place)
        self._start_learners()

    def _refuse_hopeless(self, lost: Lost, place: int) -> None:
        """Stop, with a checkpoint, when more is lost than bad luck explains."""
        story = self._losses.story(place, lost.process.name, lost.how)
        together = not self.crew.spread and self._losses.all_together(range(self._num_actors))
        if place != _LEARNERS and together:
            story = f"all {self._num_actors} actors are lost, the last one {lost.how}"
        elif not self._losses.too_many(place):
            return
        self._give_up(story, save=place != _LEARNERS)

    def _refuse_too_few(self) -> None:
        """Stop, with a checkpoint, when there is no room for as many actors as there must be."""
        least = self.config.parallel.min_workers
        if len(self._actors) < least:
            self._give_up(f"there is room for {len(self._actors)} actors, and min_workers is {least}", save=True)

    def _look_after_crew(self) -> None:
        """Stop, with a checkpoint, when what the actors run on is lost altogether."""
        try:
            self.crew.attend()
        except WorkersLost as lost:
            self._give_up(str(lost), save=True)

    def _give_up(self, story: str, save: bool) -> NoReturn:
        path, saved = self.recorder.run.path, ""
        if self._pace is not None and save:
            with contextlib.suppress(Lost):
                while self._told:
                    self._hear(self._learners)
                self._ask_for_common()
                assert self._common is not None
                self.recorder.abandon(self._common, [])
                saved = "saved; "
        raise WorkersLost(f"{story}; {saved}go on with --resume {path}")


def train(
    run: RunDirectory, config: Config, device: str, num_threads: int, resume: bool, stop: StopRequest, crew: Crew
) -> Outcome:
    """Train with actors and learners until steps or time are reached or a signal asks to stop."""
    assert isinstance(config.parallel.num_workers, int)
    recorder = Recorder(run, config, device, num_threads, config.parallel.num_workers, crew)
    start = recorder.restore()[0] if resume else None
    with recorder:
        return Supervisor(recorder, config, num_threads, stop, crew).run(start)
