"""docs/python.md: its code runs as it stands, in one program, and is accepted by a strict type checker."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.processes import ROOT, run

TEXT = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE)
PANDAS = "# needs pandas\n"


def test_the_page_runs_as_it_stands(tmp_path: Path) -> None:
    has_pandas = importlib.util.find_spec("pandas") is not None
    parts = [block for block in BLOCKS if has_pandas or not block.startswith(PANDAS)]
    assert len(BLOCKS) - len(parts) == (0 if has_pandas else 1)
    (tmp_path / "page.py").write_text("\n".join(parts))
    done = run([sys.executable, "page.py"], timeout=550, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "unknown argument num_worker; did you mean num_workers?\n" in done.stdout
    assert "unfinished interrupted at step" in done.stdout
    assert (tmp_path / "comparison" / "report.html").is_file()
    assert (tmp_path / "suite" / "report" / "report.html").is_file()
    assert not {"error", "Traceback"} & {*done.stderr.split()}


def test_a_strict_type_checker_knows_the_types(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text("""
import rlcb
run: rlcb.Run = rlcb.train("ppo", env="CartPole-v1", num_workers="auto", duration="30m", on_update=print)
fps: float | None = run.metrics.average_fps
runs: rlcb.Runs = rlcb.load_runs("runs", run.path)
label: str = rlcb.compare(runs, output=None).comparison.sets[0].groups[0].label
rewards: tuple[float, ...] = rlcb.evaluate(run, levels="both").results[0].rewards
rlcb.train("ppo", num_worker=3)
rlcb.train("ppo", num_envs="three")
rlcb.evaluate(run, levels="all")
rlcb.compare(runs, reward_treshold=3)
""")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--cache-dir={ROOT / '.mypy_cache'}"]
    options = ["--config-file", str(ROOT / "pyproject.toml"), str(tmp_path / "user.py")]
    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, timeout=550, check=False)
    wrong = re.findall(r"user\.py:(\d+): error: (.*?) ", done.stdout)
    assert [line for line, _ in wrong] == ["8", "9", "10", "11"], done.stdout + done.stderr
