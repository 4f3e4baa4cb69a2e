"""The user's own environment and network on a cluster: every node imports the modules, and only those permitted."""

import json
from pathlib import Path

import pytest

from helpers.cluster_runs import TWO, lines_of, needs_ray
from helpers.own_code import write_own_code
from helpers.processes import Finished, python

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("own code")]

OWN = ("--env", "MyCart-v0", "--import", "my_envs", "--network", "my_networks:Wide")
SMALL = ("--n-steps", "16", "--num-threads", "1", "--tensorboard", "false", "--cluster", "local")


def rlcb(folder: Path, *arguments: str) -> Finished:
    return python("-m", "rlcb", *arguments, cwd=folder)


@pytest.mark.parametrize(("algorithm", "more"), [("ppo", ("--batch-size", "128")), ("impala", ())])
def test_own_code_trains_and_resumes_on_a_cluster_of_this_machine(
    algorithm: str, more: tuple[str, ...], tmp_path: Path
) -> None:
    needs_ray()
    folder = write_own_code(tmp_path)
    done = rlcb(
        folder, "train", algorithm, *TWO, *OWN, *SMALL, *more, "--total-timesteps", "1024", "--output-dir", "run"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Modules: my_envs, my_networks" in done.stdout
    summary = json.loads((folder / "run" / "training_summary.json").read_text())
    assert (summary["status"], summary["total_timesteps"]) == ("finished", 1024)
    assert [node["workers"] for node in summary["nodes"]] == [2]
    resume = ("train", "--resume", "run", "--total-timesteps", "2048")
    rlcb(folder, *resume).assert_one_line_error(2, "env.imports", "--import my_envs")
    done = rlcb(folder, *resume, "--import", "my_envs", "--import", "my_networks")
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines_of(folder / "run")[-1]["step"] == 2048
