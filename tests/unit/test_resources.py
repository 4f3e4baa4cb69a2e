"""Memory of real processes: what they share counts once; and what is said of GPUs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlcb.hardware import Memory, describe_gpus, memory_of
from rlcb.run.resources import MemoryProbe, ResourceMeter

MB = 2**20
_SHARED = 64 * MB
_CHILD = """
import mmap, sys
memory = mmap.mmap(int(sys.argv[1]), int(sys.argv[2]))
sum(memory[::4096])  # every page is there now
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def sharing(count: int) -> Iterator[list[psutil.Process]]:
    """Processes that have the same memory mapped."""
    descriptor = os.memfd_create("shared")
    os.posix_fallocate(descriptor, 0, _SHARED)
    command = [sys.executable, "-c", _CHILD, str(descriptor), str(_SHARED)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "pass_fds": (descriptor,)}
    children = [subprocess.Popen(command, **pipes) for _ in range(count)]
    try:
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
        yield [psutil.Process(child.pid) for child in children]
    finally:
        for child in children:
            child.communicate()
        os.close(descriptor)


def test_shared_pages_count_once_in_pss() -> None:
    with sharing(4) as processes:
        total = sum((memory_of(process) for process in processes), Memory())
    assert total.rss > 4 * _SHARED
    assert total.pss is not None
    assert _SHARED < total.pss < 2 * _SHARED


def test_the_meter_measures_pss_of_the_tree() -> None:
    with sharing(4):
        meter = ResourceMeter()
        used, _ = meter.sample()
        tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
        rss = sum(process.memory_info().rss for process in tree)
    totals = meter.totals()
    assert totals["memory_measure"] == "pss"
    assert totals["peak_memory_gb"] == pytest.approx(used, abs=0.001)
    assert used * 2**30 < rss - 2 * _SHARED


def test_without_pss_everything_is_rss() -> None:
    away = Memory(rss=300 * MB, pss=None)  # of a node whose kernel does not tell
    meter = ResourceMeter(lambda: (away, 0.0))
    assert meter.measure == "pss"
    used, _ = meter.sample()
    totals = meter.totals()
    assert totals["memory_measure"] == "rss"
    assert totals["peak_memory_gb"] == pytest.approx(used, abs=0.001)
    assert used * 2**30 > 300 * MB + 0.9 * psutil.Process().memory_info().rss


def test_a_process_that_nobody_has_waited_for_is_no_reason_to_give_up_pss() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert memory_of(psutil.Process(child.pid)) == Memory(0, 0)
    child.wait()


def test_looking_at_memory_is_not_repeated_at_once() -> None:
    looks = []

    def processes() -> list[psutil.Process]:
        looks.append(1)
        return [psutil.Process()] * 20

    probe = MemoryProbe(processes)
    first = probe()
    assert [probe() for _ in range(3)] == [first] * 3
    assert len(looks) == 1
    assert first.pss


def test_gpus_as_the_driver_tells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert describe_gpus(tmp_path / "none") == {"gpus": [], "gpu_driver": None}
    for number in (0, 1):
        folder = tmp_path / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   \t\t 42\n")
    words = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (x@y)\nGCC version: 12\n"
    )
    (tmp_path / "version").write_text(words)
    assert describe_gpus(tmp_path) == {"gpus": ["NVIDIA H200"] * 2, "gpu_driver": "570.124.06"}


def test_gpus_as_nvidia_smi_tells_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA GeForce RTX 4090, 535.54.03'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert describe_gpus(tmp_path / "a") == {"gpus": ["NVIDIA GeForce RTX 4090"], "gpu_driver": "535.54.03"}
    program.write_text("#!/bin/sh\necho 'No devices were found' >&2; exit 9\n")
    assert describe_gpus(tmp_path / "b") == {"gpus": [], "gpu_driver": None}
