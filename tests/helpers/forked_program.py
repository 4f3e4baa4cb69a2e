"""What a forked process does to be the Python program that was asked for, and how it starts others in the same way.

The program may itself start Python programs of this package with `subprocess.Popen`: workers of a parallel run, runs
of a suite, trials of the tuner. They are forked too, from a template: a fork of the process that was made before its
program began, so that it has neither threads nor Procgen. The template's forks must be children of the program, which
waits for them and whose death must end them. So the template forks twice and its own child exits at once: the
grandchild is then adopted by the nearest ancestor that is a child subreaper, and that is the program.
"""

import atexit
import ctypes
import fcntl
import inspect
import json
import os
import runpy
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from rlcb.signals import die_with

PR_SET_CHILD_SUBREAPER = 36
PID = struct.Struct("i")
_fork = os.fork


@dataclass(frozen=True)
class Program:
    """`python ARGUMENTS` in a folder, with an environment and open descriptors {number there: number here}."""

    arguments: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    new_session: bool = False
    process_group: int = -1
    descriptors: Mapping[int, int] = field(default_factory=dict)


class Replaced(BaseException):
    """The program has called os.execv: another one goes on in its process."""


def run_program(program: Program) -> NoReturn:
    """Be the process that was asked for, then run the program as the interpreter would."""
    show_command_line(program.arguments)
    arrange(program.descriptors)
    if program.new_session:
        os.setsid()
    elif program.process_group >= 0:
        os.setpgid(0, program.process_group)
    os.chdir(program.folder)
    os.environ.clear()
    os.environ.update(program.environment)
    if hasattr(ForkingPopen, "template"):
        ForkingPopen.template.detach()  # its number is another file's from here on
    if len(program.descriptors) <= 3:  # a worker, which is given shared memory, starts nobody
        ForkingPopen.template = start_template()
        subprocess.Popen = ForkingPopen  # type: ignore[misc]
        os.fork = fork
    os.execv = replace  # type: ignore[assignment]
    arguments = list(program.arguments)
    while True:
        try:
            interpret(arguments)
        except Replaced as other:
            arguments = list(other.args)
            show_command_line(arguments)
        except SystemExit as end:
            leave(end.code)
        else:
            leave(None)


def show_command_line(arguments: Sequence[str]) -> None:
    """Have /proc, and so psutil, show this process's arguments in place of those of the process it was forked from.

    Where the last byte of the arguments' memory is not 0 the kernel shows the text up to the first 0 (setproctitle).
    """
    words = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
    start, end = int(words[45]), int(words[46])  # arg_start and arg_end, the fields 48 and 49
    text = " ".join((sys.executable, *arguments)).encode()[: end - start - 2]
    ctypes.memmove(start, text.ljust(end - start - 1, b"\0") + b"x", end - start)


def arrange(descriptors: Mapping[int, int]) -> None:
    """Leave these descriptors open, under these numbers, and no others."""
    above = max(descriptors) + 1
    moved = {number: fcntl.fcntl(given, fcntl.F_DUPFD, above) for number, given in descriptors.items()}
    for number, given in moved.items():
        os.dup2(given, number)
    numbers = sorted(descriptors)
    for number, following in zip(numbers, [*numbers[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(number + 1, following)


def interpret(arguments: Sequence[str]) -> None:
    """Run `python ARGUMENTS`."""
    kind, *rest = arguments
    if kind == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = [kind, *rest], str(Path(kind).resolve().parent)
        runpy.run_path(kind, run_name="__main__")


def leave(code: object) -> NoReturn:
    """End as the interpreter would, but without taking every object apart, which takes a second with torch."""
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


def replace(path: str, arguments: Sequence[str]) -> NoReturn:
    """os.execv, for another Python program."""
    assert path == sys.executable, path
    raise Replaced(*arguments[1:])


def fork() -> int:
    """os.fork, for a program: what the new process starts must be its own children, so it gets its own template."""
    child = _fork()
    if child == 0:
        ForkingPopen.template = start_template()
    return child


def start_template() -> socket.socket:
    """Fork the template of this process; returns the channel to it."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = os.getpid()
    if _fork() == 0:
        os.setpgid(0, 0)  # Ctrl-C is not for this process
        die_with(program)
        ours.close()
        show_command_line(["template", "of", str(program)])
        run_program(fork_for_each(theirs))
    theirs.close()
    return ours


def fork_for_each(requests: socket.socket) -> Program:
    """Fork twice for every request; returns in the grandchildren alone, with what they are to run."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, 2**20, 64)
        if not data:
            os._exit(0)
        reading, writing = os.pipe()
        child = _fork()
        if child == 0:
            parent, grandchild = os.getpid(), _fork()
            if grandchild:
                os.write(writing, PID.pack(grandchild))
                os._exit(0)
            while os.getppid() == parent:
                time.sleep(0.001)
            requests.detach()
            content = json.loads(data)
            numbers = content.pop("numbers")
            return Program(**content, descriptors=dict(zip(numbers, descriptors, strict=True)))
        os.waitpid(child, 0)  # from here on the grandchild is the program's child
        requests.send(os.read(reading, PID.size))
        for descriptor in (reading, writing, *descriptors):
            os.close(descriptor)


def is_ours(arguments: Sequence[str]) -> bool:
    """Whether this is a module of the package or a program of the tests."""
    if arguments[0] == "-m":
        return arguments[1].partition(".")[0] == "rlcb"
    return Path(arguments[0]).parent == Path(__file__).parent


class ForkingPopen(subprocess.Popen[Any]):
    """subprocess.Popen, which has the template fork the programs of this package and of the tests."""

    template: socket.socket

    def _execute_child(self, *given: Any) -> None:
        call = inspect.signature(super()._execute_child).bind(*given).arguments  # type: ignore[misc]
        command = [os.fspath(word) for word in call["args"]]
        if command[0] != sys.executable or not is_ours(command[1:]):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        pipes = [call[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]
        content = {
            "arguments": command[1:], "folder": os.fspath(call["cwd"] or os.getcwd()),
            "environment": dict(os.environ if call["env"] is None else call["env"]),
            "new_session": call["start_new_session"], "process_group": call["process_group"],
            "numbers": [0, 1, 2, *call["pass_fds"]],
        }  # fmt: skip
        socket.send_fds(self.template, [json.dumps(content).encode()], [*streams, *call["pass_fds"]])
        (self.pid,) = PID.unpack(self.template.recv(PID.size))
        self._child_created = True
        both_ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(call[name] for name in both_ends))  # type: ignore[attr-defined]
