"""The worked examples of CONTRIBUTING.md do what they say, applied to a copy of the package."""

import csv
import json
import sys
from pathlib import Path

import pytest

from helpers.processes import ROOT, rlcb, run
from helpers.run_directories import log_of, write_run
from helpers.worked_examples import WorkedExample, apply_example, patched, worked_examples

EXAMPLES = worked_examples()
TINY = ("--num-envs", "4", "--n-steps", "16", "--num-threads", "1")
MOST_FILES = {"an algorithm": 3, "a network": 1, "an environment family": 2}

# Two environments, one of which takes over the other's state, and one that goes on with some copies.
CONTINUE = """
import numpy as np
from rlcb.config.schema import EnvConfig
from rlcb.envs.families import make_env

one, other = (make_env(EnvConfig(name="corridor"), 3, seed=1, num_threads=0) for _ in range(2))
actions = np.array([1, 1, 0])
for _ in range(5):
    one.step(actions)
other.set_state(one.get_state())
for _ in range(40):
    here, there = one.step(actions), other.step(actions)
    for name in ("observations", "rewards", "dones"):
        assert np.array_equal(getattr(here, name), getattr(there, name)), name
    assert list(here.truncated) == list(there.truncated)
assert np.array_equal(other.only([2, 0]).observe(), one.observe()[[2, 0]])
assert one.frame().shape == (32, 256, 3)
"""


def test_examples_touch_few_files() -> None:
    assert set(EXAMPLES) == {*MOST_FILES, "a metric", "a column of the report"}
    for title, most in MOST_FILES.items():
        assert 1 <= len(EXAMPLES[title].files) <= most, title


@pytest.mark.parametrize("title", EXAMPLES)
def test_examples_keep_the_style_of_the_project(title: str, tmp_path: Path) -> None:
    source = apply_example(EXAMPLES[title], tmp_path)
    files = [str(source.parent / path) for path in EXAMPLES[title].files if path.endswith(".py")]
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    for verb in (["check"], ["format", "--check"]):
        done = run([sys.executable, "-m", "ruff", *verb, *options, *files])
        assert done.returncode == 0, done.stdout + done.stderr


def trained(example: WorkedExample, source: Path, number: int = 0) -> list[dict[str, object]]:
    """The log of the example's command, run with a small budget on the changed copy of the package."""
    command, output = example.commands[number], source.parent / f"run_{number}"
    sizes = (*TINY, "--total-timesteps", "512" if "parallel" in command else "256")
    done = rlcb(*command, *sizes, "--output-dir", output, env={"PYTHONPATH": str(source)})
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in log_of(output).read_text().splitlines()]


@pytest.mark.parametrize("number", [0, 1], ids=["sequential", "parallel"])
def test_the_algorithm_trains_in_both_modes(number: int, tmp_path: Path) -> None:
    example = EXAMPLES["an algorithm"]
    lines = trained(example, apply_example(example, tmp_path), number)
    assert len(lines) == 4
    assert all(isinstance(line[name], float) for line in lines for name in ("loss/policy", "loss/value"))


def test_the_network_trains(tmp_path: Path) -> None:
    example = EXAMPLES["a network"]
    assert len(trained(example, apply_example(example, tmp_path))) == 4


def test_the_environment_trains_and_continues_from_its_state(tmp_path: Path) -> None:
    example = EXAMPLES["an environment family"]
    source = apply_example(example, tmp_path)
    assert trained(example, source)[-1]["rollout/episodes"]
    done = run([sys.executable, "-c", CONTINUE], env={"PYTHONPATH": str(source)})
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_metric_is_logged(tmp_path: Path) -> None:
    example = EXAMPLES["a metric"]
    lines = trained(example, apply_example(example, tmp_path))
    assert all(0 <= line["gradient/clip_fraction"] <= 1 for line in lines)  # type: ignore[operator]


def test_the_column_is_in_the_report_and_the_metric_in_the_comparison(tmp_path: Path) -> None:
    source = apply_example(EXAMPLES["a column of the report"], tmp_path)
    for seed in (1, 2):
        write_run(tmp_path / "runs" / f"run_{seed}", seed=seed)
    done = rlcb("compare", tmp_path / "runs", "--output", tmp_path / "out", env={"PYTHONPATH": str(source)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Mean memory (GB)" in done.stdout
    assert "| Mean memory (GB)" in (tmp_path / "out" / "report.md").read_text()
    assert "Mean memory (GB)" in (tmp_path / "out" / "report.html").read_text()
    group = json.loads((tmp_path / "out" / "comparison.json").read_text())["sets"][0]["groups"][0]
    assert group["metrics"]["average_memory_gb"]["mean"] == 0.7
    with (tmp_path / "out" / "comparison.csv").open() as file:
        assert "average_memory_gb" in {row["metric"] for row in csv.DictReader(file)}


@pytest.mark.parametrize("text", ["a\nb\nc\n", "b\nx\nb\n"], ids=["no place", "two places"])
def test_a_change_must_fit_exactly_one_place(text: str) -> None:
    with pytest.raises(AssertionError, match="exactly once"):
        patched(text, " b\n+new\n" if text.count("b") > 1 else " b\n+new\n d\n")
