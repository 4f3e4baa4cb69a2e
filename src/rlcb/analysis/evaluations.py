"""The evaluations of a run, which are stored beside its checkpoints."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcb.analysis.untrusted import env_names, number, plain, read_object, whole_number
from rlcb.errors import UsageError

_SUFFIX = "_evaluation.json"
_NUMBERS = ("std_reward", "min_reward", "max_reward", "mean_length", "normalized_score", "success_rate")


@dataclass(frozen=True)
class Evaluation:
    """Episodes played by a trained policy; rewards are per episode."""

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
    """The content of an evaluation file; of several for the same levels and policy the last complete one counts."""

    checkpoint: str = ""
    env_steps: int | None = None
    entries: tuple[Evaluation, ...] = ()

    def find(self, env: str, levels: str, policy: str) -> Evaluation | None:
        """The evaluation on these levels with this policy, None where there is none."""
        wanted = (True, env, levels, policy)
        fitting = [entry for entry in self.entries if (entry.complete, entry.env, entry.levels, entry.policy) == wanted]
        return fitting[-1] if fitting else None


def load_evaluations(folder: Path, prefix: str) -> tuple[Evaluations, list[str]]:
    """The evaluations of a run's final checkpoint, else of its newest one; and what was wrong with them."""
    try:
        files = [path for path in folder.iterdir() if path.name.endswith(_SUFFIX) and path.name.startswith(prefix)]
    except OSError:
        files = []  # no checkpoints, no evaluations
    if not files:
        return Evaluations(), []
    path = max(files, key=_age)
    try:
        content = read_object(path)
    except UsageError as error:
        return Evaluations(), [f"evaluation ignored: {error}"]
    found = evaluations_in(content)
    problems = [f"{path.name}: invalid evaluations ignored"] if None in found else []
    usable = tuple(entry for entry in found if entry)
    return Evaluations(path.name.removesuffix(_SUFFIX), whole_number(content.get("env_steps")), usable), problems


def evaluations_in(content: dict[str, Any]) -> list[Evaluation | None]:
    """The evaluations that a file holds; None for each one that makes no sense."""
    entries = content.get("evaluations")
    return [_entry(item) for item in entries] if isinstance(entries, list) else [None]


def _age(path: Path) -> tuple[bool, int]:
    """Sort key of evaluation files: by steps, the final checkpoint's last."""
    stem = path.name.removesuffix(_SUFFIX)
    steps = re.search(r"_step_(\d{1,15})$", stem)
    return stem.endswith("_final"), int(steps[1]) if steps else -1


def _entry(item: Any) -> Evaluation | None:
    """One evaluation, None where a necessary value is missing or invalid."""
    if not isinstance(item, dict):
        return None
    mean, episodes = number(item.get("mean_reward")), whole_number(item.get("episodes"))
    if mean is None or not episodes or item.get("levels") not in ("train", "unseen"):
        return None
    ci = item.get("ci95")
    low, high = (number(bound) for bound in ci) if isinstance(ci, list) and len(ci) == 2 else (None, None)
    return Evaluation(
        env=env_names(item.get("env"))[0],
        levels=str(item["levels"]),
        policy="deterministic" if item.get("policy") == "deterministic" else "sampled",
        num_levels=whole_number(item.get("num_levels")),
        start_level=whole_number(item.get("start_level")),
        distribution_mode=plain(item.get("distribution_mode")),
        episodes=episodes,
        complete=item.get("complete") is not False,
        mean_reward=mean,
        ci95=(low, high) if low is not None and high is not None else None,
        **{name: number(item.get(name)) for name in _NUMBERS},
    )
