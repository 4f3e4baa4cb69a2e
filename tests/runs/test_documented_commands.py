"""Every documented command is accepted: trainings and suites with --dry-run, all else for real, with few episodes.

A command that is new to the documents is run like this by itself; one that cannot be run here must be named in one of
the tables below, with the reason, and a table may not name what the documents no longer have.
"""

import argparse
import contextlib
import gc
import io
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from helpers.documented import commands_in, documented_commands, make_targets, split
from helpers.in_process import command as rlcb
from helpers.in_process import preserved
from helpers.own_code import PAGE
from helpers.processes import ROOT, TINY

COMMANDS = documented_commands()
TARGETS = make_targets()

# Commands that are not run, and why.
_EXAMPLE = "an example that tests/runs/test_contributing.py runs on a changed copy of the package"
_TESTS = "runs the tests, this one among them"
_OTHER_MACHINES = "is for a cluster of other machines; tests/cluster starts clusters on this one"
_INSTALLS = "installs packages"
_SERVICE = "changes the services of whoever types it; test_the_command_of_the_service_is_accepted runs what they start"
_SLURM = "belongs to a job script"
_SERVES = "serves until it is stopped"
NOT_RUN = {
    "source .venv/bin/activate": "changes the shell that it is typed in",
    "bash scripts/setup.sh": _INSTALLS,
    "PYTHON=/path/to/python3.12 bash scripts/setup.sh": _INSTALLS,
    "pip install 'rl-cluster-benchmark[cluster]'": _INSTALLS,
    "pip install 'rl-cluster-benchmark[atari]'": _INSTALLS,
    "pip install 'rl-cluster-benchmark[mujoco]'": _INSTALLS,
    "pip install 'rl-cluster-benchmark[tensorboard]'": _INSTALLS,
    "pip install 'rl-cluster-benchmark[video]'": _INSTALLS,
    "pip install 'rl-cluster-benchmark[wandb]'": _INSTALLS,
    "pip wheel --no-deps --wheel-dir dist .": "tests/runs/test_wheel.py does the same",
    "python3.11 -m venv ~/rlcb": _INSTALLS,
    "~/rlcb/bin/pip install -c constraints.txt "
    "'dist/rl_cluster_benchmark-<version>-py3-none-any.whl[tensorboard,video,cluster]'": _INSTALLS,
    "pip install 'rl-cluster-benchmark[pandas]'": _INSTALLS,
    "bash scripts/test.sh": _TESTS,
    "bash scripts/test.sh fast": _TESTS,
    "bash scripts/test.sh -k resume": _TESTS,
    "bash scripts/test.sh --python 3.13": _TESTS,
    "bash scripts/test.sh --python 3.11 --numpy 1.26": _TESTS,
    "PYTHON=python3.14 bash scripts/setup.sh": _INSTALLS,
    "source venv/bin/activate": "an activation that docs/old_commands.md replaces",
    "tensorboard --logdir ./benchmarks": _SERVES,
    "tensorboard --logdir ./benchmarks/sequential_1h/logs/": _SERVES,
    "tensorboard --logdir ./logs": _SERVES,
    "rlcb status --watch": "goes on until it is stopped; tests/runs/test_status_runs.py stops it",
    "rlcb train reinforce --env CartPole-v1": _EXAMPLE,
    "rlcb train reinforce --env CartPole-v1 --mode parallel --num-workers 2": _EXAMPLE,
    "rlcb train ppo --env CartPole-v1 --network linear": _EXAMPLE,
    "rlcb train ppo --env corridor": _EXAMPLE,
    "ray start": _OTHER_MACHINES,
    "ray stop": _OTHER_MACHINES,
    "ray start --help": "belongs to Ray",
    "ray get-auth-token --generate": "writes into the home directory",
    "RAY_AUTH_MODE=token ray start --head --node-ip-address 192.168.1.10 --port 6379 --include-dashboard false": (
        _OTHER_MACHINES
    ),
    "RAY_AUTH_MODE=token ray start --address 192.168.1.10:6379": _OTHER_MACHINES,
    "export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=$(openssl rand -hex 32)": _OTHER_MACHINES,
    'head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -1)': _OTHER_MACHINES,
    "address=$(srun -N1 -w \"$head\" hostname -I | cut -d' ' -f1):6379": _OTHER_MACHINES,
    'srun -N1 -w "$head" .venv/bin/ray start --head --port 6379 --include-dashboard false --block &': _OTHER_MACHINES,
    'srun -N3 -x "$head" .venv/bin/ray start --address "$address" --block &': _OTHER_MACHINES,
    "sleep 15": _OTHER_MACHINES,
    "systemctl --user enable --now long": _SERVICE,
    "journalctl --user -u long -f": _SERVICE,
    "systemctl --user stop long": _SERVICE,
    "loginctl enable-linger": _SERVICE,
    "code=$?": _SLURM,
    'if [ "$code" -eq 143 ]; then scontrol requeue "$SLURM_JOB_ID"; fi': _SLURM,
    'exit "$code"': _SLURM,
    "rlcb benchmark --output-dir ./benchmarks/many --cluster null": (
        "continues a suite; tests/cluster/test_cluster_suites.py has one"
    ),
    "python docs/results/plot.py": "redraws the pictures of docs/results.md",
    **dict.fromkeys(commands_in(PAGE.read_text(encoding="utf-8")), "is run by tests/runs/test_own_code.py, for real"),
}
# Commands that are run in another form: what the document leaves open, or what this machine does not have.
_ON_SLURM = "rlcb train impala --mode parallel"
_LONG = "rlcb train ppo --duration 24 --resume auto --output-dir ./benchmarks/long"
_LONG_JOB = "rlcb train ppo --mode parallel --total-timesteps 25e6 --resume auto --output-dir ./benchmarks/long"
_MANY_RUNS = "--modes sequential --seeds 1 2 3 4 5 6 --games coinrun starpilot --total-timesteps 1e6"
INSTEAD = {
    "rlcb train … | head": "rlcb train ppo",
    'eval "$(rlcb completion bash)"': "rlcb completion bash",
    "rlcb configs ppo_sequential_ryzen7 > mine.yaml": "rlcb configs ppo_sequential_ryzen7",
    "rlcb configs ppo_sequential > mine.yaml": "rlcb configs ppo_sequential",
    "nohup rlcb train …": "rlcb train ppo",
    f"tmux new -s long {_LONG}": _LONG,
    f"nohup {_LONG} > long.log 2>&1 &": _LONG,
    f'srun --cpus-per-task="$SLURM_CPUS_PER_TASK" .venv/bin/{_LONG_JOB}': _LONG_JOB,
    "rlcb benchmark --cluster …": "rlcb benchmark --cluster local --modes parallel --duration 0.5",
    f"rlcb benchmark --cluster 10.0.0.1:6379 {_MANY_RUNS} --output-dir ./benchmarks/many": (
        f"rlcb benchmark --cluster local {_MANY_RUNS} --output-dir ./benchmarks/many"
    ),
    "rlcb benchmark --cluster auto --modes sequential --total-timesteps 1e6": (
        "rlcb benchmark --cluster local --modes sequential --total-timesteps 1e6"
    ),
    "rlcb benchmark --output-dir ./benchmarks/study --repeat-disturbed": (
        "rlcb benchmark --duration 0.5 --output-dir ./benchmarks/other --repeat-disturbed"
    ),
    "rlcb benchmark --output-dir ./benchmarks/study --seeds 1 2 3 4 5 6": (
        "rlcb benchmark --duration 0.5 --output-dir ./benchmarks/other --seeds 1 2 3 4 5 6"
    ),
    "rlcb limits ALGORITHM --mode MODE": "rlcb limits a2c --mode sequential",
    "rlcb train a2c --resume DIR": "rlcb train ppo --resume DIR",  # the document says that it is refused
    f'srun --overlap -N1 -w "$head" .venv/bin/{_ON_SLURM} --cluster "$address" --num-actors auto': (
        f"{_ON_SLURM} --cluster 192.168.1.10:6379 --num-actors auto"
    ),
    "rlcb train ppo --config ppo_mujoco": ("rlcb train ppo --config ppo_mujoco --env Pendulum-v1"),
    "sudo python perf/cluster_model.py --measure": "python perf/cluster_model.py --measure",
}
# Commands for machines with more cores than this one may have.
MANY_CORES = (
    "rlcb train ppo --mode parallel --num-workers 24 --num-envs-per-worker 2 --batch-size 1536",
    "rlcb limits ppo --mode parallel --num-workers 16 --num-envs-per-worker 8",
)
INSTEAD |= {command: f"{command} --oversubscribe" for command in MANY_CORES}
# What placeholders stand for; where a flag decides, it stands before the placeholder.
PLACEHOLDERS = {
    "--sequential DIR": "benchmarks/sequential_1",
    "--parallel DIR": "benchmarks/parallel_1",
    "DIR": "benchmarks/half_hour",
    "RUN": "benchmarks/half_hour",
    "RUNS": "benchmarks/study",
    "REPORT": "report",
    "A": "2",
    "32/A": "16",
    "L": "2",
    "T": "1",
}
# How the verbs and scripts of this program are run; the scripts in perf/ only parse their arguments.
WITH_DRY_RUN = ("train", "benchmark")
# Beginnings of lines that Make would run and these tests do not.
MAKE_NOT_RUN = ("printf", "grep", "rm", "find", "bash scripts/docs.sh", ".venv/bin/python -m tensorboard.main")
SMALLER = {
    "evaluate": ("--num-episodes", "2", "--num-threads", "1"),
    "limits": ("--rounds", "1", "--seconds", "0.05", "--accept-disturbed"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder like the repository's root, with small finished runs where the documents have theirs."""
    root = tmp_path_factory.mktemp("documented")
    (root / "config").symlink_to(ROOT / "config")
    runs, short = root / "benchmarks", ("--total-timesteps", "256", "--tensorboard", "false")
    # StarPilot's episodes are short.
    for mode, name in (("sequential", "half_hour"), ("parallel", "parallel_1")):
        size = (*TINY, *(("--num-workers", "1") if mode == "parallel" else ()), *short)
        assert rlcb("train", "ppo", "--mode", mode, "--env", "starpilot", *size, "--output-dir", runs / name) == 0
    for algorithm, workers in (("impala", ()), ("a2c", ()), ("a3c", ("--num-workers", "1", "--num-envs", "8"))):
        size = ("--env", "CartPole-v1", "--num-envs", "8", "--n-steps", "32", "--num-threads", "1", *workers)
        assert rlcb("train", algorithm, *size, *short, "--output-dir", runs / algorithm) == 0
    for name in ("sequential_1", "sequential_1h", "study/sequential"):
        shutil.copytree(runs / "half_hour", runs / name)
    for name in ("parallel_1h", "study/parallel"):
        shutil.copytree(runs / "parallel_1", runs / name)
    shutil.copytree(runs / "impala", runs / "impala_seq_30min")
    (root / "mine.yaml").write_text("base: ppo_sequential_ryzen7\n")  # what a redirected `rlcb configs` leaves
    logs = ROOT / "tests" / "fixtures" / "external"
    shutil.copytree(logs / "sb3", root / "sb3_logs")
    shutil.copytree(logs / "cleanrl", root / "runs")
    (root / "tags.yaml").write_text("reward: charts/episodic_return\nrewards: episodes\n")
    gc.freeze()  # each command is followed by a collection, which would look at torch and all else every time
    yield root
    gc.unfreeze()


@pytest.fixture(scope="module")
def anywhere(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that has nothing of the repository, as a user of the installed package has it."""
    root = tmp_path_factory.mktemp("anywhere")
    for name in ("benchmarks", "mine.yaml", "sb3_logs", "runs", "tags.yaml"):
        (root / name).symlink_to(folder / name)
    return root


class ArgumentsAccepted(BaseException):
    """A script has parsed its arguments; what it would do with them is not for a test."""


def run_script(path: Path, arguments: list[str]) -> int:
    """Run a script of the repository in this process; returns its exit code."""
    sys.modules.pop("_launch", None)  # it looks at the script's name when it is imported
    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(sys, "argv", [str(path), *arguments])
        changes.syspath_prepend(str(path.parent))
        with preserved():
            try:
                runpy.run_path(str(path), run_name="__main__")
            except SystemExit as end:
                return int(end.code or 0)
    return 0


def parse_only(path: Path, arguments: list[str]) -> int:
    """Run a script up to where its arguments are parsed; returns 0 if they are accepted."""
    parse_args = argparse.ArgumentParser.parse_args

    def parsed(self: argparse.ArgumentParser, *given: Any) -> None:
        parse_args(self, *given)
        raise ArgumentsAccepted

    with pytest.MonkeyPatch.context() as changes:
        changes.setattr(argparse.ArgumentParser, "parse_args", parsed)
        with contextlib.suppress(ArgumentsAccepted):
            return run_script(path, arguments) or 1  # it never parsed them
    return 0


def filled_in(words: list[str]) -> list[str]:
    """The words of a command with its placeholders replaced, and without a GPU where there is none."""
    import torch

    known = {**PLACEHOLDERS, **({} if torch.cuda.is_available() else {"--device cuda": "auto"})}
    pairs = zip(["", *words], words, strict=False)
    return [known.get(f"{before} {word}", known.get(word, word)) for before, word in pairs]


def outcome_of(command: str) -> int | None:
    """The exit code of a documented command, run here as the tables say; None: nobody knows how to run it."""
    variables, words = split(INSTEAD.get(command, command))
    os.environ.update(variables)
    code = None
    match filled_in(words):
        case ["rlcb", verb] if verb not in ("doctor", "configs"):  # the verb's name, not a command line
            code = rlcb(verb, "--help")
        case ["rlcb", verb, *arguments] | ["python" | ".venv/bin/python", "-m", "rlcb", verb, *arguments]:
            code = rlcb(verb, *arguments, *smaller(verb, arguments))
        case ["python" | ".venv/bin/python", file, *arguments] if file.startswith("perf/"):
            code = parse_only(ROOT / file, arguments) or outcome_of_remainder(arguments)
        case ["python" | ".venv/bin/python", file, *arguments] if file.endswith(".py"):
            code = run_script(ROOT / file, [*arguments, *smaller(file.split("_")[0].removesuffix(".py"), arguments)])
        case ["bash", "scripts/demo.sh" | "scripts/cluster_demo.sh" as file, *arguments]:
            code = outcome_of_last_line(file, arguments)
        case ["make", *targets]:
            code = outcome_of_make(targets)
    return code


def smaller(verb: str, arguments: list[str]) -> tuple[str, ...]:
    """What to add to a command so that it takes seconds."""
    if "--help" in arguments:
        return ()
    return ("--dry-run",) if verb in WITH_DRY_RUN else SMALLER.get(verb, ())


def outcome_of_remainder(arguments: list[str]) -> int:
    """What follows `--` in the arguments of a script in perf/ are arguments of `rlcb train`."""
    rest = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
    mode = [] if "--mode" in rest else ["--mode", "parallel"]
    return rlcb("train", *rest, *mode, "--dry-run") if rest else 0


def outcome_of_last_line(file: str, arguments: list[str]) -> int:
    """What a script ends with; before that it installs packages."""
    *_, last = (ROOT / file).read_text(encoding="utf-8").strip().splitlines()
    words = split(last.removeprefix("exec "))[1]
    if words[1].endswith(".py"):  # real clusters, for minutes: tests/cluster has them
        return 0 if (ROOT / words[1]).is_file() else 1
    assert words[:3] == [".venv/bin/python", "-m", "rlcb"]
    assert words[-1] == "$@"
    return rlcb(*words[3:-1], *arguments, "--dry-run")


def outcome_of_make(targets: list[str]) -> int | None:
    """Make's own check, and the outcome of each command that it would run."""
    done = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr)
        return done.returncode
    for line in map(str.strip, done.stdout.splitlines()):
        if not line.startswith(MAKE_NOT_RUN) and line not in NOT_RUN and (code := outcome_of(line)) != 0:
            return code
    return 0


def run_in(folder: Path, command: str) -> tuple[int | None, str]:
    """A documented command in a folder, with a token for clusters; its exit code and all that it printed."""
    said, cluster = io.StringIO(), {"RAY_AUTH_TOKEN": "a" * 32, "RAY_ADDRESS": "127.0.0.1:6379"}
    with patch.dict(os.environ, cluster), contextlib.chdir(folder), redirect_stdout(said), redirect_stderr(said):
        code = outcome_of(command)
    return code, said.getvalue()


def assert_accepted(folder: Path, command: str) -> None:
    code, said = run_in(folder, command)
    assert code is not None, f"nobody knows how to run this, see the tables above: {command}"
    assert code == 0, f"{command}\nends with exit code {code}:\n{said}"


pytestmark = pytest.mark.xdist_group("documented commands")


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in NOT_RUN])
def test_a_documented_command_is_accepted(command: str, folder: Path, anywhere: Path) -> None:
    assert_accepted(anywhere if split(INSTEAD.get(command, command))[1][0] == "rlcb" else folder, command)


