"""One timed run of PPO or IMPALA of RLlib; perf/peers.py starts it with the Python that RLlib is installed in.

RLlib's new API stack with its default connectors and losses, Procgen's own vector of environments in every env runner,
the learner in the driver process (num_learners=0), Ray on 127.0.0.1 alone. Ray writes logs and a token into the home
directory; perf/peers.py gives it one that is thrown away.
"""

import os
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import ray
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers.vector import NormalizeReward
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.tune.registry import register_env
from torch import Tensor, nn

from peer_games import EpisodeLog, make_games
from peer_network import FEATURES, NatureBody
from peer_work import (
    GAME,
    NUM_ACTIONS,
    WORK,
    Clock,
    PeakMemory,
    add_log_options,
    cores,
    print_result,
    refuse_other_size,
    worker_options,
)

Array = np.ndarray[Any, Any]


class ProcgenVector(VectorEnv[Any, Any, Any]):
    """Procgen's own vector of environments in the shape that Gymnasium expects.

    RLlib takes the step after an episode's last one for a reset. Procgen has begun the next episode by then, so the
    first step of every episode is played and left out.
    """

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int, seed: int, log: EpisodeLog | None) -> None:
        self.games = make_games(num_envs, seed)
        self.log = log
        self.num_envs = num_envs
        self.single_observation_space = Box(0, 255, (64, 64, 3), np.uint8)
        self.single_action_space = Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """The current observations: Procgen starts episodes by itself."""
        return self.games.observe()[1]["rgb"].copy(), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """Observations, rewards, whether the step ended an episode, no truncation, no infos."""
        self.games.act(np.asarray(actions, np.int32))
        rewards, observations, first = self.games.observe()
        if self.log is not None:
            self.log.step(rewards, first)
        # Copies, because RLlib keeps them and Procgen writes the next step into the same memory.
        return observations["rgb"].copy(), rewards.copy(), first.copy(), np.zeros(self.num_envs, bool), {}

    def close_extras(self, **_: Any) -> None:
        """Stop Procgen's threads."""
        self.games.close()


class NatureModule(TorchRLModule, ValueFunctionAPI):  # type: ignore[misc]
    """The Nature CNN as RLlib's module: one body under the policy and the value function."""

    def setup(self) -> None:
        """Make the layers."""
        self.body = NatureBody()
        self.policy, self.value = nn.Linear(FEATURES, NUM_ACTIONS), nn.Linear(FEATURES, 1)
        refuse_other_size(sum(parameter.numel() for parameter in self.parameters()))

    def _forward(self, batch: dict[str, Any], **_: Any) -> dict[str, Tensor]:
        """Logits for acting."""
        return {Columns.ACTION_DIST_INPUTS: self.policy(self.body(batch[Columns.OBS]))}

    def _forward_train(self, batch: dict[str, Any], **_: Any) -> dict[str, Tensor]:
        """Logits for learning, and the features, so that the loss computes them once."""
        features = self.body(batch[Columns.OBS])
        return {Columns.ACTION_DIST_INPUTS: self.policy(features), Columns.EMBEDDINGS: features}

    def compute_values(self, batch: dict[str, Any], embeddings: Tensor | None = None) -> Tensor:
        """Values [B]."""
        features = self.body(batch[Columns.OBS]) if embeddings is None else embeddings
        values: Tensor = self.value(features).squeeze(-1)
        return values


def make_env(context: Any) -> gymnasium.vector.VectorEnv:
    """The environments of one env runner, with normalised rewards."""
    # RLlib passes vectors of environments a plain dictionary, without the number of their env runner.
    index, folder = os.getpid(), context["log"]
    num_envs = context["num_envs"]
    log = None if folder is None else EpisodeLog(Path(folder) / f"{index}.monitor.csv", num_envs)
    games = ProcgenVector(num_envs, context["seed"] + 1000 * (index % 1000), log)
    return NormalizeReward(games, gamma=context["gamma"])


def make_config(algorithm: str, env_runners: int, seed: int, log: Path | None) -> AlgorithmConfig:
    """The algorithm on CoinRun with the compared settings; `log`: folder for the logs of the env runners."""
    work = WORK[algorithm]
    config = (PPOConfig if algorithm == "ppo" else IMPALAConfig)()
    register_env(GAME, make_env)
    folder = None if log is None else str(log.absolute())
    config.environment(GAME, env_config={"gamma": work.gamma, "seed": seed, "log": folder}).debugging(seed=seed)
    config.env_runners(
        num_env_runners=env_runners,
        num_envs_per_env_runner=work.num_envs // max(env_runners, 1),
        rollout_fragment_length=work.n_steps,
        gym_env_vectorize_mode="vector_entry_point",
    )
    config.learners(num_learners=0).rl_module(rl_module_spec=RLModuleSpec(module_class=NatureModule))
    common = {"gamma": work.gamma, "lr": work.learning_rate, "vf_loss_coeff": 0.5, "entropy_coeff": 0.01}
    if algorithm == "ppo":
        config.training(
            train_batch_size_per_learner=work.steps_per_update,
            minibatch_size=work.batch_size,
            num_epochs=work.n_epochs,
            lambda_=work.gae_lambda,
            use_kl_loss=False,
            clip_param=0.2,
            grad_clip=0.5,
            **common,
        )
    else:
        config.training(train_batch_size_per_learner=work.batch_size, num_epochs=work.n_epochs, **common)
        config.reporting(min_time_s_per_iteration=None, min_train_timesteps_per_iteration=work.steps_per_update)
    return config


def learned_steps(algorithm: str, result: dict[str, Any]) -> int:
    """Environment steps that have been acted in and learned from so far, according to RLlib."""
    acted = int(result["num_env_steps_sampled_lifetime"])
    if algorithm == "ppo":  # learns from all of them before it acts again; its counter adds up minibatches
        return acted
    learned = result.get("learners", {}).get("__all_modules__", {}).get("num_env_steps_trained_lifetime", 0)
    return min(acted, int(learned))


def main() -> None:
    """Train until enough is timed, then print the JSON line."""
    parser = worker_options("RLlib", ("ppo", "impala"))
    parser.add_argument("--env-runners", type=int, default=cores(), help="processes that act (default: one per core)")
    add_log_options(parser)
    options = parser.parse_args()
    clock = Clock(WORK[options.algorithm], options.seconds, options.total_timesteps)
    with PeakMemory.of(os.getpid()) as peak:
        ray.init(include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
        algorithm = make_config(options.algorithm, options.env_runners, options.seed, options.log).build_algo()
        while not clock.update_ended(learned_steps(options.algorithm, algorithm.train())):
            pass
        algorithm.stop()
        ray.shutdown()
    print_result(
        clock,
        peak,
        ("ray", "torch", "numpy", "gymnasium", "procgen-mirror"),
        settings={"torch_threads": torch.get_num_threads(), "env_runners": options.env_runners},
    )


if __name__ == "__main__":
    main()
