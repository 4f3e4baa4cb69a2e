"""One timed run of PPO or A2C of Stable-Baselines3; perf/peers.py starts it with the Python that SB3 is installed in.

Threads, loss and optimizer are SB3's own defaults; rewards are normalised by VecNormalize.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

from peer_games import EpisodeLog, make_games
from peer_work import (
    WORK,
    Clock,
    PeakMemory,
    add_log_options,
    print_result,
    refuse_other_size,
    worker_options,
)

Array = np.ndarray[Any, Any]


class ProcgenVecEnv(VecEnv):  # type: ignore[misc]
    """Procgen's own vector of environments in the shape that SB3 expects."""

    render_mode: str | None = None  # SB3 asks for it while the base class is still being set up

    def __init__(self, num_envs: int, seed: int, log: Path | None) -> None:
        """Start the games; `seed` picks the order of levels, `log` is a folder for a log of the episodes."""
        self.games = make_games(num_envs, seed)
        self.log = None if log is None else EpisodeLog(log / "monitor.csv", num_envs)
        super().__init__(num_envs, Box(0, 255, (64, 64, 3), np.uint8), Discrete(self.games.ac_space.eltype.n))

    def reset(self) -> Array:
        """The current observations: Procgen starts episodes by itself and SB3 resets only once, before any step."""
        observations: Array = self.games.observe()[1]["rgb"]
        return observations

    def step_async(self, actions: Array) -> None:
        """Hand the actions to Procgen, whose threads begin at once."""
        self.games.act(actions)

    def step_wait(self) -> tuple[Array, Array, Array, list[dict[str, Any]]]:
        """Observations, rewards, whether the step ended an episode, and empty infos."""
        rewards, observations, first = self.games.observe()
        if self.log is not None:
            self.log.step(rewards, first)
        # `first` marks an observation that opens an episode: the step just taken ended the one before.
        return observations["rgb"], rewards, first, [{} for _ in range(self.num_envs)]

    def close(self) -> None:
        """Stop Procgen's threads."""
        self.games.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """The same attribute for every environment: there is one object behind them all."""
        return [getattr(self, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse: Procgen's environments have no attributes of their own."""
        raise AttributeError("Procgen's environments have no attributes to set")

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Refuse: Procgen's environments have no methods of their own."""
        raise AttributeError("Procgen's environments have no methods to call")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """No environment is inside a Gymnasium wrapper."""
        return [False] * len(list(self._get_indices(indices)))


class UpdateClock(BaseCallback):  # type: ignore[misc]
    """Tells the clock when a rollout begins, which is when the update before it has ended."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def _on_rollout_start(self) -> None:
        """Note the end of an update."""
        self.clock.update_ended(self.num_timesteps)

    def _on_step(self) -> bool:
        """Go on until enough is timed."""
        return not self.clock.enough


def make_model(algorithm: str, seed: int, log: Path | None) -> PPO | A2C:
    """The algorithm on CoinRun with the compared settings, wrapped as SB3's users do."""
    work = WORK[algorithm]
    env = VecMonitor(ProcgenVecEnv(work.num_envs, seed, log))
    env = VecNormalize(env, norm_obs=False, norm_reward=True, gamma=work.gamma)
    settings = {
        "learning_rate": work.learning_rate,
        "n_steps": work.n_steps,
        "gamma": work.gamma,
        "gae_lambda": work.gae_lambda,
        "ent_coef": 0.01,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
        "seed": seed,
        "device": "cpu",
    }
    if algorithm == "a2c":
        model = A2C("CnnPolicy", env, **settings)
    else:
        model = PPO("CnnPolicy", env, batch_size=work.batch_size, n_epochs=work.n_epochs, clip_range=0.2, **settings)
    refuse_other_size(sum(parameter.numel() for parameter in model.policy.parameters()))
    return model


def main() -> None:
    """Train until enough is timed, then print the JSON line."""
    parser = worker_options("Stable-Baselines3", ("ppo", "a2c"))
    add_log_options(parser)
    options = parser.parse_args()
    clock = Clock(WORK[options.algorithm], options.seconds, options.total_timesteps)
    with PeakMemory.of(os.getpid()) as peak:
        model = make_model(options.algorithm, options.seed, options.log)
        model.learn(10**12, callback=UpdateClock(clock))
        model.env.close()
    print_result(
        clock,
        peak,
        ("stable-baselines3", "torch", "numpy", "gymnasium", "procgen-mirror"),
        settings={"torch_threads": torch.get_num_threads()},
    )


if __name__ == "__main__":
    main()
