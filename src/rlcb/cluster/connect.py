"""Connecting to a Ray cluster, or starting one for a run; every attempt has a time limit and a reported reason."""

import contextlib
import json
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from types import FrameType

from rlcb import errors
from rlcb.cluster.address import Address, refuse_silent, resolved
from rlcb.cluster.reaper import kill_marked
from rlcb.cluster.security import TOKEN_WANTED, agree_on_token, has_token
from rlcb.config.schema import Config
from rlcb.errors import RlcbError, WorkersLost
from rlcb.hardware import usable_cpus
from rlcb.signals import CAUGHT, die_with, handlers_restored, take_over

_PATIENCE = 25.0  # seconds to connect in
_PATIENCE_TO_START = 180.0  # seconds to start a cluster on this machine in, which may be busy
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # and a warning about it that is of no concern here
    "RAY_worker_niceness": "0",  # of a cluster that is started for the run: its workers are no background work
    "RAY_task_actor_unavailable_retry_delay_base_ms": "50",  # a call that failed is repeated soon, not after seconds
    "RAY_task_actor_unavailable_retry_max_delay_ms": "1000",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",  # Ray ends the process then; this one notices earlier by itself
}
_TRIES_TO_START = 4
_LOOPBACK = "127.0.0.1"
_reapers: list["subprocess.Popen[bytes]"] = []
_guards: list[int] = []  # the pipe to the process that guards this one, if one does
MARK = "RLCB_LOCAL_CLUSTER"  # environment variable of all processes of a cluster that was started for a run


def prepare(cluster: str, insecure: bool) -> Address:
    """Set up this process for a cluster, before Ray is imported: it reads its settings only then."""
    address = resolved(cluster)
    refuse_silent(address)
    agree_on_token(address, insecure)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    if address.host is None:
        mode = {} if has_token() else {"RAY_AUTH_TOKEN": secrets.token_hex(32)}  # known to this run alone
        os.environ.update(mode, RAY_AUTH_MODE="token")
    return address


@contextlib.contextmanager
def connected(config: Config, address: Address) -> Iterator[Address]:
    """Be connected to a cluster; yields its head's address."""
    import ray

    workers = config.parallel.num_workers
    options: dict[str, object] = {"address": str(address)}
    if address.host is None:
        cores = max(usable_cpus(), workers if isinstance(workers, int) else 1)
        options = {"address": "local", "num_cpus": cores, "include_dashboard": False, "_node_ip_address": _LOOPBACK}
        # Ray would replace that by an address that can be reached from outside, and listen on all interfaces.
        ray._private.services.resolve_ip_for_localhost = lambda host: host
        _end_with_this_process()
    with _quiet() as stderr, _watchdog(address, stderr):
        try:
            # Ray would print every event of every node among this program's lines; they are in Ray's own logs.
            ray._private.worker.listen_error_messages = lambda *_: None
            ray._private.utils.set_sigterm_handler = lambda _: None  # what SIGTERM does is decided already
            _start(lambda: ray.init(**options, log_to_driver=False, logging_level=logging.ERROR, namespace="rlcb"))
        except Exception as error:  # Ray has no common class for these
            raise WorkersLost(f"--cluster {address}: {_reason(error)}") from None
    try:
        host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
        yield Address(host, int(port))
    except WorkersLost:
        raise  # taking leave of a cluster that is gone would take for ever; this process ends soon
    except BaseException:
        ray.shutdown()
        raise
    else:
        ray.shutdown()


def _start(init: Callable[[], object]) -> None:
    """Connect; a cluster that is being started on a busy machine gets several tries of the 30 s that Ray allows it."""
    for attempt in range(1, _TRIES_TO_START + 1):
        try:
            init()
            return
        except Exception as error:
            if "timed out during startup" not in str(error) or attempt == _TRIES_TO_START:
                raise
        kill_marked(os.environ[MARK], spared=[reaper.pid for reaper in _reapers])


def _end_with_this_process() -> None:
    """Have the cluster that is about to be started ended when this process ends, however that happens."""
    os.environ[MARK] = secrets.token_hex(16)
    command = [sys.executable, "-m", "rlcb.cluster.reaper", os.environ[MARK]]
    reaper = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    _reapers.append(reaper)  # its standard input is open for as long as this process lives


def _reason(error: Exception) -> str:
    """One line of what Ray says, with what to do about it."""
    text = " ".join(str(error).split())
    lower, cause = text.lower(), error.__cause__ or error.__context__
    while cause is not None:  # what it says last is that there is no connection; why is further down
        lower, cause = f"{lower} {cause}".lower(), cause.__cause__ or cause.__context__
    if "token" in lower or "authenticat" in lower:
        return TOKEN_WANTED
    if "version mismatch" in lower:
        return f"Ray or Python differ in version from the cluster; install the same on all machines ({text[:200]})"
    return text[:300]


@contextlib.contextmanager
def _quiet() -> Iterator[int]:
    """Keep what Ray's own code writes to stderr from it: its errors are told in one line. Yields the real stderr."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield kept
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextlib.contextmanager
def _watchdog(address: Address, stderr: int) -> Iterator[None]:
    """End the process if what is done meanwhile takes too long: Ray can wait for ever, deaf to everything."""

    def give_up() -> None:
        words = f"no connection in {patience:g} s; is it a Ray cluster, and is the token correct?"
        if address.host is None:
            words = f"Ray did not start in {patience:g} s; its logs are in /tmp/ray"
        error = WorkersLost(f"--cluster {address}: {words}")
        if not _guards:
            with contextlib.suppress(OSError):
                os.write(stderr, f"error: {error}\n".encode())
        _end(error.exit_code, _as_bytes(error))

    patience = _PATIENCE if address.host else _PATIENCE_TO_START
    timer = threading.Timer(patience, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(code: int, said: bytes) -> None:
    """Tell the process that guards this one, if one does, and end at once: Ray may wait for what is gone."""
    with contextlib.suppress(OSError):
        for pipe in _guards:
            os.write(pipe, said)
    os._exit(code)


def _as_bytes(error: RlcbError) -> bytes:
    """An expected failure as it crosses the pipe to the calling process: its class and its line."""
    return json.dumps([type(error).__name__, str(error)]).encode()


def guarded(work: Callable[[], int]) -> int | None:
    """Do the work in a process of its own and return its exit code; None if it was cut off in the middle.

    An expected failure there is raised here. Ray ends the process that uses it when this machine's part of the cluster
    is lost.
    """
    with handlers_restored():
        return _guarded(work)


def _guarded(work: Callable[[], int]) -> int | None:
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    here = os.getpid()
    # A signal that arrives while Python sets up the new process would be lost there.
    signal.pthread_sigmask(signal.SIG_BLOCK, CAUGHT)
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.setpgid(0, 0)  # Ctrl-C is for the other process, which passes it on
        die_with(here)
        _guards.append(writing)
        code, said = 1, b""
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)
            code, said = work(), b"."
        except SystemExit as end:  # one of them came at once
            code, said = end.code if isinstance(end.code, int) else 1, b"."
        except RlcbError as error:
            code, said = error.exit_code, _as_bytes(error)
        except BaseException:  # what follows the call in the program is for the other process alone
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        _end(code, said)
    os.close(writing)

    passed_on: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        passed_on.append(number)
        os.kill(child, number)

    take_over(pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, CAUGHT)
    with os.fdopen(reading, "rb") as pipe:
        finished = pipe.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if len(finished) > 1:
        name, text = json.loads(finished)
        raise getattr(errors, name)(text)
    if finished:
        return code
    return 128 + passed_on[-1] if passed_on else None
