"""`rlcb limits` for real, and the share of the limit in the summaries of runs."""

import json
import math
import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from helpers.in_process import rlcb_here
from helpers.processes import CARTPOLE, descendants, rlcb, wait_for_line
from rlcb.analysis.load import load_run
from rlcb.disturbance import verdict

SHORT = ("--rounds", "2", "--seconds", "0.05", "--accept-disturbed")
QUIET = ("--tensorboard", "false", "--total-timesteps", "512")
PARTS = ("env_steps_per_second", "acting_per_second", "training_samples_per_second")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where limits are kept; in this process nothing is measured long enough to be found disturbed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verdict, "SHORTEST", math.inf)
    return tmp_path / "cache" / "rlcb" / "limits.json"


def limits_in(file: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(file.read_text())["limits"]
    return found


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("ppo", ()),
        ("ppo", ("--mode", "parallel", "--num-workers", "2", "--num-envs", "4")),
        ("impala", ("--mode", "parallel", "--num-actors", "2", "--num-learners", "1", "--num-envs", "4")),
        ("a3c", ("--num-workers", "2", "--num-envs", "4")),
    ],
)
def test_limits_measures_prints_and_stores(file: Path, algorithm: str, words: tuple[str, ...]) -> None:
    small = ("--env", "CartPole-v1", "--n-steps", "32", "--num-threads", "1")
    sizes = ("--num-envs", "8") if not words else ()
    done = rlcb("limits", algorithm, *small, *sizes, *words, *SHORT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"Measuring {algorithm.upper()} ")
    for line, title in zip(lines[1:5], ("Environments alone", "Acting", "Training", "Attainable"), strict=True):
        found = re.fullmatch(rf" *{title}: ([\d,]+) (?:steps/s|samples/s|FPS) \(([\d,]+) to ([\d,]+)\)", line)
        assert found, line
        middle, low, high = (int(text.replace(",", "")) for text in found.groups())
        assert 0 < low <= middle <= high
    assert lines[5] == f"Stored: {file}"
    (entry,) = limits_in(file)
    assert entry["key"]["algorithm"] == algorithm
    assert all(entry["limit"][name] > 0 for name in ("fps", *PARTS))


