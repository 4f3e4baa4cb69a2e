"""What a new process loads and sets, and in which order."""

import os
import subprocess
import sys

import pytest

from helpers.processes import ROOT, run
from rlcb.hardware import usable_cpus


def test_affinity_counts() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this process may use one core only: nothing to take away")
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    code += "; from rlcb.hardware import usable_cpus; print(usable_cpus())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1"
    assert usable_cpus() >= 1


def test_threads_are_set_before_torch_loads() -> None:
    code = "from rlcb.hardware import prepare_process; assert prepare_process(1) == 1; import torch"
    code += "; print(torch.get_num_threads())"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "1"


@pytest.mark.parametrize(("given", "expected"), [(None, "passive"), ("active", "active")])
def test_waiting_threads_sleep_unless_the_user_wants_otherwise(given: str | None, expected: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": given} if given else {}
    code = "import os; from rlcb.hardware import prepare_process; prepare_process(1)"
    code += "; print(os.environ['OMP_WAIT_POLICY'])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True, env=environment).strip() == expected


@pytest.mark.parametrize(
    ("package", "heavy"),
    [
        ("analysis", ("torch", "procgen", "scipy", "matplotlib", "jinja2", "rlcb.report")),
        ("report", ("torch", "procgen", "scipy", "matplotlib")),
    ],
)
def test_reading_runs_needs_no_trainer(package: str, heavy: tuple[str, ...]) -> None:
    code = f"""
import importlib, pkgutil, sys
package = importlib.import_module("rlcb.{package}")
for module in pkgutil.iter_modules(package.__path__, "rlcb.{package}."):
    importlib.import_module(module.name)
print(sorted({{*{heavy}}} & {{*sys.modules}}))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


COMMANDS = (
    ["-m", "rlcb"], ["-m", "rlcb", "train"], ["-m", "rlcb", "doctor"],
    ["train_timed.py"], ["train_ppo_sequential.py"], ["train_impala_parallel_timed.py"], ["quick_test.py"],
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_needs_none_of_the_heavy_packages(command: list[str]) -> None:
    code = f"import sys, runpy; sys.argv = {[*command, '--help']!r}"
    code += "; sys.argv.pop(0)" if command[0] == "-m" else ""
    runner = f"runpy.run_module({command[1]!r}, run_name='__main__')" if command[0] == "-m" else None
    runner = runner or f"runpy.run_path({command[0]!r}, run_name='__main__')"
    code += f"\ntry:\n  {runner}\nexcept SystemExit as end:\n  assert end.code == 0, end.code\n"
    code += "heavy = {'torch', 'procgen', 'matplotlib', 'tensorboard', 'rich', 'gymnasium'} & set(sys.modules)\n"
    code += "assert not heavy, heavy"
    done = run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


def test_a_wrong_name_is_answered_before_anything_heavy_is_loaded() -> None:
    code = "import sys; from rlcb.cli import main; code = main(['train', 'ppo', '--env', 'coinrn'])"
    done = run([sys.executable, "-c", f"{code}; assert 'torch' not in sys.modules; sys.exit(code)"])
    done.assert_one_line_error(2, "did you mean coinrun")
