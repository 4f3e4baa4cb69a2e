"""Failures of the user's own code during a run as one line: what it raised and where, with the traceback as text."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import TracebackType

from rlcb.console import warn
from rlcb.envs.base import NotFinite
from rlcb.envs.own_code import described, is_ours, module_name, module_of
from rlcb.errors import Diverged, OwnCodeFailed, ResourceError, RlcbError
from rlcb.files import write_whole
from rlcb.run.gpu_failures import is_gpu_failure

TRACEBACK = "traceback.txt"  # in a run's directory
_ENVIRONMENTS = "rlcb.envs.gymnasium"  # the module that calls environments of others
_NETWORKS = ("rlcb.networks.computation", "rlcb.evaluation.play")  # those that call networks
_GRADIENTS = "rlcb.learner"  # calls much of torch: only what passes through the network's module is the network's


@contextmanager
def own_failures(env: str, network: str) -> Iterator[None]:
    """Turn exceptions of an environment, or of a network `module:Class`, into OwnCodeFailed; NotFinite into Diverged.

    Whose fault an exception is follows from its traceback: which of our modules called what failed. So nothing has to
    be caught where environments and networks are called, and a program's own callbacks are not taken for either.
    """
    try:
        yield
    except RlcbError:
        raise
    except NotFinite as error:
        raise Diverged(f"environment {env} {error}") from None
    except (Exception, SystemExit) as error:  # somebody else's code may raise anything
        ended = isinstance(error, SystemExit) and _raised_here(error)  # a signal came
        found = None if ended or is_gpu_failure(error) else _origin(error, module_of(network))
        if found is None:
            raise
        kind, begin = found
        who = f"environment {env}" if kind == "environment" else f"network {network}"
        line = f"{who} failed with {described(error, begin)}; the fault is in the {kind}, not in rlcb"
        text = "".join(traceback.format_exception(type(error), error, begin))
        raise OwnCodeFailed(line, kind, text) from error


def _origin(error: BaseException, network: str | None) -> tuple[str, TracebackType] | None:
    """What failed, environment or network, and its part of the traceback; None: neither.

    `network`: the module of the user's network, if it is not one of this program.
    """
    begin = error.__traceback__
    while begin is not None:
        name, following = module_name(begin.tb_frame), begin.tb_next
        if name == _ENVIRONMENTS:
            return "environment", begin
        if network and following and not is_ours(following.tb_frame) and _calls_network(name, following, network):
            return "network", begin
        begin = following
    return None


def _raised_here(error: BaseException) -> bool:
    """Whether the innermost line that an exception passed through is one of this program."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return is_ours(frames[-1])


def _calls_network(caller: str, called: TracebackType, module: str) -> bool:
    """Whether what one of our modules called, as the traceback shows it, is the network of this module."""
    names = [module_name(frame) for frame, _ in traceback.walk_tb(called)]
    passed = any(name == module or name.startswith(f"{module}.") for name in names)
    return caller in _NETWORKS or (caller == _GRADIENTS and passed)


def write_traceback(path: Path, failure: OwnCodeFailed) -> str:
    """Write the traceback to a file; returns where it is, for the end of the failure's line, empty if it is nowhere."""
    said = f"{datetime.now().astimezone().isoformat(timespec='seconds')} {failure}\n\n{failure.traceback}"
    try:
        write_whole(path, said.encode(errors="replace"))
    except ResourceError as error:
        warn(f"the traceback could not be written: {error}")
        return ""
    return f"; traceback in {path}"
