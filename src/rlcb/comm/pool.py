"""Where a supervisor's children run: as processes of this machine, or on a cluster's nodes."""

import os
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from rlcb.comm.local_process import Process
from rlcb.comm.process_group import Control


class NoRoom(Exception):
    """Nothing that is left of the cluster has room for another child."""


class Child(Protocol):
    """One who acts or learns, as its supervisor sees it."""

    name: str
    index: int

    @property
    def channel(self) -> Any:
        """What to wait on for messages: `multiprocessing.connection.wait` takes it, and it has `poll`."""

    def receive(self) -> Any:
        """The next message; a child that is gone raises Lost, one that cannot go on its own error."""

    def send(self, message: Any) -> None:
        """Tell the child something; one that is known to be gone raises Lost."""

    def silent_for(self) -> float:
        """Seconds since this child last gave a sign of life, or was told to go."""

    def told_to_go(self) -> None:
        """From now on it has something to do, so its silence counts."""

    def give_up(self, patience: float) -> NoReturn:
        """End a child that has been silent for too long: raises Lost."""

    def end(self) -> None:
        """Make sure that it is gone."""


class Crew(Protocol):
    """Starts children and knows how many there is room for."""

    spread: bool  # over several machines, which do not fail together
    elastic: bool  # as many workers as there is room for, not a number that was asked for

    def control(self, name: str, size: int) -> Control:
        """The page that this many children are told to stop by."""

    def start(
        self, name: str, module: str, index: int, setup: Any, control: Control, descriptors: Sequence[int]
    ) -> Child:
        """Start a child that runs this module of rlcb.execution; NoRoom where none can be started."""

    def room(self) -> int | None:
        """How many more children could be started now; None: as many as one likes."""

    def attend(self) -> None:
        """Look after what the children run on; if that is lost altogether, WorkersLost."""

    def usage(self) -> tuple[int, float]:
        """Bytes and processor seconds of the children that this machine cannot see by itself."""

    def cores(self) -> int | None:
        """Cores that the children may use in all; None: this process's own."""

    def nodes(self) -> list[dict[str, Any]]:
        """The machines, with how many children each has had and the most memory they took there."""


class LocalCrew:
    """Children are processes of this machine; as many as one likes."""

    spread = elastic = False

    def control(self, name: str, size: int) -> Control:
        """A page of nameless shared memory."""
        return Control(os.memfd_create(name), size)

    def start(
        self, name: str, module: str, index: int, setup: Any, control: Control, descriptors: Sequence[int]
    ) -> Child:
        """A new process, which inherits the descriptors."""
        return Process(name, module, index, setup, control, descriptors)

    def room(self) -> int | None:
        """Nobody counts."""
        return None

    def attend(self) -> None:
        """This machine is here."""

    def usage(self) -> tuple[int, float]:
        """All children are in this process's tree."""
        return 0, 0.0

    def cores(self) -> int | None:
        """Those of this process."""
        return None

    def nodes(self) -> list[dict[str, Any]]:
        """This machine goes without saying."""
        return []
