"""perf/time_to_reward.py without peers: what is trained, when a run is stopped, what is kept and what is refused."""

import csv
import importlib
import json
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from helpers.perf_scripts import run_script
from helpers.processes import ROOT
from helpers.run_directories import write_run
from rlcb.analysis.load import load_run
from rlcb.analysis.reaching import RewardLevel


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "perf")
    return importlib.import_module("time_to_reward")


@pytest.fixture
def runs(script: ModuleType) -> ModuleType:
    return importlib.import_module("reward_runs")


def peer(runs: ModuleType, folder: Path, body: str) -> Any:
    """A way whose command is a script that gets `log`, a file open for writing in its folder."""
    script = folder / "peer.py"
    start = """
        import sys, time
        log = open(f"{sys.argv[-1]}/monitor.csv", "w", buffering=1)
        log.write('#{"t_start": 0.0}\\nr,l,t,env_steps\\n')
    """
    script.write_text(textwrap.dedent(start) + textwrap.dedent(body))
    return runs.Way("other_ppo", "Other PPO", "ppo", (sys.executable, str(script)), "sb3")


def test_all_seven_ways_and_the_peers_that_have_their_algorithms(script: ModuleType) -> None:
    options = script.make_parser().parse_args(["--peers", "sb3", "rllib", "--device", "cpu", "--precision", "bf16"])
    ours = script.our_ways(options, ["--network", "impala"])
    assert [way.title for way in ours] == [
        "PPO sequential", "PPO parallel", "IMPALA sequential", "IMPALA parallel", "A2C sequential", "A2C parallel",
        "A3C parallel",
    ]  # fmt: skip
    passed_on = ("--device", "cpu", "--precision", "bf16", "--network", "impala")
    assert all(way.command[-6:] == passed_on for way in ours)
    peers = [way.title for way in script.peer_ways(options)]
    assert peers == ["Stable-Baselines3 PPO", "Stable-Baselines3 A2C", "RLlib PPO", "RLlib IMPALA"]
    options.ways = ["a2c_parallel"]
    assert [way.title for way in script.peer_ways(options)] == ["Stable-Baselines3 A2C"]


