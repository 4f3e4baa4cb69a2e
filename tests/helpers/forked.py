"""Python commands as forks of a process that has imported the heavy packages (see fork_server.py)."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from select import select
from threading import Thread

from helpers.fork_server import STATUS

PADDING = "." * 3000  # room for the command lines of the forked processes


@cache
def fork_server() -> socket.socket:
    """The server of this test process, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A token would make it one of a cluster's processes, all of which are killed in the end.
    here = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    with theirs:
        subprocess.Popen(
            [sys.executable, "-m", "helpers.fork_server", str(theirs.fileno()), PADDING],
            cwd=Path(__file__).parents[1], pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL,
            env={**here, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"},
        )  # fmt: skip
    assert ours.recv(16) == b"ready", "the fork server did not start"
    return ours


class ForkedProcess(subprocess.Popen[str]):
    """What `subprocess.Popen([python, *arguments], …)` would be, with pipes for both outputs."""

    def __init__(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str], start_new_session: bool = False
    ):
        self.args, self.returncode, self.stdin = [sys.executable, *arguments], None, None  # type: ignore[assignment]
        pipes = [os.pipe() for _ in range(3)]
        content = {
            "arguments": list(arguments), "folder": str(folder), "environment": dict(environment),
            "new_session": start_new_session,
        }  # fmt: skip
        with open(os.devnull) as nothing:
            descriptors = [nothing.fileno(), *(writing for _, writing in pipes)]
            socket.send_fds(fork_server(), [json.dumps(content).encode()], descriptors)
        for _, writing in pipes:
            os.close(writing)
        out, err, self._status = (reading for reading, _ in pipes)
        self.stdout, self.stderr = os.fdopen(out, encoding="utf-8"), os.fdopen(err, encoding="utf-8")
        (self.pid,) = STATUS.unpack(os.read(self._status, STATUS.size))

    def poll(self) -> int | None:
        """The exit code, or None as long as the process runs."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process."""
        code = self._ended_within(timeout)
        if code is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return code

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """What is left of both outputs, and the end of the process."""
        assert input is None
        deadline = None if timeout is None else time.monotonic() + timeout
        found = {"out": "", "err": ""}

        def read(name: str, stream: object) -> None:
            found[name] = "" if stream.closed else stream.read()  # type: ignore[attr-defined]

        readers = [Thread(target=read, args=pair, daemon=True) for pair in (("out", self.stdout), ("err", self.stderr))]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if deadline is None else max(deadline - time.monotonic(), 0))
            if reader.is_alive():
                assert timeout is not None
                raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(None if deadline is None else max(deadline - time.monotonic(), 0))
        self.stdout.close()
        self.stderr.close()
        return found["out"], found["err"]

    def send_signal(self, sig: int) -> None:
        """Send a signal to the process if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, sig)

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select([self._status], [], [], seconds)[0]:
            (status,) = STATUS.unpack(os.read(self._status, STATUS.size))
            os.close(self._status)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode
