"""What runs as a fork in these tests does what a new interpreter would do."""

import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from helpers.forked import ForkedProcess
from helpers.processes import ROOT, python, run

PROGRAMS = {
    "output": "import sys; print('out'); print('err', file=sys.stderr)",
    "arguments": "import sys; print(sys.argv)",
    "exit code": "import sys; sys.exit(3)",
    "exit with words": "import sys; sys.exit('words')",
    "exception": "raise ValueError('words')",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "interrupted": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "at exit": "import atexit; atexit.register(print, 'last'); print('first')",
    "a thread": "import threading, time; threading.Thread(target=lambda: (time.sleep(0.2), print('done'))).start()",
    "environment": "import os; print(os.environ['GIVEN'], os.environ.get('OMP_NUM_THREADS'))",
    "folder": "import os, sys; print(os.getcwd(), sys.path[0], sys.stdin.read())",
    "descriptors": "import os; print(sorted(os.listdir('/proc/self/fd'))[:3])",
    "replaced": "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'print(1); raise SystemExit(4)'])",
    "children": "import subprocess, sys; command = [sys.executable, '-m', 'rlcb', '--version']\n"
    "print(subprocess.run(command, capture_output=True, text=True))\n"
    "child = subprocess.Popen([*command[:-1], 'train', 'dqn'], stderr=subprocess.DEVNULL)\n"
    "print(child.wait(), subprocess.run(['false']).returncode)",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_fork_is_like_a_new_interpreter(name: str, tmp_path: Path) -> None:
    words, given = ("-c", PROGRAMS[name], "--a", "b c"), {"GIVEN": "here"}
    forked = python(*words, env=given, cwd=tmp_path)
    real = run([sys.executable, *words], env=given, cwd=tmp_path)
    assert forked.returncode == real.returncode
    assert forked.stdout == real.stdout
    assert forked.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


def test_signals_sessions_and_command_lines_are_those_of_the_program() -> None:
    process = ForkedProcess(["-c", "import time; print('up', flush=True); time.sleep(60)"], ROOT, os.environ, True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
        assert psutil.Process(process.pid).cmdline()[:2] == [sys.executable, "-c"]
        assert process.poll() is None
        family = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(timeout=60) == -signal.SIGTERM
        assert psutil.wait_procs(family, timeout=60)[1] == []  # what it was to fork from has gone with it
    finally:
        process.kill()
        process.communicate()


def test_nothing_is_loaded_before_the_fork_that_must_not_be() -> None:
    code = "import os, sys; print('torch' in sys.modules, 'procgen' in sys.modules, len(os.listdir('/proc/self/task')))"
    assert python("-c", code).stdout.split() == ["True", "False", "1"]
