"""A run of a suite on a node of a cluster: its files and its output are copied here while it trains there."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rlcb.analysis.suites import SuiteRun
from rlcb.cluster.mirror import Mirror
from rlcb.cluster.placement import Need, Node
from rlcb.cluster.run_handle import NodeLost, RunHandle
from rlcb.cluster.watch import ClusterWatch
from rlcb.errors import RlcbError
from rlcb.run.directory import claim, unlock
from rlcb.signals import StopRequest
from rlcb.suite.log import CommandLog
from rlcb.suite.process import MODULE

_COPIES_AFTER = (0.5, 3.0)  # seconds between two copies of what has changed: a fifth of the time so far, within these
_LOOKS_EVERY = 0.5  # seconds for which the node waits for the end of the training before it answers


class RemoteRun:
    """A run on a node, followed by a thread of its own: a node that does not answer delays no other run.

    Its directory at home is locked by this process meanwhile, as by a training: no other process resumes it.
    """

    def __init__(
        self,
        run: SuiteRun,
        node: Node,
        need: Need,
        resumed: bool,
        words: Callable[[Path], Sequence[str]],
        config: bytes,
        variables: dict[str, str],
        watch: ClusterWatch,
    ):
        """`words`: the training's command, for a folder on the node; `config`: its config file."""
        self.where, self.lost, self.refused = node.name, "", ""  # the last: what makes the node unusable
        self._run, self._node, self.resumed = run, node, resumed
        self._words, self._config, self._variables = words, config, variables
        self._signal: int | None = None
        self._code: int | None = None
        self._problem = ""  # why it failed, other than by its own exit code
        self._begun, self._began_there = time.monotonic(), False
        self._log = CommandLog(run.log, f"$ rlcb train of {run.name} on {node.name}")
        try:
            self._lock = claim(run.path, resumed)
        except RlcbError:
            self._log.close()
            raise
        self._handle = RunHandle(node, need, watch, self._is_given_up)
        self._over = threading.Event()
        threading.Thread(target=self._follow, daemon=True).start()

    def _is_given_up(self) -> bool:
        """Whether nothing has begun and nothing is to begin."""
        return self._signal is not None and not self._began_there

    # In the thread

    def _follow(self) -> None:
        """Do everything, and say how it ended."""
        try:
            self._code = self._train()
        except NodeLost as error:
            self.lost = str(error)
        except Exception as error:  # of whatever kind: it is the run's end, and its reason is shown
            self._problem = str(error) if isinstance(error, RlcbError | OSError) else repr(error)
        finally:
            self._handle.close()
            unlock(self._run.path, self._lock)
            self._log.close()
            self._over.set()

    def _train(self) -> int | None:
        """Have the run trained on the node until it ends; its exit code, None if the node cannot be used."""
        welcome = self._handle.welcome()
        if welcome.problem:
            self.refused = self.lost = f"{self._node.name}: {welcome.problem}"
            return None
        mirror = Mirror(self._run.path, self._handle)
        if self.resumed:
            mirror.send()
        if self._is_given_up():
            raise NodeLost("the suite was interrupted")
        self._began_there = True
        self._handle.begin(MODULE, self._words(welcome.folder), self._config, self._variables)
        begun = copied = time.monotonic()
        told, position = False, 0
        while True:
            if self._signal is not None and not told:
                self._handle.stop(self._signal)
                told = True
            progress = self._handle.progress(position, _LOOKS_EVERY)
            self._log.write(progress.printed)
            position += len(progress.printed)
            if progress.exit_code is not None and not progress.printed:
                break
            if time.monotonic() - copied >= min(max(0.2 * (copied - begun), _COPIES_AFTER[0]), _COPIES_AFTER[1]):
                mirror.update()
                copied = time.monotonic()
        mirror.update(ended=True)
        mirror.compare()
        return progress.exit_code

    # From outside

    @property
    def seconds(self) -> float:
        """How long ago it was started."""
        return time.monotonic() - self._begun

    def ended(self, patience: float, stop: StopRequest) -> bool:
        """Whether it has ended, after waiting some seconds for that; a signal is passed on to it, once."""
        self._signal = stop.signal
        return self._over.wait(patience)

    def reason(self) -> str | None:
        """Why it failed, once it has ended; None: it did not fail."""
        if self._problem or self.lost:
            return self._problem or self.lost
        assert self._code is not None
        return self._log.reason(self._code)

    def last_lines(self, most: int) -> list[str]:
        """The last lines with words in them that came home so far."""
        return self._log.last_lines(most)

    def last_line(self) -> str:
        """The last of them."""
        return next(iter(self.last_lines(1)), "")
