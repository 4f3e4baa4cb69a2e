"""Metrics of an evaluation: mean, intervals, scores; the JSON file beside the checkpoint."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlcb.analysis.evaluations import Evaluation as LevelResults
from rlcb.analysis.frames import frame
from rlcb.analysis.statistics import student_interval, welch_error
from rlcb.analysis.untrusted import number, read_object
from rlcb.config.environment import EnvConfig
from rlcb.console import warn
from rlcb.envs.families import find, normalized_score
from rlcb.errors import ResourceError, UsageError
from rlcb.evaluation.evaluate import Request
from rlcb.files import write_json

if TYPE_CHECKING:
    from pandas import DataFrame

    from rlcb.evaluation.play import Tally  # it imports torch

Evaluation = dict[str, Any]  # as the file has it
Interval = tuple[float, float] | None
SCHEMA = 1
_NORMAL_95 = 1.959963984540054  # the normal distribution's 97.5 % point


@dataclass(frozen=True)
class EpisodeResults(LevelResults):
    """The same with the episodes themselves, in the order of the environments that played them."""

    seed: int
    num_envs: int
    seconds: float
    fps: float
    rewards: tuple[float, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class Evaluated:
    """What a policy has achieved: an entry for each set of levels it was played on, which are also in `file`."""

    checkpoint: Path
    file: Path
    results: tuple[EpisodeResults, ...]
    generalization_gap: float | None  # train minus unseen, where both were played
    signal: int | None  # that ended it early

    @property
    def mean_reward(self) -> float | None:
        """That of the first set of levels; None if no episode was finished."""
        return self.results[0].mean_reward if self.results else None

    @property
    def exit_code(self) -> int:
        """0, or 128 + the number of the signal."""
        return 128 + self.signal if self.signal else 0

    def to_frame(self) -> "DataFrame":
        """A pandas DataFrame with a row for each episode: levels, reward, length."""
        parts = [(one.levels, *pair) for one in self.results for pair in zip(one.rewards, one.lengths, strict=True)]
        levels, rewards, lengths = zip(*parts, strict=True) if parts else ((), (), ())
        return frame({"levels": levels, "reward": rewards, "length": lengths})


def as_results(evaluation: Evaluation) -> EpisodeResults:
    """An evaluation as a record."""
    found = {field.name: evaluation[field.name] for field in fields(EpisodeResults)}
    found |= {"rewards": tuple(evaluation["rewards"]), "lengths": tuple(evaluation["lengths"])}
    return EpisodeResults(**{**found, "distribution_mode": evaluation["distribution_mode"] or ""})


def mean_interval(values: Sequence[float]) -> Interval:
    """Student's 95 % interval of the mean; None where the spread is unknown (one value) or 0."""
    deviation = sample_deviation(values)
    if not deviation:
        return None
    return student_interval(float(np.mean(values)), deviation / math.sqrt(len(values)), len(values) - 1)


