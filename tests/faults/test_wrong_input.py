"""Input that means something else than it seems to: YAML, output directories, formulas in CSV, other algorithms."""

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.in_process import final, rlcb_here
from helpers.mutations import wrong_values
from helpers.processes import CARTPOLE, ROOT, wait_for_line
from helpers.run_directories import write_run
from rlcb.analysis.comparison import compare
from rlcb.analysis.load import load_runs
from rlcb.analysis.suites import SuiteRun
from rlcb.config.load import build_config
from rlcb.config.registry import Kind
from rlcb.config.yaml_file import dump_yaml, parse_scalar, read_yaml
from rlcb.errors import UsageError
from rlcb.hardware import usable_cpus
from rlcb.report.compare import comparison_csv, runs_csv
from rlcb.report.csv_text import csv_text
from rlcb.suite.directory import result_of, store, stored
from rlcb.suite.evaluation import is_evaluated
from rlcb.suite.settings import build_suite

pytestmark = pytest.mark.xdist_group("wrong input")

FIXTURES = ROOT / "tests" / "fixtures" / "runs"
SHORT = (*CARTPOLE, "--total-timesteps", "256", "--tensorboard", "false")

# YAML


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1:00:00", ["1:00:00", "base 60", "1.5"]),
        ("190:20:30.15", ["base 60"]),
        ("010", ["010", "leading 0"]),
        ("-00.5", ["leading 0"]),
        ("0o17", ["base 10"]),
        ("0x1F", ["base 10"]),
        ("0b1", ["base 10"]),
        ("!!binary aGFsbG8=", ["tags are not supported"]),
        ("!!float 1", ["tags are not supported"]),
        ("!mine 1", ["tags are not supported"]),
        ("{<<: {gamma: 0.5}}", ["merge keys"]),
        ('"\\0"', ["control characters"]),
        ("yes", ["training.duration_hours: 'yes'", "must be a number"]),
        ("2024-01-01", ["training.duration_hours: '2024-01-01'", "must be a number"]),
        ("1__0", ["training.duration_hours: '1__0'", "must be a number"]),
        (".inf", ["training.duration_hours: inf", "must be a number"]),
        (".nan", ["training.duration_hours: nan", "must be a number"]),
        ("1e999", ["training.duration_hours: inf", "must be a number"]),
        ("9" * 5000, ["not valid YAML"]),
    ],
)
def test_a_value_with_two_meanings_is_refused_in_one_line(tmp_path: Path, text: str, words: list[str]) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(f"training:\n  duration_hours: {text}\n")
    with pytest.raises(UsageError) as caught:
        build_config(file, {})
    message = str(caught.value)
    assert message.startswith(str(file))
    assert message.isprintable()
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"), ("off", "off"), ("Yes", "Yes"), ("no", "no"), ("y", "y"), ("true", True), ("FALSE", False),
        ("~", None), ("null", None), ("1_000", 1000), ("+7", 7), ("-0", 0), ("0.5", 0.5), (".5", 0.5), ("1.", 1.0),
        ("1e-4", 1e-4), ("1E+4", 1e4), ("25e6", 25e6), ("2024-01-01", "2024-01-01"), ("=", "="), ("1__0", "1__0"),
        ("127.0.0.1:6379", "127.0.0.1:6379"), ("'010'", "010"), ("'1:00'", "1:00"), ("'on'", "on"), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_a_value_means_what_it_means_in_json_and_all_else_is_text(tmp_path: Path, text: str, value: object) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(f"key: {text}\n")
    found = read_yaml(file)["key"]
    assert (found, type(found)) == (value, type(value))
    assert parse_scalar(text) == value


@pytest.mark.parametrize("text", ["1:00:00", "010", "0x1F", "9" * 5000, "[" * 1500, "!!binary aGk=", "\ud800"])
def test_a_flag_with_such_a_value_is_text(text: str) -> None:
    assert parse_scalar(text) == text


