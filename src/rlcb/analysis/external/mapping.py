"""Which tag or column of a log means what: of known programs, or as a small YAML file says."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcb.analysis.external.log import AVERAGES, EPISODES
from rlcb.analysis.untrusted import plain, whole_number
from rlcb.config.yaml_file import read_yaml
from rlcb.errors import UsageError

_KEYS = ("program", "reward", "rewards", "length", "step", "time", "window")
_MOST_NAMED = 8  # tags in a message


@dataclass(frozen=True)
class Mapping:
    """Names of tags or columns; those that are empty are not in the log."""

    program: str
    reward: str
    kind: str  # EPISODES or AVERAGES
    length: str = ""
    step: str = ""  # empty: the step of the event itself
    time: str = ""  # empty: the time of the event itself
    averaged: str = ""  # what is known of averages
    window: int | None = None  # episodes of an average, as the user says

    def to_dict(self) -> dict[str, str]:
        """What each column comes from, for the record of an import."""
        return {name: getattr(self, name) for name in ("reward", "length", "step", "time") if getattr(self, name)}


_BY_DEFAULT = "by default over the last 100 episodes"
_SB3, _RLLIB = "Stable-Baselines3", "RLlib"
# In the order in which they are tried; the first whose reward is in the log is used.
OF_EVENTS = (
    Mapping("CleanRL", "charts/episodic_return", EPISODES, "charts/episodic_length"),
    Mapping(_SB3, "rollout/ep_rew_mean", AVERAGES, "rollout/ep_len_mean", averaged=_BY_DEFAULT),
    Mapping("Sample Factory", "reward/reward", AVERAGES, "len/len", averaged=_BY_DEFAULT),
    Mapping(
        _RLLIB, "ray/tune/env_runners/episode_return_mean", AVERAGES, "ray/tune/env_runners/episode_len_mean",
        "ray/tune/num_env_steps_sampled_lifetime", averaged=_BY_DEFAULT,
    ),
    Mapping(
        _RLLIB, "ray/tune/episode_reward_mean", AVERAGES, "ray/tune/episode_len_mean", "ray/tune/timesteps_total",
        averaged=_BY_DEFAULT,
    ),
)  # fmt: skip
OF_TABLES = (
    Mapping(
        _RLLIB, "env_runners/episode_return_mean", AVERAGES, "env_runners/episode_len_mean",
        "num_env_steps_sampled_lifetime", "time_total_s", _BY_DEFAULT,
    ),
    Mapping(
        _RLLIB, "episode_reward_mean", AVERAGES, "episode_len_mean", "timesteps_total", "time_total_s", _BY_DEFAULT
    ),
    Mapping(
        _SB3, "rollout/ep_rew_mean", AVERAGES, "rollout/ep_len_mean", "time/total_timesteps", "time/time_elapsed",
        _BY_DEFAULT,
    ),
)  # fmt: skip


def choose(known: Sequence[Mapping], names: Collection[str], where: Path, given: Mapping | None) -> Mapping:
    """The mapping that fits the names in a log; UsageError lists the names if none does."""
    if not names:
        raise UsageError(f"{where}: contains no numbers yet")
    if given is not None:
        missing = [name for name in given.to_dict().values() if name not in names]
        if missing:
            raise UsageError(f"{where}: has no {plain(missing[0])}, which the mapping refers to; {_there(names)}")
        return given
    found = next((one for one in known if one.reward in names and (one.step in names or not one.step)), None)
    if found is None:
        programs = " or ".join(dict.fromkeys(one.program for one in known))
        raise UsageError(
            f"{where}: no reward of {programs} found; name the tag with rlcb import --mapping FILE; {_there(names)}"
        )
    return found


def _there(names: Collection[str]) -> str:
    shown = [plain(name) for name in sorted(names)[:_MOST_NAMED]]
    return f"it has {', '.join(shown)}" + (f" and {len(names) - len(shown)} more" if len(names) > len(shown) else "")


def read_mapping(path: Path) -> Mapping:
    """A mapping from a YAML file."""
    content = read_yaml(path, "keys such as 'reward:' and 'rewards:'")
    unknown = [name for name in content if name not in _KEYS]
    if unknown:
        raise UsageError(f"{path}: unknown key {plain(unknown[0])}; valid: {', '.join(_KEYS)}")
    texts = {name: _text(path, name, content[name]) for name in _KEYS[:-1] if name in content}
    kind, window = texts.pop("rewards", ""), content.get("window")
    if "reward" not in texts:
        raise UsageError(f"{path}: the key reward is missing; it names the tag or column of the reward")
    if kind not in (EPISODES, AVERAGES):
        raise UsageError(f"{path}: rewards: {kind or 'missing'}; valid: {EPISODES} (one per episode) or {AVERAGES}")
    size = whole_number(window)
    if window is not None and (size is None or size < 1 or kind == EPISODES):
        raise UsageError(f"{path}: window: must be the number of episodes per average, at least 1")
    averaged = f"over the last {size} episodes, according to the mapping" if size else ""
    return Mapping(**{"program": "another program", **texts}, kind=kind, averaged=averaged, window=size)


def _text(path: Path, name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{path}: {name}: expected text")
    return value.strip()