def test_the_command_of_the_service_is_accepted(folder: Path) -> None:
    unit = (ROOT / "docs/guide.md").read_text(encoding="utf-8").split("```ini\n")[1].split("```")[0]
    settings = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    program, command = settings["ExecStart"].split(" ", 1)
    assert program == f"{settings['WorkingDirectory']}/.venv/bin/rlcb"
    assert_accepted(folder, f"rlcb {command}")


@pytest.mark.parametrize("target", TARGETS)
def test_a_make_target_is_accepted(target: str, folder: Path) -> None:
    assert_accepted(folder, f"make {target}")


def test_the_tables_name_only_what_the_documents_have() -> None:
    assert {*NOT_RUN, *INSTEAD} <= set(COMMANDS)
    words = [word for command in COMMANDS for word in split(INSTEAD.get(command, command))[1]]
    assert {key.split()[-1] for key in PLACEHOLDERS} <= set(words)


@pytest.mark.parametrize(
    "command",
    [
        "python train_timed.py --duration 0.5 --num-wokers 2",
        "rlcb train ppo --mode parallel --num-workers 3 --num-envs-per-worker 8",
        "rlcb evaluate --checkpoint ./benchmarks/half_hour --level both",
        "rlcb benchmark --seeds 1 2 3",
        "python perf/modes.py impala --partitions 2x2",
        "python perf/soak.py --minutes 1 -- impala --num-actor 2",
        "make train-everything",
        "bash scripts/demo.sh --seed 1",
        "rlcb tunes",
        "curl example.org",
    ],
)
def test_a_wrong_command_would_be_noticed(command: str, folder: Path) -> None:
    code, _ = run_in(folder, command)
    assert code != 0


def test_commands_are_found_in_blocks_and_in_sentences() -> None:
    block = "```bash\n# first\nrlcb train ppo \\\n  --seed 1   # why\n\npython a.py\n```\n\n```\nrlcb not this\n```\n"
    text = f"Type `rlcb doctor` or `X=1 make a`, see `a.yaml`, `--flag`.\n\n{block}\n| `a \\| b` | `rlcb a \\| b` |\n"
    assert commands_in(text) == ["rlcb train ppo    --seed 1", "python a.py", "rlcb doctor", "X=1 make a", "rlcb a | b"]