@given(
    value=st.one_of(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])), st.floats(allow_nan=False))
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_as_yaml_is_read_as_it_was(tmp_path: Path, value: object) -> None:
    file = tmp_path / "some.yaml"
    for one in (value, "0o17", "1e5", "1_0", "010", "1:00", "on", "<<"):
        file.write_text(dump_yaml({"key": one}), encoding="utf-8")
        assert read_yaml(file) == {"key": one}


def test_a_duration_of_sixty_minutes_is_refused_by_the_command(tmp_path: Path) -> None:
    done = rlcb_here("train", "ppo", *CARTPOLE, "--duration", "1:00:00", "--output-dir", tmp_path / "run")
    done.assert_one_line_error(2, "--duration", "'1:00:00'", "must be a number of hours above 0 up to 8760")
    assert not (tmp_path / "run").exists()


# Output directories


@pytest.mark.parametrize("inside", [".", "checkpoints", "checkpoints/new/deep", "logs/PPO_Sequential", "x/../y", "new"])
def test_a_run_inside_of_another_is_refused(copy: Path, inside: str) -> None:
    before = sorted(copy.rglob("*"))
    target = copy / "below" if inside == "." else copy / inside
    done = rlcb_here("train", "ppo", *SHORT, "--output-dir", target)
    done.assert_one_line_error(2, str(target), f"is inside the run in {copy}")
    assert sorted(copy.rglob("*")) == before


def test_links_and_dots_lead_to_the_same_refusal(copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(copy / "checkpoints")
    (copy / "out").symlink_to(tmp_path)
    (tmp_path / "other").mkdir()
    dotted = tmp_path / "other" / ".." / copy.name / "new"
    for target in (tmp_path / "link" / "new", copy / "out" / "new", dotted):
        rlcb_here("train", "ppo", *SHORT, "--output-dir", target).assert_one_line_error(2, "is inside the run in")
        rlcb_here("benchmark", "--total-timesteps", "8192", "--output-dir", target).assert_one_line_error(
            2, "is inside"
        )
    aside = ("--checkpoint-dir", copy / "mine", "--output-dir", tmp_path / "new")
    rlcb_here("train", "ppo", *SHORT, *aside).assert_one_line_error(2, "mine: is inside the run in")
    file = tmp_path / "some.yaml"
    file.write_text(f"logging: {{checkpoint_dir: {copy / 'mine'}}}\n")
    monkeypatch.setattr("helpers.in_process.ROOT", tmp_path)  # where a run without --output-dir goes
    done = rlcb_here("train", "ppo", *SHORT, "--config", file)
    done.assert_one_line_error(2, "mine: is inside the run in")
    assert not (copy / "mine").exists()


def test_inside_of_a_run_that_is_running(start: Callable[..., object], tmp_path: Path) -> None:
    endless = (*CARTPOLE, "--total-timesteps", "100000000", "--tensorboard", "false")
    process = start("train", "ppo", *endless, "--output-dir", tmp_path / "run")
    wait_for_line(process, "Update 1 ")  # type: ignore[arg-type]
    done = rlcb_here("train", "ppo", *SHORT, "--output-dir", tmp_path / "run" / "new")
    done.assert_one_line_error(2, "is inside the run in")


def test_beside_a_run_and_below_a_folder_of_runs_there_is_room(copy: Path) -> None:
    assert rlcb_here("train", "ppo", *SHORT, "--output-dir", copy.parent / "beside").returncode == 0
    assert rlcb_here("train", "ppo", *SHORT, "--output-dir", copy / ".." / "beside2").returncode == 0


# Resuming


def test_another_algorithm_is_not_resumed(copy: Path) -> None:
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    done = rlcb_here("train", "a2c", "--resume", copy)
    done.assert_one_line_error(2, str(copy), "contains a run of ppo, not of a2c")
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    assert rlcb_here("train", "ppo", "--resume", copy).returncode == 0
    assert rlcb_here("train", "--resume", copy).returncode == 0


# CSV


@pytest.mark.parametrize(
    "text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "－cmd", '=HYPERLINK("x")']
)
def test_text_in_csv_is_never_a_formula(text: str) -> None:
    written = csv_text([[text, -1.5, "-1.5", "a\r=b", None, -3]])
    (row,) = csv.reader(io.StringIO(written, newline=""))
    assert row == [f"'{text}", "-1.5", "-1.5", "a\r=b", "", "-3"]


def test_a_run_whose_name_is_a_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "=cmd" / "run", seed=1)
    metrics = json.loads((run / "benchmark_metrics.json").read_text())
    metrics["config"]["env"]["name"] = "@SUM(A1)"
    (run / "benchmark_metrics.json").write_text(json.dumps(metrics))
    runs = load_runs([Path("=cmd/run")], pytest.fail)
    comparison = compare(runs, seed=0)
    for text in (runs_csv(comparison, runs), comparison_csv(comparison)):
        cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
        assert not [cell for cell in cells if cell[:1] in ("=", "+", "@")]
    assert "'=cmd/run" in runs_csv(comparison, runs)
    assert "'@SUM(A1)" in runs_csv(comparison, runs)


