"""The configuration's section `env`."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rlcb.config.section import Section, Whole, setting
from rlcb.envs.own_code import MODULE_NAME

_Int = Annotated[int, Whole]


class EnvConfig(Section):
    """Which environment, how many copies of it, which levels."""

    group: ClassVar[str] = "what to train on"
    name: str = setting(
        "procgen-coinrun-v0",
        "environment: a Procgen game (coinrun), an Atari game (ALE/Pong-v5) or another Gymnasium id",
        metavar="ENV",
    )
    imports: list[Annotated[str, Field(pattern=f"^{MODULE_NAME}$")]] = setting(
        [], "your module to import in every process; may be repeated; RLCB_IMPORT names more", metavar="MODULE"
    )
    num_envs: _Int = setting(32, "number of parallel environments", ge=1, le=16384)
    seed: _Int = setting(42, "random seed", ge=0, le=2**31 - 1)
    distribution_mode: Literal["easy", "hard", "extreme", "memory"] = setting(
        "easy", "Procgen: difficulty of the levels"
    )
    num_levels: _Int = setting(200, "Procgen: number of training levels; 0: unlimited", ge=0, le=2**31 - 1)
    start_level: _Int = setting(0, "Procgen: number of the first training level", ge=0, le=2**31 - 1)
    frame_skip: _Int = setting(4, "Atari: number of frames for which an action is repeated", ge=1, le=60)
    frame_stack: _Int = setting(4, "Atari: number of recent frames in an observation", ge=1, le=16)
    repeat_action_probability: float | None = setting(
        None,
        "Atari: sticky actions, the probability that a frame repeats the last action; null: as the id says",
        ge=0,
        lt=1,
    )
    noop_max: _Int = setting(30, "Atari: maximum number of no-op frames at the start of a game", ge=0, le=1000)
    episodic_life: bool = setting(True, "Atari: a lost life ends the episode for learning; results count whole games")
    clip_rewards: bool = setting(True, "Atari: learn from the signs of rewards; results are raw scores")
