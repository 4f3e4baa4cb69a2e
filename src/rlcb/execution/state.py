"""What a run carries from one update to the next: each worker's part, and what all workers have in common."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from rlcb import __version__
from rlcb.collector import Collector
from rlcb.comm.process_group import Group
from rlcb.config.schema import Config
from rlcb.console import note, warn
from rlcb.envs.base import EnvSpec
from rlcb.envs.episodes import EpisodeCounter
from rlcb.envs.families import make_env, procgen_game
from rlcb.envs.normalize import RewardNormalizer
from rlcb.errors import CheckpointUnusable
from rlcb.hardware import package_version
from rlcb.learner import Learner
from rlcb.networks import make_network
from rlcb.run.checkpoint import FORMAT

# A start is a dict with the sections a worker needs to go on: policy, optimizer, normalizer, progress and its own part.
Start = dict[str, Any]
_TENSORS = ("policy", "optimizer")


@dataclass
class Progress:
    """Counters of a run, the same in every worker."""

    env_steps: int = 0
    updates: int = 0
    skipped_steps: int = 0
    bad_updates_in_a_row: int = 0

    def count(self, env_steps: int, skipped_steps: int) -> None:
        """One more update, from so many environment steps, of which so many optimizer steps were left out."""
        self.env_steps += env_steps
        self.updates += 1
        self.skipped_steps += skipped_steps
        self.bad_updates_in_a_row = self.bad_updates_in_a_row + 1 if skipped_steps else 0


class Worker:
    """One worker's environments, its copy of the policy, its random generators."""

    def __init__(
        self, config: Config, device: str, env_threads: int, group: Group, seed_key: tuple[int, ...] | None = None
    ):
        """`seed_key`: which of the seed's random streams, by default those of the rank."""
        self.config, self.device, self.group = config, device, group
        self.num_envs = config.env.num_envs // group.size
        acting, learning, envs = seeds(config.env.seed, *(seed_key or (group.rank,)))
        self._acting = torch.Generator().manual_seed(acting)
        self._learning = torch.Generator().manual_seed(learning)
        self.env = make_env(config.env, self.num_envs, envs, env_threads)
        policy = make_policy(config, self.env.spec).to(device)
        self.learner = Learner(policy, config, self._learning, group)
        self._counter = EpisodeCounter(self.num_envs, first_env=group.rank * self.num_envs)
        self.collector = Collector(
            self.env, policy, config.training.n_steps, device, self._acting, self._counter, self._alive
        )
        gamma = config.training.reward_norm_gamma
        self.normalizer = RewardNormalizer(self.num_envs, config.training.gamma if gamma is None else gamma)
        self.progress = Progress()

    def _alive(self) -> None:
        self.group.alive()

    def join(self, group: Group) -> None:
        """Go on in another group of the same size."""
        self.group = group
        self.learner.join(group)

    def part(self) -> dict[str, Any]:
        """What this worker alone knows."""
        return {
            "envs": self.env.get_state(),
            "episode": self._counter.state(),
            "discounted": self.normalizer.running_return.tolist(),
            "acting": self._acting.get_state().numpy().copy(),
            "learning": self._learning.get_state().numpy().copy(),
            "observation": self._observation_digest(),
        }

    def _observation_digest(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.collector.observation).tobytes()).hexdigest()

    def common(self) -> dict[str, Any]:
        """What every worker of the group has an equal copy of."""
        return {
            **self.learner.state(),
            "normalizer": list(self.normalizer.moments),
            "progress": asdict(self.progress),
        }

    def load(self, start: Start) -> None:
        """Continue exactly where `common` and `part` were taken."""
        part = start["part"]
        try:
            self.learner.load(start)
            self.progress = Progress(**start["progress"])
            count, mean, m2 = start["normalizer"]
            self.normalizer.moments = (count, mean, m2)
            if part["envs"]:
                self.normalizer.running_return = np.array(part["discounted"], np.float64)
                self._counter.load(part["episode"])
            self._load_random(part)
        except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            raise CheckpointUnusable(f"the checkpoint does not fit this run: {str(error).splitlines()[0]}") from None
        if not part["envs"]:
            note("the checkpoint holds no environments, as actors' are not saved: they begin anew")
            return
        self.env.set_state(part["envs"])
        self.collector.observation = self.env.observe()
        if part["observation"] not in (None, self._observation_digest()):
            warn(f"{self.config.env.name} did not come back to the state it was in: the run goes on, but not exactly")

    def _load_random(self, part: dict[str, Any]) -> None:
        if part["acting"] is None:
            # The run was divided among another number of workers: new streams, different from those at its start.
            acting, learning, _ = seeds(self.config.env.seed, self.group.rank, self.progress.updates)
            self._acting.manual_seed(acting)
            self._learning.manual_seed(learning)
            return
        self._acting.set_state(torch.tensor(part["acting"]))
        self._learning.set_state(torch.tensor(part["learning"]))


