"""Runs, updates and episodes as DataFrames of a real pandas: every cell is what the files say."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.run_directories import log_of, write_evaluation, write_run
from rlcb.analysis.frames import INSTALL_PANDAS, Runs
from rlcb.analysis.load import load_runs
from rlcb.evaluation.results import EpisodeResults, Evaluated

WITHOUT = """
import sys
sys.modules["pandas"] = None  # as if it were not installed
import rlcb
try:
    rlcb.load_runs(sys.argv[1]).to_frame()
except rlcb.UsageError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def pandas() -> Any:
    return pytest.importorskip("pandas", reason=f"pandas is not installed: {INSTALL_PANDAS}")


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    write_run(tmp_path / "a", seed=1)
    write_run(tmp_path / "b", seed=2, mode="parallel", workers=2, threads=1)
    write_run(tmp_path / "c", seed=3, algorithm="a2c", updates=20)
    write_evaluation(tmp_path / "a", 6.0, 5.0)
    return Runs(load_runs([tmp_path], lambda _: None))


def test_a_row_for_each_run(pandas: Any, runs: Runs) -> None:
    table = runs.to_frame()
    assert isinstance(table, pandas.DataFrame)
    assert table["path"].tolist() == [str(run.path) for run in runs]
    for name in ("algorithm", "mode", "env", "seed", "status", "num_workers", "num_envs", "num_threads", "device"):
        assert table[name].tolist() == [getattr(run, name) for run in runs], name
    for name in vars(runs[0].metrics):
        known = [getattr(run.metrics, name) for run in runs]
        assert table[name].dtype == np.float64, name
        np.testing.assert_array_equal(table[name], [np.nan if value is None else value for value in known], name)
    np.testing.assert_array_equal(table["evaluation_unseen"], [5.0, np.nan, np.nan])


def test_tables_can_be_grouped_and_averaged(pandas: Any, runs: Runs) -> None:
    speeds = runs.to_frame().groupby(["algorithm", "mode"])["average_fps"].mean()
    assert speeds.loc["ppo", "parallel"] == runs[1].metrics.average_fps
    assert len(speeds) == 3
    assert pandas.isna(runs.to_frame()["gpu_percent"].mean())


def test_no_runs_are_an_empty_table(pandas: Any) -> None:
    assert isinstance(Runs().to_frame(), pandas.DataFrame)
    assert Runs().to_frame().empty


def test_a_row_for_each_update(pandas: Any, runs: Runs) -> None:
    table = runs[0].to_frame()
    lines = [json.loads(line) for line in log_of(runs[0].path).read_text().splitlines()]
    assert isinstance(table, pandas.DataFrame)
    assert table.columns.tolist() == list(lines[0])
    assert table.to_dict("records") == lines
    assert table["step"].dtype == np.int64


def test_what_an_update_has_not_logged_is_nan(pandas: Any, runs: Runs) -> None:
    log = log_of(runs[0].path)
    first, *others = log.read_text().splitlines()
    content = json.loads(first)
    del content["loss/value"]
    log.write_text("\n".join([json.dumps({**content, "rollout/ep_reward_mean": None}), *others]) + "\n")
    table = runs[0].to_frame()
    assert table.loc[0, ["loss/value", "rollout/ep_reward_mean"]].isna().all()
    assert not pandas.isna(table.loc[1:, ["loss/value", "rollout/ep_reward_mean"]]).any(axis=None)
    assert table["rollout/ep_reward_mean"].dtype == np.float64


def test_a_row_for_each_episode(pandas: Any, tmp_path: Path) -> None:
    def played(levels: str, rewards: tuple[float, ...]) -> EpisodeResults:
        names = EpisodeResults.__dataclass_fields__
        given = {"levels": levels, "rewards": rewards, "lengths": tuple(range(10, 10 + len(rewards)))}
        return EpisodeResults(**{**dict.fromkeys(names), **given})  # type: ignore[arg-type]

    results = (played("train", (10.0, 0.0)), played("unseen", (5.0,)))
    table = Evaluated(tmp_path / "x.pt", tmp_path / "x.json", results, 0.0, None).to_frame()
    assert isinstance(table, pandas.DataFrame)
    assert table.to_dict("list") == {
        "levels": ["train", "train", "unseen"], "reward": [10.0, 0.0, 5.0], "length": [10, 11, 10],
    }  # fmt: skip
    none = Evaluated(tmp_path / "x.pt", tmp_path / "x.json", (), None, 2).to_frame()
    assert (len(none), none.columns.tolist()) == (0, ["levels", "reward", "length"])


def test_without_pandas_one_line_says_what_to_install(runs: Runs) -> None:
    command = [sys.executable, "-c", WITHOUT, str(runs[0].path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == (f"to_frame: pandas is not installed: {INSTALL_PANDAS}\n", "")
