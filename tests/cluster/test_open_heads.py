"""What a head really does counts, not the address that was typed: heads without a token, with one, with another."""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from helpers.cluster_runs import TWO, Begin, flags, needs_ray, wait_until
from helpers.processes import rlcb, wait_for_line

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("open heads")]


@contextmanager
def head(settings: dict[str, str]) -> Iterator[int]:
    """A head that listens on all interfaces, as Ray's do; yields its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mark = secrets.token_hex(8)
    ray = Path(sys.executable).with_name("ray")
    command = [ray, "start", "--head", "--port", str(port), "--num-cpus", "2", "--include-dashboard", "false"]
    options = ["--disable-usage-stats", "--object-store-memory", str(100 * 2**20)]
    # Not nicer than other tests, which would starve its workers.
    environment = {**os.environ, **settings, "RLCB_TEST_HEAD": mark, "RAY_worker_niceness": "0"}
    try:
        done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        yield port
    finally:
        for process in with_mark(mark):
            process.kill()


def with_mark(mark: str) -> list[psutil.Process]:
    """The processes that have this in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in Path(f"/proc/{process.pid}/environ").read_text():
                found.append(process)
        except OSError:
            continue
    return found


def mark_of(process: psutil.Process) -> str:
    """The name of the run's own cluster that a process belongs to, if it does."""
    with contextlib.suppress(psutil.Error):
        return process.environ().get("RLCB_LOCAL_CLUSTER", "")
    return ""


def listening(process: psutil.Process) -> list[str]:
    """The addresses that a process listens on."""
    with contextlib.suppress(psutil.Error):
        found = [one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
        return [one.laddr.ip.removeprefix("::ffff:") for one in found]
    return []


@pytest.fixture
def no_token(tmp_path: Path) -> dict[str, str]:
    """The environment of a machine without a token."""
    return {"HOME": str(tmp_path), "RAY_AUTH_TOKEN": "", "RAY_AUTH_TOKEN_PATH": "", "RAY_AUTH_MODE": "disabled"}


def test_heads_that_ask_for_no_token(no_token: dict[str, str], tmp_path: Path) -> None:
    needs_ray()
    with head(no_token) as port:
        given = [*flags("ppo", 3, tmp_path / "run", TWO), "--cluster", f"127.0.0.1:{port}"]
        rlcb(*given, env=no_token).assert_one_line_error(2, "requires no token", "all interfaces", "--insecure")
        token = {**no_token, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        rlcb(*given, env=token).assert_one_line_error(2, "this machine has a token", "requires none", "--insecure")
        assert not (tmp_path / "run").exists()
        for environment in (no_token, token):
            done = rlcb(*given, "--insecure", env=environment)
            assert done.returncode == 0, done.stdout + done.stderr


def test_a_head_that_asks_for_a_token_which_is_missing_here(no_token: dict[str, str], tmp_path: Path) -> None:
    needs_ray()
    with head({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}) as port:
        given = [*flags("ppo", 3, tmp_path / "run", TWO), "--cluster", f"127.0.0.1:{port}"]
        rlcb(*given, env=no_token).assert_one_line_error(4, "requires a token", "RAY_AUTH_TOKEN")


def test_a_cluster_of_this_machine_alone_listens_on_loopback_and_ends_with_its_driver(
    start: Begin, no_token: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs_ray()
    for name, value in no_token.items():
        monkeypatch.setenv(name, value)
    process = start(*flags("ppo", 10**5, tmp_path / "run", TWO), "--cluster", "local")
    wait_for_line(process, "Update 2 |")
    family = psutil.Process(process.pid).children(recursive=True)
    mark = next(filter(None, map(mark_of, family)))
    addresses = {address for one in family for address in listening(one)}
    assert addresses == {"127.0.0.1"}
    process.send_signal(signal.SIGKILL)
    wait_until(lambda: not with_mark(mark), seconds=30)


def test_a_ray_that_cannot_start_does_not_advise_to_resume(tmp_path: Path) -> None:
    needs_ray()
    # Ray ends the process that starts it when it cannot make its files.
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    done = rlcb(*flags("ppo", 3, tmp_path / "run", TWO), "--cluster", "local", env={"RAY_TMPDIR": str(blocked)})
    assert done.returncode == 4, done.stdout + done.stderr
    assert "--resume" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
