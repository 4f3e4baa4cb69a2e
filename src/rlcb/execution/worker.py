"""A worker: environments, policy, learner and random generators of one process that acts and learns."""

import hashlib
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from rlcb.collector import Collector
from rlcb.comm.control import no_heartbeat
from rlcb.comm.process_group import ProcessGroup
from rlcb.comm.shared_parameters import SharedParameters
from rlcb.config.schema import Config
from rlcb.console import note, warn
from rlcb.envs.base import EnvSpec, VectorEnv
from rlcb.envs.episodes import EpisodeCounter
from rlcb.envs.families import clips_rewards, make_env
from rlcb.envs.groups import EnvGroups
from rlcb.envs.normalize import RewardNormalizer
from rlcb.errors import CheckpointUnusable
from rlcb.gpu.collector import GpuCollector
from rlcb.gpu.device import prepare_gpu
from rlcb.gpu.learner import GpuLearner
from rlcb.gpu.memory import make_rollout_memory
from rlcb.learner import Learner
from rlcb.networks.policy import make_policy_network
from rlcb.run.gpu_failures import is_gpu_failure
from rlcb.run.state import Progress, SharedState, Start, WorkerState


class Worker:
    """One of `size` workers that divide a run's environments; it works alone until it joins a group."""

    def __init__(
        self,
        config: Config,
        device: str = "cpu",
        env_threads: int = 0,
        rank: int = 0,
        size: int = 1,
        seed_key: tuple[int, ...] | None = None,
        shared: SharedParameters | None = None,
        heartbeat: Callable[[], None] = no_heartbeat,
    ):
        """`seed_key`: which of the seed's random streams, by default those of the rank; `shared`: see Learner."""
        self.config, self.device, self.rank = config, device, rank
        self.num_envs = config.env.num_envs // size
        acting, learning, envs = seeds(config.env.seed, *(seed_key or (rank,)))
        self._acting = torch.Generator(device).manual_seed(acting)  # it draws where the policy is computed
        self._learning = torch.Generator().manual_seed(learning)
        self._counter = EpisodeCounter(self.num_envs, first_env=rank * self.num_envs)
        self.env: VectorEnv | EnvGroups
        self.learner: Learner
        self.collector: Collector | GpuCollector
        n_steps, acting_generator, counter = config.training.n_steps, self._acting, self._counter
        if device == "cuda":
            prepare_gpu(config.hardware.deterministic)
            recorded, groups = config.hardware.compile is not False, config.hardware.env_groups
            assert isinstance(groups, int)
            self.env = groups_of = EnvGroups(config.env, self.num_envs, envs, env_threads, groups)
            policy = make_policy(config, self.env.spec).to(device)
            memory = make_rollout_memory(n_steps, self.num_envs, self.env.spec, device)
            self.learner = GpuLearner(policy, config, self._learning, memory, recorded, heartbeat)
            self.collector = GpuCollector(
                groups_of, self.learner.computation, memory, acting_generator, counter, heartbeat, recorded
            )
        else:
            self.env = env = make_env(config.env, self.num_envs, envs, env_threads)
            policy = make_policy(config, self.env.spec)
            self.learner = Learner(policy, config, self._learning, shared, heartbeat)
            self.collector = Collector(env, self.learner.computation, n_steps, acting_generator, counter, heartbeat)
        self.normalizer = make_normalizer(config, self.num_envs)
        self.progress = Progress()

    @property
    def group(self) -> ProcessGroup:
        """The processes that learn in step with this one."""
        return self.learner.group

    def prepare(self) -> None:
        """Compile and record what acting and learning do, where that is done at all; nothing else changes."""
        if isinstance(self.learner, GpuLearner) and isinstance(self.collector, GpuCollector):
            if self.config.hardware.compile is True:
                note("compiling the network takes up to a minute, which is not counted as training time")
            self.collector.prepare()
            self.learner.prepare()

    def state(self) -> WorkerState:
        """What this worker alone has."""
        returns, lengths = self._counter.state()
        return WorkerState(
            envs=self.env.get_state(),
            episode_returns=returns,
            episode_lengths=lengths,
            discounted_returns=self.normalizer.running_return.tolist(),
            acting_rng=self._acting.get_state().numpy().copy(),
            learning_rng=self._learning.get_state().numpy().copy(),
            observation_digest=self._observation_digest(),
        )

    def shared_state(self) -> SharedState:
        """What every worker of the group has an equal copy of."""
        return shared_state(self.learner, self.normalizer, self.progress)

    def load(self, start: Start) -> None:
        """Continue exactly where `shared_state` and `state` were taken."""
        own = start.own
        load_shared(start.shared, self.learner, self.normalizer)
        self.progress = start.shared.progress.copy()
        try:
            if own.envs:
                self.normalizer.running_return = np.array(own.discounted_returns, np.float64)
                self._counter.load(own.episode_returns, own.episode_lengths)
            elsewhere = own.acting_rng is not None and len(own.acting_rng) != len(self._acting.get_state())
            if own.acting_rng is None or own.learning_rng is None or elsewhere:
                # The run was divided among another number of workers, or acted on another kind of device: new streams,
                # different from those at its start.
                acting, learning, _ = seeds(self.config.env.seed, self.rank, self.progress.updates)
                self._acting.manual_seed(acting)
                self._learning.manual_seed(learning)
            else:
                self._acting.set_state(torch.tensor(own.acting_rng))
                self._learning.set_state(torch.tensor(own.learning_rng))
        except (TypeError, ValueError, RuntimeError) as error:
            raise misfit(error) from None
        if not own.envs:
            note("the checkpoint has no environment states, so new episodes start")
            return
        self.env.set_state(own.envs)
        self.collector.observation = self.env.observe()
        if own.observation_digest not in (None, self._observation_digest()):
            warn(f"{self.config.env.name} could not be restored exactly: the run continues, but is not an exact resume")

    def _observation_digest(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.collector.observation).tobytes()).hexdigest()


