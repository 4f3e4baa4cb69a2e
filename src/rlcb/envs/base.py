"""What the rest of the program knows about an environment."""

from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rlcb.words import counted

# Of all copies: integers [B], or vectors of floats [B, D] that the environment clips to its bounds.
Actions = NDArray[np.int64] | NDArray[np.float32]


class EnvSettings(Protocol):
    """Which environment and which of its levels: what the configuration's `env` section says."""

    name: str  # in full
    num_envs: int  # copies in the whole run
    num_levels: int  # 0 for all
    start_level: int
    frame_skip: int  # this and the following: Atari's
    frame_stack: int
    repeat_action_probability: float | None  # None: the id's own
    noop_max: int
    episodic_life: bool
    clip_rewards: bool

    @property
    def distribution_mode(self) -> str:
        """Difficulty of the levels."""


@dataclass(frozen=True)
class EnvSpec:
    """Shape of the observations (images: height, width, channels) and number of actions, or of an action's numbers."""

    observation_shape: tuple[int, ...]
    observation_dtype: np.dtype[Any]
    num_actions: int  # how many there are; continuous: of how many numbers one consists
    continuous: bool = False

    @property
    def is_image(self) -> bool:
        """Whether observations are uint8 pictures."""
        return self.observation_dtype == np.uint8 and len(self.observation_shape) == 3

    @property
    def action_shape(self) -> tuple[int, ...]:
        """The shape of one environment's action."""
        return (self.num_actions,) if self.continuous else ()

    @property
    def action_dtype(self) -> np.dtype[Any]:
        """The type of an action's numbers."""
        return np.dtype(np.float32 if self.continuous else np.int64)

    @property
    def action_words(self) -> str:
        """The actions in words."""
        return (
            f"actions of {counted(self.num_actions, 'number')}"
            if self.continuous
            else counted(self.num_actions, "action")
        )


@dataclass(frozen=True)
class Step:
    """One step of all copies. Where `dones` is set, the observation is already the next episode's first one."""

    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    dones: NDArray[np.bool_]
    # Last observations of episodes cut off by a time limit, by env: the return continues beyond them.
    truncated: dict[int, NDArray[Any]] = field(default_factory=dict)
    ends: NDArray[np.bool_] | None = None  # of whole episodes, where `dones` also marks ends of parts, such as lives

    @property
    def episode_ends(self) -> NDArray[np.bool_]:
        """Where whole episodes ended: what results count."""
        return self.dones if self.ends is None else self.ends


class VectorEnv(Protocol):
    """B copies of an environment that restart by themselves."""

    num_envs: int
    spec: EnvSpec

    def observe(self) -> NDArray[Any]:
        """The current observations [B, …]."""

    def step(self, actions: Actions) -> Step:
        """Apply one action to each copy."""

    def get_state(self) -> list[bytes]:
        """Everything needed to continue exactly here, one entry per copy, none of them empty."""

    def set_state(self, states: list[bytes]) -> None:
        """Continue exactly where `get_state` was called."""

    def close(self) -> None:
        """Release what the environment holds."""

    def completed(self) -> NDArray[np.bool_] | None:
        """Whether each copy's last finished episode completed its level [B]; None where there are no levels."""

    def only(self, copies: list[int]) -> "VectorEnv":
        """An environment that continues these copies alone; this one cannot be used any more."""

    def frame(self) -> NDArray[np.uint8]:
        """A picture of the first copy [H, W, 3]; only for environments that were made with `pictured`."""


class NotFinite(Exception):
    """What an environment returned that is not finite."""


def refuse_infinite(step: Step) -> None:
    """Raise NotFinite if a reward or an observation is not finite, before it reaches a rollout or a result."""
    for what, values in (("a reward", step.rewards), ("an observation", step.observations)):
        if values.dtype != np.uint8 and not np.isfinite(values).all():
            raise NotFinite(f"returned {what} that is not finite ({values[~np.isfinite(values)][0]})")
