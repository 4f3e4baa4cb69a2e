"""One timed run of Sample Factory's APPO; perf/peers.py starts it with the Python that Sample Factory is installed in.

Beside PPO it is synchronous (async_rl=False) with four epochs of four minibatches, beside IMPALA asynchronous with one
optimizer step on every batch, but with GAE and PPO's clipped loss instead of V-trace, with which 2.1.1 fails. Procgen's
own vectors of environments, two in each of its workers, which double buffering (worker_num_splits=2) steps in turn.
Instead of the rewards, Sample Factory normalises the returns.
"""

import os
import tempfile
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.algo.utils.context import global_model_factory
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.model.encoder import Encoder
from sample_factory.train import make_runner
from torch import Tensor

from peer_games import make_games
from peer_network import FEATURES, NatureBody
from peer_work import (
    GAME,
    NUM_ACTIONS,
    WORK,
    Clock,
    PeakMemory,
    cores,
    print_result,
    refuse_other_size,
    worker_options,
)

Array = np.ndarray[Any, Any]
_SPLITS = 2  # vectors of environments in a worker: one is stepped while the policy acts for the other


class ProcgenAgents(gymnasium.Env[Any, Any]):
    """Procgen's own vector of environments, each of them an agent to Sample Factory."""

    is_multiagent = True

    def __init__(self, num_envs: int, seed: int) -> None:
        self.games = make_games(num_envs, seed)
        self.num_agents = num_envs
        self.observation_space = Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space = Discrete(NUM_ACTIONS)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """The current observations: Procgen starts episodes by itself."""
        return self.games.observe()[1]["rgb"].copy(), [{} for _ in range(self.num_agents)]

    def step(self, action: Array) -> Any:
        """Observations, rewards, whether the step ended an episode, no truncation, empty infos."""
        self.games.act(action)
        rewards, observations, first = self.games.observe()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_agents)]
        return observations["rgb"].copy(), rewards.copy(), first.copy(), np.zeros(self.num_agents, bool), infos

    def close(self) -> None:
        """Stop Procgen's threads."""
        self.games.close()


class NatureEncoder(Encoder):  # type: ignore[misc]
    """The body of the Nature CNN as Sample Factory's encoder; the heads are Sample Factory's."""

    def __init__(self, cfg: Any, obs_space: Any) -> None:
        super().__init__(cfg)
        self.body = NatureBody()
        heads = (FEATURES + 1) * (NUM_ACTIONS + 1)
        refuse_other_size(heads + sum(parameter.numel() for parameter in self.parameters()))

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        """Features [B, 512]."""
        features: Tensor = self.body(observations["obs"])
        return features

    def get_out_size(self) -> int:
        """How many features there are."""
        return FEATURES


class UpdateClock(AlgoObserver):  # type: ignore[misc]
    """Tells the clock how many steps have been learned from, and ends training when enough is timed."""

    def __init__(self, clock: Clock, steps: int) -> None:
        self.clock, self.steps = clock, steps

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """Note the end of a training iteration."""
        if self.clock.update_ended(training_iteration_since_resume * self.steps):
            runner.cfg.train_for_env_steps = 0


def make_env(full_env_name: str, cfg: Any, env_config: Any, render_mode: str | None = None) -> ProcgenAgents:
    """One of the vectors of environments."""
    number = env_config.env_id if env_config is not None and "env_id" in env_config else 0
    return ProcgenAgents(WORK["ppo"].num_envs // (cfg.num_workers * _SPLITS), cfg.seed + 1000 * number)


def make_encoder(cfg: Any, obs_space: Any) -> NatureEncoder:
    """The network's body."""
    return NatureEncoder(cfg, obs_space)


def settings_of(algorithm: str, workers: int, seed: int, folder: str) -> dict[str, Any]:
    """Sample Factory's flags for the compared work."""
    work, synchronous = WORK[algorithm], algorithm == "ppo"
    return {
        "env": GAME,
        "train_dir": folder,
        "device": "cpu",
        "seed": seed,
        "async_rl": not synchronous,
        "with_vtrace": False,  # 2.1.1 fails with it: its statistics read advantages, which V-trace leaves out
        "batched_sampling": True,
        "num_workers": workers,
        "num_envs_per_worker": _SPLITS,
        "worker_num_splits": _SPLITS,
        "rollout": work.n_steps,
        "batch_size": work.batch_size,
        "num_batches_per_epoch": work.steps_per_update // work.batch_size if synchronous else 1,
        "num_epochs": work.n_epochs,
        "shuffle_minibatches": synchronous,
        "gamma": work.gamma,
        "gae_lambda": work.gae_lambda,
        "learning_rate": work.learning_rate,
        "exploration_loss_coeff": 0.01,
        "ppo_clip_ratio": 0.2,
        "max_grad_norm": 0.5 if synchronous else 40.0,
        "use_rnn": False,
        "normalize_input": False,
        "nonlinearity": "relu",
    }


def main() -> None:
    """Train until enough is timed, then print the JSON line."""
    parser = worker_options("Sample Factory", ("ppo", "impala"))
    parser.add_argument("--workers", type=int, default=cores(), help="rollout workers (default: one per core)")
    options = parser.parse_args()
    clock = Clock(WORK[options.algorithm], options.seconds)
    register_env(GAME, make_env)
    global_model_factory().register_encoder_factory(make_encoder)
    with tempfile.TemporaryDirectory() as folder, PeakMemory.of(os.getpid()) as peak:
        settings = settings_of(options.algorithm, options.workers, options.seed, folder)
        flags = [f"--{name}={value}" for name, value in settings.items()]
        cfg = parse_full_cfg(parse_sf_args(flags)[0], flags)
        cfg, runner = make_runner(cfg)
        runner.register_observer(UpdateClock(clock, cfg.batch_size * cfg.num_batches_per_epoch))
        if runner.init() != 0 or runner.run() != 0:
            raise SystemExit("Sample Factory failed; its own messages are above")
    print_result(
        clock,
        peak,
        ("sample-factory", "torch", "numpy", "gymnasium", "procgen-mirror"),
        settings={"torch_threads": torch.get_num_threads(), "workers": options.workers, "splits": _SPLITS},
    )


if __name__ == "__main__":
    main()
