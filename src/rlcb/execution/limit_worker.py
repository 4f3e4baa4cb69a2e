"""The role `limit_worker`: does one part of a run's work at a time, by itself, and tells how fast that was."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle

import numpy as np
import torch

from rlcb.algorithms.returns import Batch
from rlcb.envs.base import Actions, EnvSpec
from rlcb.execution.entry import WorkerContext
from rlcb.execution.messages import LimitSetup, Measure, Started
from rlcb.execution.worker import Worker
from rlcb.gpu.collector import GpuCollector
from rlcb.gpu.learner import GpuLearner
from rlcb.learner import Learner, select
from rlcb.rollout import make_rollout
from rlcb.run.gpu_failures import gpu_failures, less_memory

_MOST_STEPS, _MOST_SAMPLES = 32, 1024  # of the rollouts that acting is measured with: a phase ends with a whole one
_ACTIONS = 64  # random ones of each environment, which are repeated


def work(context: WorkerContext, setup: LimitSetup) -> None:
    """Measure what is asked for, repeatedly."""
    with gpu_failures(less_memory(setup.config.algorithm)):
        meter = SpeedMeter(setup)
        context.channel.send(Started(meter.worker.num_envs))
        while True:
            order: Measure = context.channel.recv()
            context.channel.send(meter.speed(order.activity, order.seconds))


class SpeedMeter:
    """A worker of the run that is alone, and made-up data for its learner."""

    def __init__(self, setup: LimitSetup):
        self.worker = worker = Worker(setup.config, setup.device, setup.env_threads, setup.rank, setup.size)
        spec, num_envs, T = worker.env.spec, worker.num_envs, setup.config.training.n_steps
        steps = max(min(T, _MOST_STEPS, _MOST_SAMPLES // num_envs), 1)
        worker.prepare()
        self._rollout = make_rollout(steps, num_envs, spec)
        self._batch = made_up_batch(worker.learner, spec, setup.minibatch_items, setup.device)
        random = np.random.default_rng(setup.rank)
        self._actions = cycle(random_actions(random, spec, num_envs))
        # A rollout takes one more pass of the policy than it has steps, for the value to bootstrap from.
        passes = 1 if isinstance(worker.collector, GpuCollector) else steps + 1
        acted = passes * num_envs * T / (T + 1)
        samples = setup.minibatch_items * setup.config.samples_per_item
        self._activities: dict[str, tuple[float, Callable[[], float]]] = {
            "env": (num_envs, self._step),
            "acting": (acted, self._act),
            "training": (samples, self._train),
        }

    def speed(self, activity: str, seconds: float) -> float:
        """Samples per second of an activity that is repeated for so long, at least once."""
        samples, repeated = self._activities[activity]
        count, spent, begun = 0, 0.0, time.perf_counter()
        while not count or time.perf_counter() - begun < seconds:
            spent += repeated()
            count += 1
        return samples * count / spent

    def _step(self) -> float:
        """Step the environments with random actions; returns the seconds."""
        begun = time.perf_counter()
        step = self.worker.env.step(next(self._actions))
        spent = time.perf_counter() - begun
        self.worker.collector.observation = step.observations
        return spent

    def _act(self) -> float:
        """Collect a rollout; returns the seconds that the policy took."""
        collector = self.worker.collector
        if isinstance(collector, GpuCollector):
            return _timed(collector.act_once)
        collector.collect(self._rollout)
        return collector.acting_seconds

    def _train(self) -> float:
        """Compute a gradient; returns the seconds, without those of a forward pass that acting has done."""
        learner = self.worker.learner
        if isinstance(learner, GpuLearner):
            return _timed(learner.step_once)
        if learner.computation.keeps_layers:
            self.worker.collector.collect()
        as_acted = learner.computation.kept_samples == len(self._batch)
        begun = time.perf_counter()
        learner.gradient_of(self._batch, as_acted)
        return time.perf_counter() - begun


def random_actions(random: np.random.Generator, spec: EnvSpec, num_envs: int) -> list[Actions]:
    """Actions for some steps, discrete ones evenly, continuous ones normally distributed."""
    if spec.continuous:
        return list(random.standard_normal((_ACTIONS, num_envs, spec.num_actions), np.float32))
    return list(random.integers(spec.num_actions, size=(_ACTIONS, num_envs), dtype=np.int64))


def _timed(work: Callable[[], None]) -> float:
    """The seconds that this work took the GPU and all before it."""
    begun = time.perf_counter()
    work()
    torch.cuda.synchronize()
    return time.perf_counter() - begun


def made_up_batch(learner: Learner, spec: EnvSpec, items: int, device: str) -> Batch:
    """So many items of random data, such as a minibatch of the learner has."""
    config, generator = learner.config, torch.Generator().manual_seed(0)
    per_item = config.samples_per_item
    T = min(config.training.n_steps, items) if per_item == 1 else config.training.n_steps
    rollout = make_rollout(T, math.ceil(items * per_item / T), spec, device)
    pictures = not rollout.observations.is_floating_point()
    shape = rollout.observations.shape
    seen = torch.randint(256, shape, generator=generator) if pictures else torch.randn(shape, generator=generator)
    rollout.observations.copy_(seen)
    if spec.continuous:
        rollout.actions.copy_(torch.randn(rollout.actions.shape, generator=generator))
    else:
        rollout.actions.copy_(torch.randint(spec.num_actions, rollout.actions.shape, generator=generator))
    rollout.log_probs.fill_(-math.log(spec.num_actions))
    rollout.values.zero_()
    rewards = torch.randn(rollout.rewards.shape, generator=generator).to(device)
    nothing = torch.zeros_like(rewards)
    whole = replace(rollout, rewards=rewards, dones=nothing.bool(), truncation_value=nothing)
    batch: Batch = learner.algorithm.prepare(whole, rewards, config)
    return select(batch, torch.arange(items, device=device))
