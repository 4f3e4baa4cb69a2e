"""The evaluations that lie beside a run's checkpoints."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcb.analysis.untrusted import number, plain, read_object, whole_number
from rlcb.envs.families import procgen_game
from rlcb.errors import UsageError

_SUFFIX = "_evaluation.json"


@dataclass(frozen=True)
class Evaluation:
    """Episodes played by a finished policy; rewards are per episode."""

    env: str
    levels: str  # train or unseen
    policy: str  # sampled or deterministic
    num_levels: int | None
    start_level: int | None
    distribution_mode: str
    episodes: int
    complete: bool
    mean_reward: float
    std_reward: float | None
    min_reward: float | None
    max_reward: float | None
    mean_length: float | None
    ci95: tuple[float, float] | None
    normalized_score: float | None
    success_rate: float | None


@dataclass(frozen=True)
class Evaluations:
    """What one evaluation file holds; of several for the same levels and policy the last whole one counts."""

    checkpoint: str
    env_steps: int | None
    entries: tuple[Evaluation, ...]

    def find(self, env: str, levels: str, policy: str) -> Evaluation | None:
        """The evaluation on these levels with this policy."""
        wanted = (env, levels, policy)
        fitting = [entry for entry in self.entries if (entry.env, entry.levels, entry.policy) == wanted]
        return next(reversed([entry for entry in fitting if entry.complete] or fitting), None)


NO_EVALUATIONS = Evaluations("", None, ())


def load_evaluations(folder: Path, prefix: str) -> tuple[Evaluations, list[str]]:
    """The evaluations of a run's final checkpoint, else of its newest one; and what was wrong with them."""
    try:
        files = [path for path in folder.iterdir() if path.name.endswith(_SUFFIX) and path.name.startswith(prefix)]
    except OSError:
        return NO_EVALUATIONS, []  # no checkpoints, no evaluations
    if not files:
        return NO_EVALUATIONS, []
    path = max(files, key=_age)
    try:
        content = read_object(path)
    except UsageError as error:
        return NO_EVALUATIONS, [f"evaluation left out: {error}"]
    entries = content.get("evaluations")
    found = [_entry(item) for item in entries] if isinstance(entries, list) else [None]
    problems = [f"{path.name}: evaluations that make no sense left out"] if None in found else []
    usable = tuple(entry for entry in found if entry)
    return Evaluations(path.name.removesuffix(_SUFFIX), whole_number(content.get("env_steps")), usable), problems


def _age(path: Path) -> tuple[bool, int]:
    """Orders evaluation files: the final checkpoint's last, before it by steps."""
    stem = path.name.removesuffix(_SUFFIX)
    steps = re.search(r"_step_(\d{1,15})$", stem)
    return stem.endswith("_final"), int(steps[1]) if steps else -1


def _entry(item: Any) -> Evaluation | None:
    """One evaluation, None where what matters is missing or no number."""
    if not isinstance(item, dict):
        return None
    mean, episodes = number(item.get("mean_reward")), whole_number(item.get("episodes"))
    if mean is None or not episodes or item.get("levels") not in ("train", "unseen"):
        return None
    name = plain(item.get("env"))
    game = procgen_game(name)
    ci = item.get("ci95")
    bounds = [number(bound) for bound in ci] if isinstance(ci, list) and len(ci) == 2 else [None, None]
    low, high = bounds
    return Evaluation(
        env=f"procgen-{game}-v0" if game else name,
        levels=str(item["levels"]),
        policy="deterministic" if item.get("policy") == "deterministic" else "sampled",
        num_levels=whole_number(item.get("num_levels")),
        start_level=whole_number(item.get("start_level")),
        distribution_mode=plain(item.get("distribution_mode")),
        episodes=episodes,
        complete=item.get("complete") is not False,
        mean_reward=mean,
        std_reward=number(item.get("std_reward")),
        min_reward=number(item.get("min_reward")),
        max_reward=number(item.get("max_reward")),
        mean_length=number(item.get("mean_length")),
        ci95=(low, high) if low is not None and high is not None else None,
        normalized_score=number(item.get("normalized_score")),
        success_rate=number(item.get("success_rate")),
    )
