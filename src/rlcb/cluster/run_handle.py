"""A run on a node, from the local side: calls of its Ray actor that end with an answer or with the loss of the node."""

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from rlcb.cluster.placement import Need, Node
from rlcb.cluster.ray_worker import versions
from rlcb.cluster.run_actor import Progress, RunActor, Welcome
from rlcb.cluster.run_files import FileState, Piece
from rlcb.cluster.watch import ClusterWatch
from rlcb.errors import ResourceError

_LOOKS_EVERY = 1.0  # seconds between looks whether the node is still there, while it does not answer
_ANSWERS_WITHIN = 60.0  # seconds; a node that is frozen still takes connections
_TO_CLOSE = 5.0  # seconds
Answer = TypeVar("Answer")


class NodeLost(Exception):
    """The node of a run, or the run's actor there, is gone."""


class RunHandle:
    """The actor of a run; a `Source` of its files, too."""

    def __init__(self, node: Node, need: Need, watch: ClusterWatch, given_up: Callable[[], bool]):
        """`given_up`: whether not to wait for an answer any more."""
        self._node, self._watch, self._given_up = node, watch, given_up
        where = NodeAffinitySchedulingStrategy(node.id, soft=False)
        options: dict[str, Any] = {"num_cpus": need.cores, "num_gpus": need.gpus, "memory": need.memory}
        self._actor = RunActor.options(scheduling_strategy=where, **options).remote(versions())  # type: ignore[attr-defined]

    def _ask(self, call: Callable[..., Any], *arguments: object, patience: float = _ANSWERS_WITHIN) -> Any:
        """Call a method of the actor; NodeLost if no answer will come, or none has for this many seconds."""
        asked = time.monotonic()
        try:
            answer = call.remote(*arguments)  # type: ignore[attr-defined]
            while True:
                with contextlib.suppress(GetTimeoutError):
                    return ray.get(answer, timeout=_LOOKS_EVERY)
                if self._watch.lost:
                    raise NodeLost(self._watch.lost)
                if self._node.door in self._watch.unreachable:
                    raise NodeLost(f"{self._node.name} has not answered for {self._watch.patience:g} s")
                if time.monotonic() - asked > patience:
                    raise NodeLost(f"the run's process on {self._node.name} has not answered for {patience:g} s")
                if self._given_up():
                    raise NodeLost(f"{self._node.name} was not waited for")
        except RayTaskError as error:
            raise ResourceError(f"{self._node.name}: {' '.join(str(error.cause).split())[-300:]}") from None
        except RayActorError:
            raise NodeLost(f"{self._node.name} or its process for the run died") from None
        except RayError as error:
            raise NodeLost(f"{self._node.name}: {' '.join(str(error).split())[-200:]}") from None

    def welcome(self) -> Welcome:
        """Wait until the actor is there, however long the node has no room for it."""
        found: Welcome = self._ask(self._actor.welcome, patience=math.inf)
        return found

    def begin(self, module: str, words: Sequence[str], config: bytes, variables: dict[str, str]) -> None:
        """Start the training."""
        self._ask(self._actor.begin, module, list(words), config, variables)

    def progress(self, position: int, seconds: float) -> Progress:
        """What was printed since a position, and whether the training has ended, after at most this many seconds."""
        found: Progress = self._ask(self._actor.progress, position, seconds)
        return found

    def stop(self, number: int) -> None:
        """Pass a signal on to the training."""
        self._ask(self._actor.stop, number)

    def listing(self) -> list[FileState]:
        """Every file of the run."""
        found: list[FileState] = self._ask(self._actor.listing)
        return found

    def read(self, name: str, offset: int) -> Piece | None:
        """The next piece of a file."""
        found: Piece | None = self._ask(self._actor.read, name, offset)
        return found

    def read_on(self, name: str, offset: int, digest: str) -> Piece | None:
        """What a file has from an offset on, if its end before that has this digest."""
        found: Piece | None = self._ask(self._actor.read_on, name, offset, digest)
        return found

    def digest(self, name: str) -> str | None:
        """SHA-256 of a whole file."""
        found: str | None = self._ask(self._actor.digest, name)
        return found

    def write(self, name: str, offset: int, piece: Piece) -> FileState:
        """Put a piece of a file in its place."""
        found: FileState = self._ask(self._actor.write, name, offset, piece)
        return found

    def close(self) -> None:
        """Have the run's files on the node removed, then end the actor, whatever it is doing."""
        if self._watch.lost:
            return
        with contextlib.suppress(RayError):  # otherwise the next actor on the node removes them
            ray.get(self._actor.close.remote(), timeout=_TO_CLOSE)
        with contextlib.suppress(RayError, RuntimeError, ValueError):  # it is gone already, or all of the cluster is
            ray.kill(self._actor, no_restart=True)