def shared_state(learner: Learner, normalizer: RewardNormalizer, progress: Progress) -> SharedState:
    """The state that a checkpoint keeps once, however many workers there are."""
    return SharedState(*learner.state(), normalizer.moments, progress.copy())


def load_shared(state: SharedState, learner: Learner, normalizer: RewardNormalizer) -> None:
    """Restore what `shared_state` gave, but for the counters."""
    try:
        learner.load(state.policy, state.optimizer)
        normalizer.moments = state.reward_moments
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise misfit(error) from None


def misfit(error: Exception) -> CheckpointUnusable:
    """A checkpoint's content that another configuration wrote, as a failure for the user; a GPU's failure is none."""
    if is_gpu_failure(error):
        raise error
    return CheckpointUnusable(f"the checkpoint does not match this run: {str(error).splitlines()[0]}")


def make_normalizer(config: Config, num_envs: int) -> RewardNormalizer:
    """The reward normaliser of this many environments."""
    gamma = config.training.reward_norm_gamma
    return RewardNormalizer(num_envs, config.training.gamma if gamma is None else gamma)


def training_rewards(config: Config, rewards: Tensor) -> Tensor:
    """The rewards to learn from, before they are scaled: raw ones, or their signs where the environment has it so."""
    return rewards.sign() if clips_rewards(config.env) else rewards


def make_policy(config: Config, spec: EnvSpec) -> nn.Module:
    """The network with the weights that this seed begins with, the same in every process and execution."""
    torch.manual_seed(int(np.random.SeedSequence(config.env.seed).generate_state(1)[0]))
    return make_policy_network(config.training, spec)


def seeds(seed: int, *key: int) -> tuple[int, int, int]:
    """Independent seeds for acting, learning and environments; Procgen takes 31 bits."""
    acting, learning, envs = np.random.SeedSequence(seed, spawn_key=key).generate_state(3)
    return int(acting), int(learning), int(envs >> 1)
