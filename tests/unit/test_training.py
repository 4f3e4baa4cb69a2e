"""The loop over a suite's runs, with machines that lose them: what goes on, what is given up."""

import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from helpers.processes import ROOT
from helpers.run_directories import write_run
from rlcb.analysis.suites import SuiteRun
from rlcb.errors import UsageError
from rlcb.signals import StopRequest
from rlcb.suite.directory import store, stored
from rlcb.suite.display import Display
from rlcb.suite.machines import Machines, UnderWay
from rlcb.suite.settings import build_suite, moved
from rlcb.suite.training import Training
from rlcb.suite.work import Work

Ending = str  # lost, refused, saved (a checkpoint, then lost), finished, or stopped or late when a signal came


class Ended:
    """A run on a machine that ends at once."""

    where, seconds, resumed = "a node", 1.0, False

    def __init__(self, ending: Ending):
        self.signal = signal.SIGINT if ending in ("stopped", "late") else None
        self.lost = "" if ending in ("finished", "stopped", "late") else "a node died"
        self.refused = "it has torch 1.0" if ending == "refused" else ""

    def ended(self, patience: float, stop: StopRequest) -> bool:
        stop.signal = self.signal
        return True

    def reason(self) -> str | None:
        return "exit code 130" if self.signal else self.lost or None

    def last_lines(self, most: int) -> list[str]:
        return ["the last line"][:most]

    def last_line(self) -> str:
        return "the last line"


class Unreliable(Machines):
    """One node, where a run meets one ending after the other."""

    count = 1

    def __init__(self, *endings: Ending):
        self.endings, self.starts, self._there = list(endings), 0, False

    def at_once(self, run: SuiteRun) -> int:
        return 1

    def start(self, run: SuiteRun, unfinished: Sequence[SuiteRun]) -> UnderWay | None:
        assert not self._there
        assert run in unfinished
        self.starts, self._there, ending = self.starts + 1, True, self.endings.pop(0)
        if ending in ("saved", "stopped"):
            folder = run.path / "checkpoints"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"ppo_sequential_step_{256 * self.starts}.pt").touch()
            for name in ("run.json", "config.yaml"):
                (run.path / name).touch()
        if ending in ("finished", "late"):
            shutil.rmtree(run.path, ignore_errors=True)
            write_run(run.path, name="CartPole-v1", seed=run.seed)
            run.final_checkpoint.parent.mkdir()
            run.final_checkpoint.write_bytes(b"weights")
        return Ended(ending)

    def leave(self, run: SuiteRun) -> None:
        self._there = False

    def check(self) -> None:
        pass

    def description(self) -> list[str]:
        return []

    def outlook(self, runs: Sequence[SuiteRun]) -> list[list[tuple[SuiteRun, str]]]:
        return []


def outcome(output: Path, machines: Unreliable, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Train the one run of a suite there; returns the failures."""
    monkeypatch.chdir(ROOT)
    given = {"modes": ["sequential"], "seeds": [1], "games": ["CartPole-v1"], "total_timesteps": 4096}
    suite = build_suite(None, {key: (f"--{key}", value) for key, value in given.items()})
    work = Work(output, suite, StopRequest(), Display(), None, machines)
    output.mkdir()
    Training(work).train()
    return work.failures


def events(output: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (output / "suite_events.jsonl").read_text().splitlines()]


def test_a_run_goes_on_elsewhere_as_long_as_it_gets_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Unreliable("lost", "lost", "saved", "lost", "lost", "saved", "finished")
    assert outcome(tmp_path / "out", machines, monkeypatch) == {}
    assert machines.endings == []
    assert events(tmp_path / "out") == [*["run_started", "node_lost"] * 6, "run_started", "run_finished"]


def test_a_run_that_gets_no_further_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machines = Unreliable("saved", "lost", "lost", "lost", "finished")
    assert list(outcome(tmp_path / "out", machines, monkeypatch).values()) == ["a node died"]
    assert machines.starts == 4
    assert events(tmp_path / "out")[-1] == "run_failed"
    assert "FAILED, a node died" in (said := capsys.readouterr().out)
    assert said.rstrip().endswith("    the last line")


def test_a_run_that_loses_ten_nodes_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Unreliable(*["saved"] * 20)
    assert len(outcome(tmp_path / "out", machines, monkeypatch)) == 1
    assert machines.starts == 11


def test_a_run_that_a_signal_stops_and_one_that_it_reaches_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for ending, event, words in (
        ("stopped", "run_interrupted", "interrupted, saved at step 256 [0 of 1 done"),
        ("late", "run_finished", "finished, "),
    ):
        assert outcome(tmp_path / ending, Unreliable(ending), monkeypatch) == {}
        assert events(tmp_path / ending) == ["run_started", event]
        assert f"[1/1] ppo sequential CartPole-v1 seed 1: {words}" in capsys.readouterr().out


def test_nodes_that_cannot_be_used_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Unreliable(*["refused"] * 20, "finished")
    assert outcome(tmp_path / "out", machines, monkeypatch) == {}


def test_where_a_suite_trains_may_change_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 32)
    given = {"games": ["CartPole-v1"], "total_timesteps": 4096, "num_workers": 2, "cluster": "10.0.0.1:6379"}
    suite = build_suite(None, {key: (f"--{key}", value) for key, value in given.items()})
    sequential, parallel = suite.configs.values()
    assert suite.settings.cluster == "10.0.0.1:6379"
    assert (sequential.parallel.cluster, parallel.parallel.cluster) == (None, "10.0.0.1:6379")
    store(tmp_path, suite)
    here = moved(stored(tmp_path), {"cluster": None})
    assert here.settings.cluster is None
    assert [config.parallel.cluster for config in here.configs.values()] == [None, None]
    other = moved(here, {"cluster": "10.0.0.2:6379", "insecure": True})
    assert (other.settings.cluster, other.settings.insecure) == ("10.0.0.2:6379", True)
    back = moved(other, {"cluster": "10.0.0.1:6379", "insecure": False})
    assert back.configs == suite.configs
    with pytest.raises(UsageError, match="HOST:PORT"):
        moved(here, {"cluster": "laptop"})
    local = build_suite(None, {key: (f"--{key}", value) for key, value in {**given, "cluster": "local"}.items()})
    assert local.settings.cluster is None  # for the parallel runs alone