# Directories of runs and suites whose files are valid and wrong


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_a_runs_files_is_a_warning_at_most(data: st.DataObject, tmp_path: Path) -> None:
    """One place of one file is changed: the run is compared or left out, with one warning, and the others compared."""
    folder = tmp_path / "runs"
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("ppo_sequential_1", "ppo_sequential_2"):
        shutil.copytree(FIXTURES / name, folder / name, ignore=shutil.ignore_patterns("*.pt"))
    files = sorted(path for path in (folder / "ppo_sequential_1").rglob("*") if path.suffix in (".json", ".yaml"))
    file = data.draw(st.sampled_from(files))
    value = read_yaml(file) if file.suffix == ".yaml" else json.loads(file.read_text())
    wrong = data.draw(wrong_values(value))
    file.write_text(json.dumps(wrong))  # JSON is YAML
    warnings: list[str] = []
    runs = load_runs([folder], warnings.append)
    comparison = compare(runs, seed=0)
    assert runs_csv(comparison, runs)
    assert comparison_csv(comparison)
    assert len([text for text in warnings if "ppo_sequential_1" in text]) <= 1
    assert any(run.path.name == "ppo_sequential_2" for run in runs)


@pytest.fixture(scope="module")
def suite(cartpole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished suite of one run, which was evaluated."""
    path = tmp_path_factory.mktemp("suite")
    wanted = {"seeds": [42], "modes": ["sequential"], "games": ["CartPole-v1"], "total_timesteps": 8192}
    store(path, build_suite(None, {key: (key, value) for key, value in wanted.items()}))
    run = Path(shutil.copytree(cartpole, path / "CartPole-v1" / "ppo_sequential" / "seed_42"))
    done = rlcb_here("evaluate", "--checkpoint", final(run), "--num-episodes", "2", "--num-threads", "1")
    assert done.returncode == 0, done.stderr
    return path


def run_of(suite: Path) -> SuiteRun:
    return SuiteRun(Kind("ppo", "sequential"), "CartPole-v1", 42, suite)


def test_the_suite_is_finished(suite: Path) -> None:
    assert result_of(run_of(suite)) is not None
    assert is_evaluated(run_of(suite), stored(suite).configs[Kind("ppo", "sequential")], 2)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_change_of_a_suites_files_is_refused_or_done_again(
    data: st.DataObject, suite: Path, tmp_path: Path
) -> None:
    """A wrong plan is refused in one line, a wrong result means that the run is not finished."""
    here = tmp_path / "suite"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(suite, here)
    run = run_of(here)
    names = ("training_summary.json", "benchmark_metrics.json", "checkpoints/ppo_sequential_final_evaluation.json")
    files = [here / "suite.yaml", here / "configs/ppo_sequential.yaml", *(run.path / name for name in names)]
    file = data.draw(st.sampled_from(files))
    value = read_yaml(file) if file.suffix == ".yaml" else json.loads(file.read_text())
    file.write_text(json.dumps(data.draw(wrong_values(value))))
    try:
        plan = stored(here)
    except UsageError as error:
        plan, problem = None, str(error)
        assert len(problem.splitlines()) == 1
    result = result_of(run)
    assert result is None or (0 <= result.seconds < 1e10 and f"{result.fps or 0:,.0f}{result.reward or 0:.2f}")
    if plan and Kind("ppo", "sequential") in plan.configs:
        assert is_evaluated(run, plan.configs[Kind("ppo", "sequential")], 2) in (True, False)


# More processes than this machine's cores can make use of


MOST = max(4 * usable_cpus(), 8)
CROWD = ("--num-workers", str(MOST + 1), "--num-envs-per-worker", "1")
SMALL = ("--env", "CartPole-v1", "--mode", "parallel", "--n-steps", "32", "--tensorboard", "false")


@pytest.mark.parametrize("algorithm", ["ppo", "impala", "a2c", "a3c"])
def test_far_more_workers_than_cores_are_refused_unless_they_are_wanted(algorithm: str, tmp_path: Path) -> None:
    many = ("train", algorithm, *SMALL, *CROWD, "--total-timesteps", "4096", "--output-dir", tmp_path / "run")
    noun = "actor" if algorithm == "impala" else "worker"
    said = (f"--num-{noun}s: {MOST + 1} {noun}s on ", f"valid here: 1 to {MOST} or auto", "--oversubscribe starts them")
    for more in ((), ("--dry-run",)):
        rlcb_here(*many, *more).assert_one_line_error(2, *said)
    assert not (tmp_path / "run").exists()
    done = rlcb_here(*many, "--oversubscribe", "--dry-run")
    assert done.returncode == 0, done.stderr
    fewer = ("--num-workers", str(MOST), "--dry-run")
    assert rlcb_here(*many, *fewer).returncode == 0
    on_cluster = rlcb_here(*many, "--dry-run", "--cluster", "local")
    assert on_cluster.returncode == 0, on_cluster.stderr  # which counts the cores of its nodes


def test_so_are_learners_files_and_suites(tmp_path: Path) -> None:
    size = (
        "--num-learners",
        str(MOST + 1),
        "--n-steps",
        "32",
        "--batch-size",
        str(32 * (MOST + 1)),
        "--num-workers",
        "1",
        "--num-envs",
        str(MOST + 1),
    )
    done = rlcb_here("train", "impala", *SMALL, *size, "--dry-run", "--output-dir", tmp_path / "run")
    done.assert_one_line_error(2, f"--num-learners: {MOST + 1} learners on ", f"valid here: 1 to {MOST};")
    (tmp_path / "file.yaml").write_text(f"parallel: {{num_workers: {MOST + 1}, num_envs_per_worker: 1}}\n")
    file = (*SMALL, "--config", tmp_path / "file.yaml", "--batch-size", str(32 * (MOST + 1)), "--dry-run")
    rlcb_here("train", "ppo", *file).assert_one_line_error(2, f"{MOST + 1} workers on ")
    assert rlcb_here("train", "ppo", *file, "--oversubscribe").returncode == 0
    where = ("--output-dir", tmp_path / "suite", "--dry-run")
    suite = ("benchmark", "--games", "CartPole-v1", "--algorithms", "a2c", "--total-timesteps", "8192", *CROWD, *where)
    rlcb_here(*suite).assert_one_line_error(2, f"{MOST + 1} workers on ")
    assert rlcb_here(*suite, "--oversubscribe").returncode == 0


def test_a_run_that_was_forced_keeps_it_and_others_do_not_mention_it() -> None:
    forced = build_config(None, {"oversubscribe": ("--oversubscribe", True)}, mode="parallel")
    assert forced.as_used()["parallel"]["oversubscribe"] is True
    assert "oversubscribe" not in build_config(None, {}, mode="parallel").as_used()["parallel"]
