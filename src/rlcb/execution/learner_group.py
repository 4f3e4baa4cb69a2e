"""The learners of a run with actors: told which updates to do, asked for their state, replaced together.

Replaced learners continue from the last update that was reported: its weights and moments lie in shared memory,
and the rollouts of the updates that were ordered since are still in their slots.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from rlcb.comm.pool import WorkerDied, WorkerPool
from rlcb.comm.tickets import Ticket
from rlcb.execution.messages import GetShared, Learn, Learned, LearnerSetup, SharedMemory
from rlcb.execution.supervisor import Job, Supervisor, drain
from rlcb.run.state import Progress, SharedState

ORDERS_AHEAD = 2  # updates that the learners know of: the one in progress and the next
_PLACE = 0  # the one place of all learners in the restart budget


class LearnerGroup:
    """Orders updates and keeps what new learners would continue from."""

    def __init__(self, job: Job, memory: SharedMemory, descriptors: Sequence[int], checkpoint: SharedState | None):
        self._job, self._memory, self._descriptors, self._checkpoint = job, memory, descriptors, checkpoint
        # Learners share memory with this process, wherever the actors are.
        self.supervisor = Supervisor("learner", job.plan.num_learners, job, WorkerPool())
        self.progress = checkpoint.progress.copy() if checkpoint else Progress()
        self.ordered = self.progress.updates  # updates ordered since the run began
        self.orders: deque[Learn] = deque()  # updates to do
        self._told = 0  # of which the learners know
        self._previous: Learned | None = None  # where new learners continue from
        self._asked = False
        self.shared: SharedState | None = None  # the last state that was sent
        self._start()

    def _start(self) -> None:
        """Start all of them: those left of an earlier group could not agree with new ones."""
        plan = self._job.plan
        self._told, self._asked = 0, False
        setup = LearnerSetup(
            config=self._job.config,
            rank=0,
            num_threads=plan.threads,
            plan=plan,
            memory=self._memory,
            generation=self.supervisor.control.next_generation(),
            dumps=self._job.recorder.run.path.resolve(),
            checkpoint=self._checkpoint,
            previous=self._previous,
        )
        self.supervisor.start_missing(plan.num_learners, lambda rank: replace(setup, rank=rank), self._descriptors)

    @property
    def is_ready(self) -> bool:
        """Whether all have started and the first one has sent its state."""
        return self.supervisor.all_ready and self.shared is not None

    @property
    def has_work(self) -> bool:
        """Whether the learners know of updates that they have not reported yet."""
        return self._told > 0

    def order(self, tickets: tuple[Ticket, ...], learning_rate: float, save: bool) -> None:
        """Have one more update done from these rollouts."""
        self.ordered += 1
        self.orders.append(Learn(tickets, learning_rate, save))

    def tell(self) -> None:
        """Let the learners know of what was ordered; new ones learn of all of it."""
        while self._told < len(self.orders) and self.supervisor.all_ready:
            for learner in self.supervisor.workers.values():
                self.supervisor.send(learner, self.orders[self._told])
            self._told += 1

    def take(self, learned: Learned) -> Learn:
        """An update is done; returns the order for it."""
        self._told -= 1
        if not self._told:
            self.supervisor.idle.update(self.supervisor.workers.values())
        self.supervisor.budget.delivered(_PLACE)
        self._previous = replace(learned, report=replace(learned.report, shared=None))
        self.progress = learned.report.progress
        return self.orders.popleft()

    def take_state(self, state: SharedState) -> None:
        """The first learner has sent its state."""
        self.shared = state
        self.supervisor.idle.add(self.supervisor.workers[0])

    def newest_state(self) -> SharedState | None:
        """The state after the last update; where it is not known, it is asked for, once."""
        if self.shared is not None and self.shared.progress.updates == self.progress.updates:
            return self.shared
        if not self._asked and self.supervisor.all_ready:  # new learners send it without being asked
            self._asked = True
            self.supervisor.send(self.supervisor.workers[0], GetShared())
        return None

    def sent_before(self, died: WorkerDied) -> list[object]:
        """What the first learner had sent before one of them died: it counts."""
        workers = self.supervisor.workers
        return list(drain(workers[0])) if workers.get(died.worker.index) is died.worker else []

    def replace(self, died: WorkerDied) -> None:
        """Start new learners in the place of all, unless that was done already when another one died."""
        supervisor, worker = self.supervisor, died.worker
        if supervisor.workers.get(worker.index) is not worker:
            return
        self._job.recorder.note_loss(worker.name, died.how, supervisor.budget.add(_PLACE))
        for learner in list(supervisor.workers.values()):
            supervisor.remove(learner)
        if story := supervisor.budget.exhausted(_PLACE, died):
            supervisor.give_up(story, None)
        self._start()
