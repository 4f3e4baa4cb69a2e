"""What every child process of a supervisor does first and last."""

import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from rlcb.errors import RlcbError
from rlcb.execution.messages import Failed
from rlcb.hardware import prepare_process
from rlcb.signals import die_with

if TYPE_CHECKING:
    from rlcb.comm.process_group import Control


def serve(work: "Callable[[Connection[Any, Any], Any, Control], None]") -> None:
    """Wait for the set-up, then work until the run ends or the supervisor does."""
    connection, control, size, parent = (int(word) for word in sys.argv[1:5])
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel: Connection[Any, Any] = Connection(connection)
    try:
        setup = channel.recv()
        prepare_process(setup.num_threads)
        import torch

        from rlcb.comm.process_group import Control

        torch.set_num_threads(setup.num_threads)
        work(channel, setup, Control(control, size))
    except RlcbError as error:
        channel.send(Failed(type(error).__name__, str(error), error.exit_code))
    except (EOFError, ConnectionError):
        os._exit(1)  # the supervisor is gone: nobody to tell