def make_policy(config: Config, spec: EnvSpec) -> nn.Module:
    """The network with the weights that this seed begins with, the same in every process and execution."""
    torch.manual_seed(int(np.random.SeedSequence(config.env.seed).generate_state(1)[0]))
    return make_network(config.training.network, spec)


def seeds(seed: int, *key: int) -> tuple[int, int, int]:
    """Independent seeds for acting, learning and environments; Procgen takes 31 bits."""
    acting, learning, envs = np.random.SeedSequence(seed, spawn_key=key).generate_state(3)
    return int(acting), int(learning), int(envs >> 1)


def checkpoint_content(
    config: Config, algorithm: str, common: dict[str, Any], parts: list[dict[str, Any]], extra: dict[str, Any]
) -> dict[str, Any]:
    """A checkpoint of the whole run: what all workers share, and their parts in the order of their ranks."""
    return {
        "meta": {
            "format": FORMAT,
            "algorithm": algorithm,
            "env": environment_identity(config),
            "env_steps": common["progress"]["env_steps"],
            "updates": common["progress"]["updates"],
            "config": json.dumps(config.as_used()),
            "versions": {
                "rlcb": __version__,
                **{name: package_version(name) or "" for name in ("torch", "procgen-mirror", "gymnasium")},
            },
        },
        **common,
        **{key: {name: torch.tensor(array) for name, array in common[key].items()} for key in _TENSORS},
        **extra,
        "workers": [
            {
                "acting": torch.tensor(part["acting"]),
                "learning": torch.tensor(part["learning"]),
                "observation": part["observation"],
            }
            for part in parts
        ],
        "envs": [torch.frombuffer(bytearray(state), dtype=torch.uint8) for part in parts for state in part["envs"]],
        "episode": {key: [x for part in parts for x in part["episode"][key]] for key in ("return", "length")},
        "discounted": [x for part in parts for x in part["discounted"]],
    }


def starts_from(path: str, content: dict[str, Any], config: Config, algorithm: str, size: int) -> list[Start]:
    """Divide a checkpoint among `size` workers, whatever number made it."""
    _refuse_foreign(path, content["meta"], config, algorithm)
    share = config.env.num_envs // size
    try:
        common = {key: {name: tensor.numpy() for name, tensor in content[key].items()} for key in _TENSORS}
        common |= {key: content[key] for key in ("normalizer", "progress")}
        return [{**common, "part": _part_of(content, rank, share, size)} for rank in range(size)]
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointUnusable(f"{path}: does not fit this run: {error}") from None


def _part_of(content: dict[str, Any], rank: int, share: int, size: int) -> dict[str, Any]:
    """One worker's part; without random states where the checkpoint was made by another number of workers."""
    mine = slice(rank * share, (rank + 1) * share)
    part: dict[str, Any] = {"acting": None, "learning": None, "observation": None}
    if len(content["workers"]) == size:
        known = content["workers"][rank]
        part = {**known, "acting": known["acting"].numpy(), "learning": known["learning"].numpy()}
    return {
        **part,
        "envs": [tensor.numpy().tobytes() for tensor in content["envs"][mine]],
        "episode": {key: values[mine] for key, values in content["episode"].items()},
        "discounted": content["discounted"][mine],
    }


def _refuse_foreign(path: str, meta: dict[str, Any], config: Config, algorithm: str) -> None:
    """A state of another game must never reach the game's own code: it trusts what it is given."""
    expected = {"algorithm": algorithm, "env": environment_identity(config)}
    if procgen_game(config.env.name):
        expected["procgen-mirror"] = package_version("procgen-mirror") or ""
    found = {**meta, **meta.get("versions", {})}
    for key, value in expected.items():
        if found.get(key) != value:
            raise CheckpointUnusable(f"{path}: made with {key} {found.get(key)}, this run has {value}")


def environment_identity(config: Config) -> str:
    """The environment and its settings in one line: equal lines mean interchangeable states."""
    env = config.env
    if not procgen_game(env.name):
        return f"{env.name} num_envs={env.num_envs}"
    levels = f"{env.distribution_mode} num_levels={env.num_levels} start_level={env.start_level}"
    return f"{env.name} {levels} num_envs={env.num_envs}"
