"""The user's own environments and networks in limits, tune, suites and calls from Python."""

import json
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from helpers.cluster_runs import needs_ray
from helpers.own_code import write_own_code
from helpers.processes import ROOT, Finished, python, run
from rlcb.config.load import build_config
from rlcb.envs.own_code import permit

OWN = ("--env", "MyCart-v0", "--import", "my_envs", "--network", "my_networks:Wide")
SMALL = ("--n-steps", "16", "--num-threads", "1")
SHORT = ("--rounds", "1", "--seconds", "0.05", "--accept-disturbed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_own_code(tmp_path)


def rlcb(folder: Path, *arguments: str) -> Finished:
    return python("-m", "rlcb", *arguments, cwd=folder)


def test_an_own_environment_needs_a_training_length(folder: Path) -> None:
    said = "environment MyCart-v0 is your own, so no training length suits it by default; give "
    flags = "--total-timesteps N or --duration HOURS"
    (folder / "no_length.yaml").write_text("base: ppo_sequential\nenv: {name: MyCart-v0, imports: [my_envs]}\n")
    (folder / "length.yaml").write_text("base: no_length.yaml\ntraining: {total_timesteps: 8192}\n")
    for words in (
        ("ppo", "--env", "my_envs:MyCart-v0"),
        ("a3c", "--env", "MyCart-v0", "--import", "my_envs", "--dry-run"),
        ("ppo", "--env", "my_envs:MyCart-v0", "--config", "ppo_paper"),
        ("ppo", "--config", "no_length.yaml", "--import", "my_envs"),
        ("ppo", "--env", "my_envs:MyCart-v0", "--resume", "auto"),
    ):
        rlcb(folder, "train", *words).assert_one_line_error(2, said + flags)
    script = python(str(ROOT / "train_ppo_sequential.py"), "--env", "my_envs:MyCart-v0", cwd=folder)
    script.assert_one_line_error(2, said + flags)
    assert not (folder / "benchmarks").exists()
    call = "import rlcb\ntry:\n    rlcb.train('ppo', env='my_envs:MyCart-v0')\nexcept rlcb.UsageError as error:\n"
    assert python("-c", f"{call}    print(error)", cwd=folder).stdout == f"{said}total_timesteps or duration\n"
    for words in (
        ("ppo", "--config", "length.yaml", "--import", "my_envs"),
        ("ppo", "--env", "my_envs:MyCart-v0", "--duration", "90s"),
        ("ppo", "--env", "CartPole-v1"),  # for these there is a default
        ("ppo", "--env", "CartPole-v1", "--network", "my_networks:Wide"),
        ("ppo", "--env", "coinrun", "--import", "my_envs"),
    ):
        done = rlcb(folder, "train", *words, "--dry-run")
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("ppo", ("--num-envs", "8")),
        ("ppo", ("--mode", "parallel", "--num-workers", "2", "--num-envs", "4")),
        ("impala", ("--mode", "parallel", "--num-actors", "2", "--num-learners", "1", "--num-envs", "4")),
    ],
)
def test_limits_are_measured(algorithm: str, words: tuple[str, ...], folder: Path) -> None:
    done = rlcb(folder, "limits", algorithm, *OWN, *SMALL, *words, *SHORT)
    assert done.returncode == 0, done.stderr
    assert " on MyCart-v0 (" in done.stdout.splitlines()[0]
    assert "Attainable: " in done.stdout


def test_limits_of_a_file_ask_for_the_module(folder: Path) -> None:
    (folder / "own.yaml").write_text("env: {name: MyCart-v0, imports: [my_envs], num_envs: 8}\n")
    measure = ("limits", "ppo", "--config", "own.yaml", *SMALL, *SHORT)
    rlcb(folder, *measure).assert_one_line_error(2, "own.yaml: env.imports", "--import my_envs")
    assert rlcb(folder, *measure, "--import", "my_envs").returncode == 0


def test_tune_writes_a_file_and_the_command_that_trains_with_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "small.yaml").write_text(
        "env: {num_envs: 8}\nparallel: {num_workers: auto}\ntraining: {n_steps: 16, batch_size: 64, n_epochs: 1}\n"
    )
    measure = ("--config", "small.yaml", "--updates", "1", "--accept-disturbed", "--output", "tuned.yaml")
    done = rlcb(folder, "tune", "ppo", "--env", "my_envs:MyCart-v0", *measure)
    assert done.returncode == 0, done.stderr
    command = shlex.split(done.stdout.strip().rpartition("use it with: ")[2])
    assert command[-2:] == ["--import", "my_envs"]
    monkeypatch.chdir(folder)
    permit(["my_envs"])
    try:
        tuned = build_config(folder / "tuned.yaml", {}, mode="parallel")
    finally:
        permit([])
    assert (tuned.env.name, tuned.env.imports) == ("MyCart-v0", ["my_envs"])
    length = ("--total-timesteps", str(tuned.rollout_size), "--output-dir", "run")
    trained = rlcb(folder, *command[1:], *length)
    assert trained.returncode == 0, trained.stderr
    rlcb(folder, *command[1:-2], *length).assert_one_line_error(2, "tuned.yaml: env.imports", "--import my_envs")