def test_the_same_work_is_that_of_the_peers_and_accepted_in_every_way(script: ModuleType) -> None:
    options = script.make_parser().parse_args(["--same-work", "--workers", "2"])
    ways = {way.name: way for way in script.our_ways(options, [])}
    command = ways["ppo_parallel"].command
    for flag, value in (("--n-steps", "128"), ("--learning-rate", "0.0003"), ("--num-envs-per-worker", "16")):
        assert command[command.index(flag) + 1] == value
    assert "--num-workers" not in ways["ppo_sequential"].command
    assert [script.unusable(ways[name]) for name in ("ppo_sequential", "impala_parallel", "a3c_parallel")] == [
        "",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ways", "ppo_both"), "invalid choice: 'ppo_both'"),
        (("--minutes", "0"), "--minutes: must be above 0"),
        (("--workers", "3"), "--workers: 3 does not divide 32 environments"),
        (("--levels", "high"), "'high' is not a number"),
        (("--peers", "cleanrl"), "--peers: cleanrl needs --cleanrl PATH"),
        (("--ways", "ppo_sequential", "--precision", "fp64"), "PPO sequential: rlcb train: error: "),
    ],
)
def test_impossible_flags_are_refused(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run_script("time_to_reward.py", *arguments, "--output", tmp_path / "out")
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_a_missing_peer_is_named_with_its_pip_install_before_anything_is_trained(tmp_path: Path) -> None:
    done = run_script(
        "time_to_reward.py",
        "--ways",
        "a2c_sequential",
        "--peers",
        "sb3",
        "--venvs",
        tmp_path / "venvs",
        "--output",
        tmp_path / "out",
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "Stable-Baselines3 is not installed: python -m venv" in line
    assert f"{tmp_path}/venvs/sb3/bin/python -m pip install 'torch==" in line
    assert "'stable-baselines3>=" in line
    assert not (tmp_path / "out").exists()


def test_a_run_is_enough_when_its_highest_level_or_its_time_is_reached(runs: ModuleType, tmp_path: Path) -> None:
    found = load_run(write_run(tmp_path / "a", updates=120, rewards=(3.0, 8.0), noise=0.0, fps=1000.0))
    levels = (RewardLevel(5.0), RewardLevel(7.5))
    assert runs.why_enough(found, runs.Limits(levels, 3600.0)) == "stopped: reward 7.5 reached"
    high = (RewardLevel(5.0), RewardLevel(9.5))
    assert runs.why_enough(found, runs.Limits(high, 3600.0)) == ""
    assert runs.why_enough(found, runs.Limits(high, 120.0)) == "stopped: 2 minutes are over"
    few = replace(found, history=replace(found.history, episodes=np.full(len(found.history), 499.0)))
    assert runs.why_enough(few, runs.Limits(levels, 3600.0)) == ""  # a mean of fewer than 500 episodes is none


def test_a_peer_is_stopped_at_the_highest_level_and_kept(runs: ModuleType, tmp_path: Path) -> None:
    body = """
        for episode in range(1000):
            log.write(f"{5 if episode < 300 else 9},100,{episode},{3200 * (episode + 1)}\\n")
        time.sleep(600)
    """
    way, limits = peer(runs, tmp_path, body), runs.Limits((RewardLevel(6.0), RewardLevel(8.0)), 3600.0)
    begun = time.monotonic()
    outcome = runs.train(way, 3, tmp_path / "out", limits)
    assert time.monotonic() - begun < 300  # it would sleep for 600
    assert outcome.why == "stopped: reward 8 reached"
    # The mean of the last 500 episodes is 5 + 4 k / 500 after k of the good ones; the first 500 count from their end.
    first, second = (one.steps[0] for one in runs.reach([outcome.run], limits.levels))
    assert (first, second) == (3200.0 * 500, 3200.0 * 675)
    assert (outcome.run.seed, outcome.run.game, outcome.run.num_levels) == (3, "coinrun", 200)
    (tmp_path / "peer.py").unlink()
    again = runs.train(way, 3, tmp_path / "out", limits)
    assert (again.kept, again.why) == (True, outcome.why)
    with pytest.raises(runs.SideError, match="was trained with other settings"):
        runs.train(way, 3, tmp_path / "out", replace(limits, seconds=1.0))


def test_a_peer_that_fails_says_why_and_leaves_nothing_to_keep(runs: ModuleType, tmp_path: Path) -> None:
    way = peer(runs, tmp_path, 'sys.exit("no games here")')
    limits = runs.Limits((RewardLevel(6.0),), 3600.0)
    with pytest.raises(runs.SideError, match="exit status 1: no games here"):
        runs.train(way, 1, tmp_path / "out", limits)
    ended = peer(runs, tmp_path, 'log.write("1,2,3,4\\n")')
    assert runs.train(ended, 1, tmp_path / "out", limits).why == "all steps made"


def test_the_log_of_a_peer_has_every_episode_and_all_steps(script: ModuleType, tmp_path: Path) -> None:
    games = importlib.import_module("peer_games")
    log = games.EpisodeLog(tmp_path / "monitor.csv", 2)
    assert not (tmp_path / "monitor.csv").exists()
    for rewards, first in (((0, 1), (0, 0)), ((0, 9), (0, 1)), ((10, 2), (1, 1))):
        log.step(np.array(rewards, np.float32), np.array(first, bool))
    head, *lines = (tmp_path / "monitor.csv").read_text().splitlines()
    assert json.loads(head.removeprefix("#"))["env_id"] == "coinrun"
    rows = list(csv.DictReader(lines))
    assert [(row["r"], row["l"], row["env_steps"]) for row in rows] == [
        ("10", "2", "4"),
        ("10", "3", "6"),
        ("2", "1", "6"),
    ]


def test_real_runs_end_with_the_table(tmp_path: Path) -> None:
    short = ("--ways", "a2c_sequential", "--total-timesteps", "1024", "--levels", "5.93", "9", "--seeds", "1", "2")
    done = run_script("time_to_reward.py", *short, "--output", tmp_path / "out", "--", "--num-threads", "1")
    assert done.returncode == 0, done.stderr
    assert "seed 2  A2C sequential: no level reached; 1,024 steps, all steps made" in done.stdout
    assert "0 of 2 seeds" in done.stdout
    assert "a run ends after 1,024 steps, 60 minutes of training or its highest level" in done.stdout
    with (tmp_path / "out" / "time_to_reward.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["reward"], row["runs"], row["reached"], row["mean_hours"]) for row in rows] == [
        ("A2C Sequential", "5.93", "2", "0", ""), ("A2C Sequential", "9.0", "2", "0", ""),
    ]  # fmt: skip
    assert load_run(tmp_path / "out" / "coinrun" / "a2c_sequential" / "seed_1").num_threads == 1
