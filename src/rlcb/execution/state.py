"""Everything a run carries from one update to the next, and its way into a checkpoint and back."""

import hashlib
import json
import random
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlcb import __version__
from rlcb.checkpoint import FORMAT
from rlcb.collector import Collector
from rlcb.config import Config
from rlcb.console import warn
from rlcb.env_names import procgen_game
from rlcb.envs import make_env
from rlcb.envs.normalize import RewardNormalizer
from rlcb.errors import CheckpointUnusable
from rlcb.hardware import package_version
from rlcb.learner import Learner
from rlcb.networks import make_network


@dataclass
class Progress:
    """Counters of a run."""

    env_steps: int = 0
    updates: int = 0
    seconds: float = 0.0
    skipped_steps: int = 0
    bad_updates_in_a_row: int = 0
    started: str = ""


class TrainingState:
    """Environments, policy, optimizer, normaliser, random generators and counters of one run."""

    def __init__(self, config: Config, algorithm: str, device: str, env_threads: int):
        self.config, self.algorithm = config, algorithm
        seeds = np.random.SeedSequence(config.env.seed).generate_state(4)
        random.seed(int(seeds[0]))
        np.random.seed(seeds[0])
        torch.manual_seed(int(seeds[0]))
        self.acting_random = torch.Generator().manual_seed(int(seeds[1]))
        self.learning_random = torch.Generator().manual_seed(int(seeds[2]))
        self.env = make_env(config.env, config.env.num_envs, int(seeds[3] >> 1), env_threads)
        policy = make_network(config.training.network, self.env.spec).to(device)
        self.learner = Learner(policy, config, self.learning_random)
        self.collector = Collector(self.env, policy, config.training.n_steps, device, self.acting_random)
        gamma = config.training.reward_norm_gamma
        self.normalizer = RewardNormalizer(config.env.num_envs, config.training.gamma if gamma is None else gamma)
        self.progress = Progress(started=datetime.now().astimezone().isoformat(timespec="seconds"))

    def content(self) -> dict[str, Any]:
        """A checkpoint of this moment."""
        learner = self.learner.state()
        return {
            "meta": self._meta(),
            "policy": learner["policy"],
            "optimizer": learner["optimizer"],
            "progress": dict(vars(self.progress)),
            "episodes": self.collector.episodes.state(),
            "normalizer": self.normalizer.state(),
            "random": {
                "torch": torch.get_rng_state(),
                "acting": self.acting_random.get_state(),
                "learning": self.learning_random.get_state(),
            },
            "envs": [torch.frombuffer(bytearray(state), dtype=torch.uint8) for state in self.env.get_state()],
        }

    def load(self, path: Path, content: dict[str, Any]) -> None:
        """Continue exactly where a checkpoint was made."""
        self._refuse_foreign(path, content["meta"])
        try:
            self.learner.load(content)
            self.progress = Progress(**content["progress"])
            self.collector.episodes.load(content["episodes"])
            self.normalizer.load(content["normalizer"])
            torch.set_rng_state(content["random"]["torch"])
            self.acting_random.set_state(content["random"]["acting"])
            self.learning_random.set_state(content["random"]["learning"])
            states = [tensor.numpy().tobytes() for tensor in content["envs"]]
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise CheckpointUnusable(f"{path}: does not fit this run: {str(error).splitlines()[0]}") from None
        self.env.set_state(states)
        self.collector.observation = self.env.observe()
        if self._observation_digest() != content["meta"]["observation_digest"]:
            warn(f"{self.config.env.name} did not come back to the state it was in: the run goes on, but not exactly")

    def _meta(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "algorithm": self.algorithm,
            "env": environment_identity(self.config),
            "env_steps": self.progress.env_steps,
            "updates": self.progress.updates,
            "config": json.dumps(self.config.model_dump(mode="json")),
            "observation_digest": self._observation_digest(),
            "versions": {
                "rlcb": __version__,
                **{name: package_version(name) or "" for name in ("torch", "procgen-mirror", "gymnasium")},
            },
        }

    def _observation_digest(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.collector.observation).tobytes()).hexdigest()

    def _refuse_foreign(self, path: Path, meta: dict[str, Any]) -> None:
        """A state of another game must never reach the game's own code: it trusts what it is given."""
        expected = {"algorithm": self.algorithm, "env": environment_identity(self.config)}
        if procgen_game(self.config.env.name):
            expected["procgen-mirror"] = package_version("procgen-mirror") or ""
        found = {**meta, **meta.get("versions", {})}
        for key, value in expected.items():
            if found.get(key) != value:
                raise CheckpointUnusable(f"{path}: made with {key} {found.get(key)}, this run has {value}")


def environment_identity(config: Config) -> str:
    """The environment and its settings in one line: equal lines mean interchangeable states."""
    env = config.env
    if not procgen_game(env.name):
        return f"{env.name} seed={env.seed} num_envs={env.num_envs}"
    levels = f"{env.distribution_mode} num_levels={env.num_levels} start_level={env.start_level}"
    return f"{env.name} {levels} num_envs={env.num_envs}"
