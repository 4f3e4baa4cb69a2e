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


FRAIL = """
import gymnasium
from my_envs.cart import MyCart

class Frail(MyCart):
    count = 0
    def step(self, action):
        self.count += 1
        if self.count > 150:
            raise LookupError("no wheel 5")
        return super().step(action)

gymnasium.register("Frail-v0", Frail, max_episode_steps=50)
"""


@pytest.mark.parametrize("algorithm", ["ppo", "impala", "a3c"])
def test_an_environment_that_raises_on_a_node_is_named(algorithm: str, tmp_path: Path) -> None:
    needs_ray()
    folder = write_own_code(tmp_path)
    (folder / "frail.py").write_text(FRAIL)
    more = () if algorithm == "a3c" else ("--batch-size", "128")
    words = ("train", algorithm, *TWO, "--env", "frail:Frail-v0", *SMALL, *more, "--total-timesteps", "1e8")
    failed = rlcb(folder, *words, "--output-dir", "run")
    named = f"environment Frail-v0 failed with LookupError: no wheel 5 ({folder / 'frail.py'}, line 10)"
    assert failed.returncode == 7, failed.stdout + failed.stderr
    assert "Traceback" not in failed.stderr
    last = failed.stderr.strip().splitlines()[-1]
    assert last.startswith(f"rlcb train: error: {named}; the fault is in the environment")
    assert last.endswith("; traceback in run/traceback.txt; resume from the last checkpoint with: "
                         "rlcb train --resume run --import frail")  # fmt: skip
    assert "in step\n" in (folder / "run" / "traceback.txt").read_text()
