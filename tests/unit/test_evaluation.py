"""Evaluation: how episodes are shared out and counted, what is computed from them, what a result replaces."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rlcb.envs.families import GAMES, normalized_score, score_range
from rlcb.evaluation.play import Tally, default_num_envs, quotas_of, seeds_of
from rlcb.evaluation.results import (
    EvaluationFile,
    difference_interval,
    mean_interval,
    sample_deviation,
    share_interval,
)


@given(st.integers(1, 3000))
def test_quotas_are_even_or_differ_by_one(episodes: int) -> None:
    num_envs = default_num_envs(episodes)
    quotas = quotas_of(episodes, num_envs)
    assert sum(quotas) == episodes
    assert len(quotas) == num_envs <= min(episodes, 128)
    assert max(quotas) - min(quotas) <= 1
    assert num_envs >= min(episodes, 32)  # never slow for want of a divisor


def test_the_usual_numbers_of_envs() -> None:
    assert [default_num_envs(n) for n in (1, 7, 100, 128, 500, 1000, 251)] == [1, 7, 100, 128, 125, 125, 128]


def test_streams_are_apart_from_each_other_and_from_training() -> None:
    seeds = [seeds_of(42, stream) for stream in range(3)]
    training = np.random.SeedSequence(42, spawn_key=(0,)).generate_state(3)
    assert len({number for pair in seeds for number in pair} | set(map(int, training))) == 9
    assert all(0 <= envs < 2**31 for _, envs in seeds)


@given(st.lists(st.floats(-1e3, 1e3).map(lambda x: round(x, 3)), min_size=2, max_size=30))
def test_interval_of_the_mean_is_students(values: list[float]) -> None:
    interval = mean_interval(values)
    if min(values) == max(values):
        assert interval is None
        return
    expected = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
    assert interval == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("first", "second"), [([1, 2, 3, 9], [4, 4, 5]), ([10, 0, 10, 0, 0], [0, 0, 0])])
def test_interval_of_a_difference_is_welchs(first: list[float], second: list[float]) -> None:
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert difference_interval(first, second) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(("successes", "count"), [(0, 100), (100, 100), (37, 100), (1, 2), (999, 1000)])
def test_interval_of_a_share_is_wilsons(successes: int, count: int) -> None:
    expected = stats.binomtest(successes, count).proportion_ci(0.95, method="wilson")
    assert share_interval(successes, count) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_what_is_not_known_is_none_and_never_zero() -> None:
    assert mean_interval([7.0]) is mean_interval([0.1, 0.1, 0.1]) is None
    assert sample_deviation([7.0]) is None
    assert sample_deviation([0.1, 0.1, 0.1]) == 0
    assert difference_interval([1.0], [1.0, 2.0]) is difference_interval([3.0, 3.0], [1.0, 1.0]) is None
    assert share_interval(1, 1) is None


def test_normalized_scores() -> None:
    assert all(score_range(game, mode) for game in GAMES for mode in ("easy", "hard"))
    assert normalized_score("procgen-coinrun-v0", "easy", 7.5) == pytest.approx(0.5)
    assert normalized_score("procgen-maze-v0", "hard", 4.0) == 0
    assert normalized_score("procgen-starpilot-v0", "hard", 35) == 1
    assert normalized_score("procgen-fruitbot-v0", "easy", -1.5 + 33.9 / 4) == pytest.approx(0.25)
    assert normalized_score("procgen-chaser-v0", "extreme", 5) is normalized_score("CartPole-v1", None, 5) is None
    # What PPO reached in the paper after 25 million steps.
    reached = {"coinrun": 9.50, "starpilot": 30.57, "maze": 9.38, "plunder": 5.36}
    scores = {game: normalized_score(game, "easy", reward) for game, reward in reached.items()}
    assert scores == pytest.approx({"coinrun": 0.9, "starpilot": 28.07 / 61.5, "maze": 0.876, "plunder": 0.86 / 25.5})


def test_an_evaluation_that_was_cut_short_never_replaces_a_whole_one(tmp_path: Path) -> None:
    file = EvaluationFile(tmp_path / "x_evaluation.json", {"checkpoint_sha256": "0"})
    kind: dict[str, Any] = {"env": "CartPole-v1", "levels": "train", "policy": "sampled", "num_levels": 0}
    kind |= {"mean_reward": 1.0, "rewards": [1.0]}
    whole, cut, again = ({**kind, "complete": complete, "n": n} for n, complete in ((1, True), (2, False), (3, False)))

    def kept() -> list[int]:
        return [entry["n"] for entry in json.loads(file.path.read_text())["evaluations"]]

    for evaluation, expected in ((whole, [1]), (cut, [1, 2]), (again, [1, 3]), ({**whole, "n": 4}, [4])):
        file.put(evaluation)
        assert kept() == expected


def test_a_tally_counts_in_the_order_of_the_envs() -> None:
    tally = Tally([1, 2])
    for env, reward in ((1, 5.0), (0, 3.0), (1, 4.0)):
        assert tally.missing(env)
        tally.add(env, reward, int(reward), None)
    assert (tally.rewards, tally.lengths, tally.finished, tally.planned) == ([3.0, 5.0, 4.0], [3, 5, 4], 3, 3)
    assert not tally.missing(0)
    assert not tally.missing(1)