def test_a_suite_is_continued_with_the_module_and_not_without(folder: Path) -> None:
    size = ("--total-timesteps", "512", "--num-envs", "4", "--batch-size", "64", *SMALL, "--eval-episodes", "2")
    kind = ("--algorithms", "ppo", "--modes", "sequential", "parallel", "--num-workers", "2", "--seeds", "1")
    own = ("--games", "MyCart-v0", "--import", "my_envs", "--network", "my_networks:Wide")
    first = rlcb(folder, "benchmark", *own, *kind, *size, "--output-dir", "suite")
    assert first.returncode == 0, first.stdout + first.stderr
    runs = sorted((folder / "suite" / "MyCart-v0").glob("*/seed_1"))
    assert len(runs) == 2
    before = (runs[1] / "training_summary.json").read_bytes()
    runs[0].rename(folder / "gone")  # it is left to do
    again = ("benchmark", "--output-dir", "suite")
    rlcb(folder, *again).assert_one_line_error(2, "suite.yaml: overrides.imports", "--import my_envs")
    rlcb(folder, *again, "--import", "my_envs").assert_one_line_error(2, "training.network", "--import my_networks")
    assert not runs[0].exists()
    done = rlcb(folder, *again, "--import", "my_envs", "--import", "my_networks")
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((runs[0] / "training_summary.json").read_text())
    assert (summary["status"], summary["total_timesteps"]) == ("finished", 512)
    assert (runs[1] / "training_summary.json").read_bytes() == before


# RLCB_IMPORT


def in_shell(folder: Path, modules: str, *words: str) -> Finished:
    return python(*words, cwd=folder, env={"RLCB_IMPORT": modules})


def test_modules_that_the_shell_names_need_no_flag(folder: Path) -> None:
    """A parallel run, whose workers import them too, resumed and evaluated; limits, a suite, a script and a check."""
    modules = "my_envs, my_networks,"
    env, length = ("--env", "MyCart-v0", "--network", "my_networks:Wide"), ("--total-timesteps", "128")
    division = ("--mode", "parallel", "--num-workers", "2", "--num-envs", "2", "--batch-size", "64")
    suite = ("--games", "MyCart-v0", "--algorithms", "ppo", "--modes", "sequential", "--seeds", "1", *SMALL, *length,
             "--num-envs", "4", "--eval-episodes", "2", "--output-dir", "suite")  # fmt: skip
    for words in (
        ("train", "ppo", *env, *division, *SMALL, *length, "--output-dir", "run"),
        ("train", "--resume", "run", "--total-timesteps", "192"),
        ("evaluate", "--checkpoint", "run", "--num-episodes", "2", "--num-threads", "1"),
        ("limits", "ppo", *env, *SMALL, "--num-envs", "4", *SHORT),
        ("benchmark", *suite),
        ("benchmark", "--output-dir", "suite"),
        ("doctor", "--env", "MyCart-v0"),
    ):
        done = in_shell(folder, modules, "-m", "rlcb", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    config = yaml.safe_load((folder / "run" / "config.yaml").read_text())
    assert config["env"]["imports"] == ["my_envs"]  # the network names its module itself
    assert json.loads((folder / "run" / "training_summary.json").read_text())["total_timesteps"] == 192
    script = in_shell(
        folder, modules, str(ROOT / "train_ppo_sequential.py"), *env[:2], "--total-timesteps", "8192", "--dry-run"
    )
    assert script.returncode == 0, script.stderr


def test_what_the_shell_names_is_permitted_and_nothing_else_is(folder: Path) -> None:
    (folder / "trap.py").write_text("open('sprung', 'w').close()\n")
    (folder / "own.yaml").write_text("env: {name: CartPole-v1, imports: [trap]}\n")
    train = ("-m", "rlcb", "train", "ppo", "--config", "own.yaml", "--dry-run")
    in_shell(folder, "my_envs", *train).assert_one_line_error(2, "own.yaml: env.imports", "--import trap")
    assert not (folder / "sprung").exists()
    assert in_shell(folder, "trap", *train).returncode == 0
    assert (folder / "sprung").exists()


def test_calls_from_python_take_what_the_shell_names(folder: Path) -> None:
    (folder / "script.py").write_text(
        "import rlcb\n"
        "run = rlcb.train('ppo', env='MyCart-v0', n_steps=16, num_envs=4, num_threads=1, total_timesteps=64,\n"
        "                 output_dir='run', quiet=True)\n"
        "print(run.status, len(rlcb.evaluate(run, num_episodes=1, num_threads=1, quiet=True).results))\n"
    )
    done = run([sys.executable, "script.py"], cwd=folder, env={"RLCB_IMPORT": "my_envs"})
    assert (done.returncode, done.stdout) == (0, "finished 1\n"), done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("train", "ppo", "--env", "CartPole-v1", "--dry-run"),
        ("limits", "ppo"),
        ("tune", "ppo"),
        ("evaluate",),
        ("benchmark", "--dry-run"),
        ("doctor", "--env", "CartPole-v1"),
    ],
)
def test_wrong_names_in_the_shell_are_one_line(words: tuple[str, ...], folder: Path) -> None:
    done = in_shell(folder, "my_envs my_networks", "-m", "rlcb", *words)
    done.assert_one_line_error(2, "RLCB_IMPORT: 'my_envs my_networks' is not a module name", "separated by commas")


