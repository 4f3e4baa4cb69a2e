"""perf/peers.py without peers: what is timed, how ratios and the table are made, a peer that cannot be installed."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from helpers.perf_scripts import run_script
from helpers.processes import ROOT


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "perf")
    return importlib.import_module("peers")


@pytest.fixture
def work(peers: ModuleType) -> ModuleType:
    return importlib.import_module("peer_work")


def test_the_clock_times_whole_updates_after_the_warm_up(work: ModuleType) -> None:
    clock = work.Clock(work.WORK["ppo"], 4.0)
    enough = [clock.update_ended(4096 * (number + 1), 10.0 + 3 * number) for number in range(5)]
    assert enough == [False, False, True, True, True]
    assert clock.result() == {"fps": 8192 / 6, "updates": 2.0, "env_steps": 8192, "seconds": 6.0}


def test_a_run_that_ends_too_early_has_no_result(work: ModuleType) -> None:
    clock = work.Clock(work.WORK["a2c"], 1.0)
    assert not clock.update_ended(160, 0.0)
    with pytest.raises(SystemExit, match=r"before 1\.0 s were timed"):
        clock.result()


def test_ratios_are_formed_within_rounds_and_a_failure_is_a_row(peers: ModuleType) -> None:
    sides = [peers.Side("ours"), peers.Side("theirs", "sb3"), peers.Side("broken", "rllib")]
    speeds = {("ours", 1): 300.0, ("theirs", 1): 100.0, ("theirs", 2): 200.0, ("ours", 2): 400.0, ("ours", 3): 900.0}
    runs = [peers.Run(side, number, fps, 1.0, 4096, 1.0, 10.0 * number) for (side, number), fps in speeds.items()]
    assert peers.ratios(runs, "ours", "theirs") == [3.0, 2.0]
    assert peers.table(runs, sides, {"broken": "failed in round 1: a | b\nc"})[2:] == [
        "| ours | 400 (300–900) | – | 30 |",
        "| theirs | 150 (100–200) | 2.50 (2.00–3.00) | 20 |",
        "| broken | failed in round 1: a / b c | | |",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a2c", "--peers", "rllib"), "--peers: rllib has no a2c; valid: sb3"),
        (("ppo", "--workers", "3"), "--workers: 3 does not divide 32 environments"),
        (("ppo", "--env-runners", "3"), "--env-runners: 3 must divide 32"),
        (("ppo", "--seconds", "0"), "--seconds: must be above 0"),
        (("ppo", "--peers", "cleanrl"), "--peers: cleanrl needs --cleanrl PATH"),
        (("ppo", "--cleanrl", "/nowhere"), "--cleanrl: /nowhere does not exist"),
    ],
)
def test_impossible_flags_are_refused(arguments: tuple[str, ...], message: str) -> None:
    done = run_script("peers.py", *arguments)
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]


def test_a_peer_that_cannot_be_installed_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    short = ("--rounds", "1", "--seconds", "0.2", "--workers", "0", "--output", tmp_path / "report.json")
    done = run_script("peers.py", "a2c", *short, "--venvs", tmp_path / "file")
    assert done.returncode == 1, done.stderr  # nothing was compared
    assert "| Stable-Baselines3 | not installed: " in done.stdout
    report = json.loads((tmp_path / "report.json").read_text())
    assert [one["side"] for one in report["runs"]] == ["rlcb sequential fp32"]
    assert report["runs"][0]["seconds"] >= 0.2
    assert report["runs"][0]["peak_memory_mb"] > 0