def difference_interval(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Welch's 95 % interval of the difference of two means; None where the spread is unknown or 0."""
    deviations = sample_deviation(first), sample_deviation(second)
    if deviations[0] is None or deviations[1] is None or not any(deviations):
        return None
    return student_interval(float(np.mean(first) - np.mean(second)), *welch_error(first, second))


def share_interval(successes: int, count: int) -> Interval:
    """Wilson's 95 % interval of a share, which holds at 0 and 1 too; None below two trials."""
    if count < 2:
        return None
    square, share = _NORMAL_95**2, successes / count
    middle = (share + square / (2 * count)) / (1 + square / count)
    half = _NORMAL_95 * math.sqrt(share * (1 - share) / count + square / (4 * count**2)) / (1 + square / count)
    return max(middle - half, 0.0), min(middle + half, 1.0)


def sample_deviation(values: Sequence[float]) -> float | None:
    """Standard deviation with ddof 1; None for fewer than two values."""
    if len(values) < 2:
        return None
    # Rounding must not give equal values a deviation.
    return float(np.std(values, ddof=1)) if min(values) < max(values) else 0.0


def evaluation_of(request: Request, levels: str, env: EnvConfig, tally: "Tally", seconds: float) -> Evaluation:
    """All metrics of the episodes that were played on these levels."""
    family, game = find(env.name)
    has_levels, success = family.has_levels, family.has_success(game)
    mode = env.distribution_mode if has_levels else None
    rewards, lengths, completed = tally.rewards, tally.lengths, tally.completed
    mean, successes = float(np.mean(rewards)), sum(completed)
    return {
        "env": env.name,
        "levels": levels,
        "num_levels": env.num_levels if has_levels else None,
        "start_level": env.start_level if has_levels else None,
        "distribution_mode": mode,
        "policy": request.policy,
        "seed": request.seed,
        "num_envs": len(tally.quotas),
        "episodes": len(rewards),
        "complete": tally.finished == tally.planned,
        "mean_reward": mean,
        "std_reward": sample_deviation(rewards),
        "min_reward": min(rewards),
        "max_reward": max(rewards),
        "mean_length": float(np.mean(lengths)),
        "std_length": sample_deviation(lengths),
        "ci95": mean_interval(rewards),
        "normalized_score": normalized_score(env.name, mode, mean),
        "success_rate": successes / len(completed) if success else None,
        "success_ci95": share_interval(successes, len(completed)) if success else None,
        "seconds": round(seconds, 3),
        "fps": tally.steps / seconds,
        "rewards": rewards,
        "lengths": lengths,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def gaps_of(evaluations: list[Evaluation]) -> list[dict[str, Any]]:
    """Mean on training levels minus mean on unseen ones, wherever both evaluations are complete."""
    whole = {(e["env"], e["policy"], e["levels"]): e for e in evaluations if e["complete"]}
    gaps = []
    for (env, policy, levels), train in whole.items():
        unseen = whole.get((env, policy, "unseen"))
        # A run on all levels has no unseen ones: its two samples differ by chance alone.
        if levels == "train" and unseen and train["num_levels"]:
            interval = difference_interval(train["rewards"], unseen["rewards"])
            gap = train["mean_reward"] - unseen["mean_reward"]
            gaps.append({"env": env, "policy": policy, "gap": gap, "ci95": interval})
    return gaps


class EvaluationFile:
    """The JSON file of one checkpoint's evaluations: a new one replaces that of the same env, levels and policy.

    An incomplete evaluation never replaces a complete one; both are kept until the new one is complete, too.
    """

    def __init__(self, path: Path, header: dict[str, Any]):
        """`header`: checkpoint, checkpoint_sha256, algorithm, mode, env_steps."""
        self.path = path
        self._header = header
        self.problem: ResourceError | None = None

    def put(self, evaluation: Evaluation) -> list[dict[str, Any]]:
        """Add an evaluation to the file; returns the gaps. A failure is kept in `problem`."""
        kind, complete = itemgetter("env", "levels", "policy"), evaluation["complete"]
        evaluations = [e for e in self._stored() if kind(e) != kind(evaluation) or (e["complete"] and not complete)]
        evaluations.append(evaluation)
        gaps = gaps_of(evaluations)
        document = {"schema": SCHEMA, **self._header, "evaluations": evaluations, "generalization_gap": gaps}
        try:
            write_json(self.path, document)
            self.problem = None
        except ResourceError as error:
            self.problem = error
        return gaps

    def _stored(self) -> list[Evaluation]:
        """The evaluations of this checkpoint, identified by its hash, that the file holds."""
        if not os.path.lexists(self.path):
            return []
        try:
            document = read_object(self.path)
        except UsageError as error:
            problem = str(error)
        else:
            entries = document.get("evaluations")
            problem = "invalid evaluations"
            if document.get("schema") == SCHEMA and isinstance(entries, list) and all(map(_is_whole, entries)):
                same = document.get("checkpoint_sha256") == self._header["checkpoint_sha256"]
                return entries if same else []
        warn(f"{self.path}: earlier evaluations cannot be read and are replaced ({problem})")
        return []


def _is_whole(entry: Any) -> bool:
    """Whether a stored evaluation has all that a later one is put beside."""
    if not isinstance(entry, dict) or number(entry.get("mean_reward")) is None or "num_levels" not in entry:
        return False
    words = all(isinstance(entry.get(name), str) for name in ("env", "levels", "policy"))
    rewards = entry.get("rewards")
    numbers = isinstance(rewards, list) and rewards and all(number(reward) is not None for reward in rewards)
    return words and isinstance(entry.get("complete"), bool) and bool(numbers)