def test_a_run_names_its_share_of_a_limit_that_is_known(file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert rlcb_here("limits", "ppo", *CARTPOLE, *SHORT).returncode == 0
    (entry,) = limits_in(file)
    done = rlcb_here("train", "ppo", *CARTPOLE, *QUIET, "--output-dir", run)
    assert done.returncode == 0, done.stderr
    fps = entry["limit"]["fps"]
    line = re.search(r"^  Speed: (\d+) % of the limit of this machine \(([\d,]+) FPS\)$", done.stdout, re.MULTILINE)
    assert line, done.stdout
    assert line[2] == f"{fps:,.0f}"
    metrics = json.loads((run / "benchmark_metrics.json").read_text())
    limit = metrics["limit"]
    log = (run / "logs" / "PPO_Sequential" / "metrics.jsonl").read_text().splitlines()
    first, last = json.loads(log[0]), json.loads(log[-1])
    steady = (last["step"] - first["step"]) / (last["time"] - first["time"])
    assert limit == {**entry["limit"], "fraction": pytest.approx(steady / fps)}
    assert line[1] == f"{100 * limit['fraction']:.0f}"
    assert json.loads((run / "training_summary.json").read_text())["limit"] == limit
    assert load_run(run).metrics.limit_fraction == limit["fraction"]
    compared = rlcb_here("compare", run, "--output", tmp_path / "comparison")
    assert re.search(rf"^Share of machine limit \(%\) +{line[1]}$", compared.stdout, re.MULTILINE)
    assert "Share of machine limit (%)" in (tmp_path / "comparison" / "report.md").read_text()


def test_a_short_run_without_a_limit_prints_the_command_that_measures_it(file: Path, tmp_path: Path) -> None:
    run = tmp_path / "a run"  # must be quoted
    arguments = ("train", "a2c", "--mode", "parallel", "--num-workers", "2", "--num-envs", "4", "--n-steps", "32")
    done = rlcb_here(*arguments, "--env", "CartPole-v1", *QUIET, "--output-dir", run)
    assert done.returncode == 0, done.stderr
    assert json.loads((run / "benchmark_metrics.json").read_text())["limit"] is None
    assert load_run(run).metrics.limit_fraction is None
    assert not file.exists()
    program, *words = shlex.split(
        done.stdout.split("Limit of this machine: not measured; to measure it: ")[1].splitlines()[0]
    )
    assert program == "rlcb"
    assert rlcb_here(*words, *SHORT).returncode == 0
    again = rlcb_here(*arguments, "--env", "CartPole-v1", *QUIET, "--output-dir", tmp_path / "again")
    assert "% of the limit of this machine" in again.stdout


def test_a_long_run_measures_its_limit_once(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlcb.limits import report

    monkeypatch.setattr(report, "_LONG_RUN", 0.0)
    monkeypatch.setattr(report, "_SECONDS_AFTER_A_RUN", 0.05)
    measure, states = report._measured, []

    def measured(*arguments: Any) -> Any:
        states.append(json.loads((tmp_path / "run" / "benchmark_metrics.json").read_text())["status"])
        return measure(*arguments)

    monkeypatch.setattr(report, "_measured", measured)
    done = rlcb_here("train", "ppo", *CARTPOLE, *QUIET, "--output-dir", tmp_path / "run")
    assert states == ["finished"]  # whatever happens while it is measured, the run is complete
    assert "Measuring the limit of this machine" in done.stdout
    assert "% of the limit of this machine" in done.stdout
    assert len(limits_in(file)) == 1
    again = rlcb_here("train", "ppo", *CARTPOLE, *QUIET, "--output-dir", tmp_path / "again")
    assert "Measuring" not in again.stdout
    assert "% of the limit of this machine" in again.stdout


def test_a_measurement_that_fails_is_a_warning(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlcb.limits import report

    monkeypatch.setattr(report, "_LONG_RUN", 0.0)
    monkeypatch.setattr(report, "_TIMEOUT_AFTER_A_RUN", 0.0)
    run = tmp_path / "run"
    done = rlcb_here("train", "ppo", *CARTPOLE, *QUIET, "--output-dir", run)
    assert done.returncode == 0
    assert done.stderr.count("warning: the limit of this machine could not be measured: ") == 1
    assert "Limit of this machine: not measured; to measure it: rlcb limits ppo --mode sequential" in done.stdout
    metrics = json.loads((run / "benchmark_metrics.json").read_text())
    assert (metrics["status"], metrics["limit"]) == ("finished", None)


@pytest.mark.parametrize(("high", "noted"), [(1200.0, False), (1300.0, True)])
def test_rounds_that_differ_much_are_noted(
    high: float, noted: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlcb.limits import report
    from rlcb.limits.formula import Limit

    found = [Limit(fps, 1.0, 1.0, 1.0, "2030-01-02T03:04:05+00:00") for fps in (1000.0, 1100.0, high)]
    monkeypatch.setattr(report, "_measured", lambda *_: (found, verdict.Disturbance()))
    done = rlcb_here("limits", "ppo", *CARTPOLE)
    assert f"Attainable: 1,100 FPS (1,000 to {high:,.0f})" in done.stdout
    assert ("note: the repetitions differ widely" in done.stderr) == noted
    assert limits_in(file)[0]["limit"]["fps"] == 1100


@pytest.mark.parametrize(
    ("answers", "more", "code", "words"),
    [
        ((True, False), (), 0, "measuring again"),
        ((True, True), (), 6, "nothing was stored; repeat on a quiet machine"),
        ((True,), ("--accept-disturbed",), 0, "the measured values are probably too low"),
    ],
)
def test_nothing_is_concluded_from_a_measurement_that_was_disturbed_twice(
    answers: tuple[bool, ...],
    more: tuple[str, ...],
    code: int,
    words: str,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from rlcb.limits import report
    from rlcb.limits.formula import Limit

    found = [Limit(1000.0, 1.0, 1.0, 1.0, "2030-01-02T03:04:05+00:00")] * 3
    left = [(found, verdict.Disturbance(disturbed, others_percent=48.0)) for disturbed in answers]
    monkeypatch.setattr(report, "_measured", lambda *_: left.pop(0))
    done = rlcb_here("limits", "ppo", *CARTPOLE, *more)
    assert done.returncode == code
    assert not left
    assert "disturbed: other programs used 48 % of the cores" in done.stderr
    assert words in done.stderr
    assert file.exists() == (code == 0)


def test_a_limit_that_was_disturbed_after_a_run_is_not_known(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlcb.limits import report
    from rlcb.limits.formula import Limit

    found = [Limit(1000.0, 1.0, 1.0, 1.0, "2030-01-02T03:04:05+00:00")] * 3
    monkeypatch.setattr(report, "_LONG_RUN", 0.0)
    monkeypatch.setattr(report, "_measured", lambda *_: (found, verdict.Disturbance(True, others_percent=48.0)))
    done = rlcb_here("train", "ppo", *CARTPOLE, *QUIET, "--output-dir", tmp_path / "run")
    assert done.returncode == 0
    said = "the limit of this machine is unknown: the measurement was disturbed: other programs used 48 %"
    assert f"warning: {said}" in done.stderr
    assert json.loads((tmp_path / "run" / "benchmark_metrics.json").read_text())["limit"] is None
    assert not file.exists()


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = rlcb_here("limits", "ppo", *CARTPOLE, *SHORT)
    assert done.returncode == 0
    assert "Attainable: " in done.stdout
    assert "warning: not stored: " in done.stderr
    trained = rlcb_here("train", "ppo", *CARTPOLE, *QUIET, "--output-dir", tmp_path / "run")
    assert trained.returncode == 0


def test_an_interrupted_run_says_nothing_of_limits(
    file: Path, tmp_path: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    arguments = ("train", "ppo", *CARTPOLE, "--tensorboard", "false", "--duration", "1", "--output-dir")
    process = start(*arguments, tmp_path / "run")
    wait_for_line(process, "Update 1 ")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert "Limited by: " in out
    assert "imit of this machine" not in out


def measures(process: psutil.Process) -> bool:
    """Whether this is one of the processes that measure; what has just ended is none."""
    try:
        return "limit_worker" in process.cmdline()
    except psutil.Error:
        return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_measurement_that_is_broken_off(
    number: int, file: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start("limits", "ppo", *CARTPOLE, "--rounds", "1000")
    wait_for_line(process, "Measuring PPO")
    workers: list[psutil.Process] = []
    while not workers:
        workers = [one for one in descendants(process.pid) if measures(one)]
        assert process.poll() is None
    process.send_signal(number)
    process.communicate(timeout=120)
    assert process.returncode in (128 + number, -number)
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert not alive
    assert not file.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--seconds", "0"), "'0' is not a number above 0 up to 600"),
        (("--seconds", "inf"), "'inf' is not a number"),
        (("--rounds", "0"), "'0' is not a whole number from 1 to 1000"),
        (("a3c", "--mode", "sequential"), "--mode sequential: a3c only has parallel mode"),
        (("--mode", "parallel", "--num-workers", "2", "--cluster", "local"), "--cluster local: "),
        (("ppo", "--num-env", "8"), "unknown argument --num-env; did you mean --num-envs?"),
        (("--network", "x"), "--network: 'x' is not valid"),
        (("--config", "missing.yaml"), "missing.yaml"),
    ],
)
def test_wrong_input_is_refused_in_a_line(words: tuple[str, ...], message: str) -> None:
    rlcb_here("limits", *words).assert_one_line_error(2, message)


def test_a_limit_in_a_foreign_run_is_checked(copy: Path) -> None:
    path = copy / "benchmark_metrics.json"
    content = json.loads(path.read_text())
    for limit, fraction, wrong in (
        ({"fraction": 0.5}, 0.5, False),
        ({"fraction": "half"}, None, True),
        ({"fraction": [1]}, None, True),
        ({"fraction": float("inf")}, None, True),
        ({}, None, False),
        ("half", None, False),
        ([0.5], None, False),
    ):
        path.write_text(json.dumps({**content, "limit": limit}))
        (copy / "training_summary.json").unlink(missing_ok=True)
        run = load_run(copy)
        assert run.metrics.limit_fraction == fraction
        assert any("limit_fraction" in problem for problem in run.problems) == wrong
    del content["limit"]
    path.write_text(json.dumps(content))
    assert load_run(copy).metrics.limit_fraction is None