def test_a_module_that_the_shell_names_and_that_fails_is_named_with_it(folder: Path) -> None:
    done = in_shell(folder, "nowhere", "-m", "rlcb", "train", "ppo", "--env", "CartPole-v1", "--dry-run")
    done.assert_one_line_error(2, "RLCB_IMPORT nowhere: cannot be imported", "No module named")


SCRIPT = """
import gymnasium, rlcb
gymnasium.register("Mine-v0", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=100)
small = {"n_steps": 16, "num_envs": 4, "num_threads": 1, "total_timesteps": 512, "quiet": True}
def refused(work, **how):
    try:
        work(**how, **small)
    except rlcb.RlcbError as error:
        print(type(error).__name__, error)
for algorithm in ("ppo", "a3c", "impala"):
    refused(rlcb.train, algorithm=algorithm, mode="parallel", num_workers=2, env="Mine-v0", output_dir="run")
refused(rlcb.train, algorithm="ppo", mode="parallel", cluster="local", env="Mine-v0", output_dir="run")
refused(rlcb.train, algorithm="ppo", mode="parallel", env="Mine-v0", imports=["my_envs"], output_dir="run")
refused(rlcb.benchmark, games=["MyCart-v0", "Mine-v0"], imports=["my_envs"], output_dir="suite")
for again in range(2):
    print(rlcb.train("a3c", env="MyCart-v0", imports=["my_envs"], num_workers=2, output_dir="shared", **small).status)
"""


def test_what_a_script_registers_itself_is_refused_before_workers_start(folder: Path) -> None:
    """Its workers do not run the script; an environment in a module is known to all."""
    needs_ray()
    (folder / "script.py").write_text(SCRIPT)
    done = run([sys.executable, "script.py"], cwd=folder)
    assert done.returncode == 0, done.stderr
    *lines, first, second = done.stdout.splitlines()
    told = 'move its class and its registration to a module, such as my_envs.py, and pass imports=["my_envs"]'
    start = "UsageError environment Mine-v0: is not known to worker processes, which do not run your program; "
    assert lines == [f"{start}{told} (--import my_envs)"] * 6
    assert (first, second) == ("finished", "finished")
    assert not (folder / "run").exists()
    assert not (folder / "suite").exists()


PERMITTED = """
import pathlib, rlcb
from rlcb.config.load import build_config
from rlcb.envs.own_code import permitted_flags
small = {"n_steps": 16, "batch_size": 64, "num_envs": 4, "num_threads": 1, "quiet": True}
def nested(metrics):
    try:
        rlcb.evaluate("nowhere", quiet=True)
    except rlcb.RlcbError:
        print("within", permitted_flags())
run = rlcb.train("ppo", env="my_envs:MyCart-v0", total_timesteps=64, output_dir="run", on_update=nested, **small)
print("after", permitted_flags())
try:
    build_config(pathlib.Path("run/config.yaml"), {})
except rlcb.UsageError as error:
    print(error)
print(rlcb.evaluate(run, imports=["my_envs"], num_episodes=2, num_threads=1, quiet=True).results[0].episodes)
print("after", permitted_flags())
"""


def test_what_a_call_permits_ends_with_the_call(folder: Path) -> None:
    """Also one within another, which leaves that one's permissions as they were."""
    (folder / "script.py").write_text(PERMITTED)
    done = run([sys.executable, "script.py"], cwd=folder)
    assert done.returncode == 0, done.stderr
    within, after, refused, episodes, again = done.stdout.splitlines()
    assert (within, after.strip(), episodes, again.strip()) == ("within  --import my_envs", "after", "2", "after")
    assert refused.startswith("run/config.yaml: env.imports names the module my_envs, which is not imported")
