"""The settings that a suite file may contain, each with what is valid."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from rlcb.config.registry import ALGORITHMS, DEFAULT_ALGORITHM, MODES, Kind
from rlcb.config.section import Section, Whole, setting
from rlcb.config.values import HOURS, MOST_HOURS, Hours
from rlcb.config.variants import kinds_of

LISTS = ("seeds", "games", "algorithms", "modes")  # settings that may grow when a suite is continued; so may variants

_Keys = BeforeValidator(lambda value: {} if value is None else value)
_Several = BeforeValidator(lambda value: value if isinstance(value, list) else [value])


class SuiteConfig(Section):
    """The settings of a suite; each description says what is valid."""

    algorithms: Annotated[list[str], _Several] = setting(
        [DEFAULT_ALGORITHM], f"one or more of {', '.join(ALGORITHMS)}", f"{{{','.join(ALGORITHMS)}}}", min_length=1
    )
    modes: Annotated[list[str], _Several] = setting(
        list(MODES), f"one or both of {' and '.join(MODES)}", f"{{{','.join(MODES)}}}", min_length=1
    )
    seeds: Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], _Several] = setting(
        [1, 2, 3], "one or more whole numbers from 0 to 2147483647", "N", min_length=1
    )
    games: Annotated[list[str], _Several] = setting(
        ["coinrun"], "one or more Procgen games or Gymnasium ids", "ENV", min_length=1
    )
    duration_hours: Hours | None = setting(None, f"training time of each run: {HOURS}", "HOURS", gt=0, le=MOST_HOURS)
    total_timesteps: Annotated[int, Whole, Field(ge=1, le=10**12)] | None = setting(
        None, "environment steps of each run, instead of a duration: a whole number from 1 to 10^12"
    )
    eval_episodes: int = setting(
        100, "episodes of each evaluation: a whole number from 0 (none) to 1000000", ge=0, le=10**6
    )
    cool_down: float = setting(
        0.0, "pause between runs in seconds: a number from 0 to 86400", "SECONDS", ge=0, le=86400
    )
    config: str | dict[str, str] | None = setting(
        None,
        "a built-in configuration or a file for all runs; in a suite file one per kind, such as 'ppo_parallel: FILE'",
        "NAME|FILE",
    )
    overrides: dict[str, Any] = setting({}, "config keys for all runs, such as 'num_envs: 32'")

    variants: Annotated[dict[str, Annotated[dict[str, Any], _Keys]], _Keys] = setting(
        {}, "names, each with its config keys, such as 'lowent: {ent_coef: 0.001}'", "NAME"
    )

    @property
    def cluster(self) -> str | None:
        """The cluster whose nodes train the runs; a cluster of this machine alone is for the runs that start one."""
        given = self.overrides.get("cluster")
        return None if given in (None, "local") else str(given)

    @property
    def insecure(self) -> bool:
        """Whether that cluster may be one without a token."""
        return self.overrides.get("insecure") is True

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of runs; a mode that one algorithm lacks is left out for that one, and so is a variant there."""
        return kinds_of(self.algorithms, self.modes, self.variants)
