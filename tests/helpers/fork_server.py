"""A process that has imported the heavy packages and forks one process for every Python command it is asked for.

Importing torch takes longer than most of the runs in these tests. A forked process is a real one: it has its own
standard streams, folder, environment, session, signals and exit code, and runs what `python ARGUMENTS` would run;
so do the processes that it starts in turn (see forked_program.py). It differs from a new interpreter in this: packages
are imported already, so that variables which are read at import (PYTHONPATH, OMP_…) have no effect. Procgen is not
imported here, as it hangs after a fork, and nothing may have started a thread.

usage: python -m helpers.fork_server SOCKET PADDING; the padding makes room for other command lines
"""

import gc
import importlib
import json
import os
import signal
import socket
import struct
import sys
from typing import NoReturn

from helpers.forked_program import Program, run_program
from rlcb.signals import die_with

HEAVY = (
    "torch", "torch._dynamo", "torch.distributed", "gymnasium", "gymnasium.envs.classic_control", "psutil", "yaml",
    "pydantic", "rich.console", "rich.progress", "rlcb.cli", "rlcb.training", "tensorboard.summary.writer",
    "tensorboard.compat.proto", "matplotlib.figure", "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
)  # fmt: skip
STATUS = struct.Struct("i")  # the process id first, the wait status at the end


def load() -> None:
    """Import what commands need."""
    for name in HEAVY:
        importlib.import_module(name)
    gc.freeze()  # a collection in a forked process would else copy all the memory that it shares
    threads, loaded = os.listdir("/proc/self/task"), {"rlcb.envs.libenv"} & set(sys.modules)
    assert len(threads) == 1, f"{len(threads)} threads: forks would be unsafe"
    assert not loaded, loaded


def serve(requests: socket.socket) -> Program:
    """Fork for every request; returns in the forked processes alone, with what they are to run."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the processes that wait
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, 2**20, 4)
        if not data:
            sys.exit()  # the tests are over
        if os.fork() == 0:
            requests.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            *streams, status = descriptors
            child = os.fork()
            if child:
                wait_for(child, streams, status)
            os.close(status)
            return Program(**{**json.loads(data), "descriptors": dict(enumerate(streams))})
        for descriptor in descriptors:
            os.close(descriptor)


def wait_for(child: int, streams: list[int], status: int) -> NoReturn:
    """Tell who the child is and, later, how it ended."""
    for descriptor in (0, 1, 2, *streams):
        os.close(descriptor)  # whoever reads them waits for the child alone
    os.write(status, STATUS.pack(child))
    os.write(status, STATUS.pack(os.waitpid(child, 0)[1]))
    os._exit(0)


if __name__ == "__main__":
    die_with(os.getppid())
    with socket.socket(fileno=int(sys.argv[1])) as channel:
        load()
        channel.send(b"ready")
        program = serve(channel)
    run_program(program)
