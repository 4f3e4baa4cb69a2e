"""One timed PPO or A2C run with Stable-Baselines3; `compare_sb3.py` starts it with the Python that SB3 is installed in.

Prints one JSON line: speed, memory and versions. Threads, loss and optimiser are SB3's own defaults.
"""

import argparse
import json
import platform
import resource
import sys
import time
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from procgen import ProcgenGym3Env
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize

from compare_sb3 import BATCH_SIZE, N_EPOCHS, NUM_ENVS, WORK

GAMMA = 0.999
PARAMETERS = 608_944

Array = np.ndarray[Any, Any]


class ProcgenVecEnv(VecEnv):  # type: ignore[misc]
    """Procgen's own vector of environments in the shape that SB3 expects."""

    render_mode: str | None = None  # SB3 asks for it while the base class is still being set up

    def __init__(self, seed: int) -> None:
        """Start the games; `seed` picks the order of levels."""
        self.games = ProcgenGym3Env(
            num=NUM_ENVS, env_name="coinrun", distribution_mode="easy", num_levels=200, start_level=0, rand_seed=seed
        )
        super().__init__(NUM_ENVS, Box(0, 255, (64, 64, 3), np.uint8), Discrete(self.games.ac_space.eltype.n))

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
    """Notes the time at the start of every rollout and at the end of training."""

    def __init__(self) -> None:
        """Start with no marks."""
        super().__init__()
        self.marks: list[float] = []

    def _on_rollout_start(self) -> None:
        """Note when acting begins."""
        self.marks.append(time.perf_counter())

    def _on_training_end(self) -> None:
        """Note when the last update is over."""
        # The last update has no rollout after it; without this mark its learning would go uncounted.
        self.marks.append(time.perf_counter())

    def _on_step(self) -> bool:
        """Let training go on."""
        return True


def make_model(algorithm: str, seed: int) -> PPO | A2C:
    """The algorithm on CoinRun with the compared settings, wrapped as SB3's users do."""
    gamma = GAMMA if algorithm == "ppo" else 0.99
    env = VecNormalize(VecMonitor(ProcgenVecEnv(seed)), norm_obs=False, norm_reward=True, gamma=gamma)
    common = {"ent_coef": 0.01, "vf_coef": 0.5, "max_grad_norm": 0.5, "gamma": gamma, "seed": seed, "device": "cpu"}
    n_steps = WORK[algorithm].n_steps
    if algorithm == "a2c":
        model = A2C("CnnPolicy", env, learning_rate=7e-4, n_steps=n_steps, gae_lambda=1.0, **common)
    else:
        model = PPO(
            "CnnPolicy", env, learning_rate=3e-4, n_steps=n_steps, batch_size=BATCH_SIZE, n_epochs=N_EPOCHS,
            gae_lambda=0.95, clip_range=0.2, **common,
        )  # fmt: skip
    found = sum(parameter.numel() for parameter in model.policy.parameters())
    if found != PARAMETERS:
        raise SystemExit(f"the network has {found} parameters, not {PARAMETERS}: this would be other work")
    return model


def peak_memory_mb() -> float:
    """The most memory this process has held, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024**2 if sys.platform == "darwin" else 1024)  # macOS counts bytes, Linux kilobytes


def main() -> None:
    """Train the warm-up updates and the timed ones, then print the JSON line."""
    parser = argparse.ArgumentParser(description="Time an algorithm of Stable-Baselines3 on CoinRun.")
    parser.add_argument("algorithm", choices=tuple(WORK))
    parser.add_argument("--updates", type=int, required=True, help="timed updates, after those of warm-up")
    parser.add_argument("--seed", type=int, default=1, help="seed of levels, network and actions")
    options = parser.parse_args()
    work = WORK[options.algorithm]
    model = make_model(options.algorithm, options.seed)
    clock = UpdateClock()
    model.learn((options.updates + work.warm_up) * work.steps_per_update, callback=clock)
    # marks[0] opens the warm-up, marks[warm_up] the first timed update, and the last one is the end.
    seconds = clock.marks[-1] - clock.marks[work.warm_up]
    updates = len(clock.marks) - 1 - work.warm_up
    names = ("stable-baselines3", "torch", "numpy", "gymnasium", "procgen-mirror")
    result = {
        "fps": updates * work.steps_per_update / seconds,
        "updates": updates,
        "env_steps": updates * work.steps_per_update,
        "seconds": seconds,
        "parameters": PARAMETERS,
        "peak_memory_mb": peak_memory_mb(),
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in names} | {"python": platform.python_version()},
    }
    model.env.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
