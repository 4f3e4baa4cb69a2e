"""Learning on a GPU: an update that waits for the device once, at its end."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rlcb.algorithms.returns import Batch
from rlcb.comm.control import no_heartbeat
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.gpu.device import distinct_writes, gpu_computation
from rlcb.gpu.graph import Graph
from rlcb.gpu.memory import RolloutMemory
from rlcb.learner import Learner, Update, select, with_scaled_advantages
from rlcb.networks.computation import Computation
from rlcb.rollout import Rollout


class GpuLearner(Learner):
    """A learner whose optimizer steps are one CUDA graph, and whose returns and advantages are another.

    Whether a gradient is finite is decided on the device: a step whose gradient is not changes nothing.
    """

    def __init__(
        self,
        policy: nn.Module,
        config: Config,
        generator: torch.Generator,
        memory: RolloutMemory,
        recorded: bool,
        heartbeat: Callable[[], None] = no_heartbeat,
    ):
        """`memory`: where rollouts are learned from; `recorded`: with CUDA graphs, not operation by operation."""
        super().__init__(policy, config, generator, heartbeat=heartbeat)
        if config.hardware.compile is True and not ALGORITHMS[config.algorithm].whole_unrolls:
            self._loss = torch.compile(self.algorithm.loss, dynamic=False)  # V-trace's loop would take long to compile
        self._memory, device = memory, self.weights.device
        items = config.rollout_size // config.samples_per_item
        steps = config.training.n_epochs * (items // config.minibatch_items)
        self._indices = torch.arange(items, device=device).repeat(config.training.n_epochs).view(steps, -1)
        self._scales = torch.ones((steps, 2), device=device)  # mean and deviation of the advantages
        self._figures = torch.zeros((steps, len(self.algorithm.statistics) + 1), device=device)  # metrics and the norm
        self._row = torch.zeros(1, dtype=torch.int64, device=device)  # the number of the optimizer step
        self._skipped = torch.zeros((), device=device)  # 1 where the gradient is not finite
        self._optimizer.found_inf = self._skipped  # type: ignore[attr-defined]
        self._batch = self._prepared()
        self._scaled = self._advantage_scales(self._batch, self._indices) is not None
        self._prepare = Graph(self._fill_batch, recorded)
        self._step = Graph(self._take_step, recorded, changes=[*self.vectors(), self._row])

    def _make_computation(self) -> Computation:
        """How the policy is computed."""
        return gpu_computation(self.policy, self.config.hardware)

    def prepare(self) -> None:
        """Record what learning does; it changes nothing."""
        self._prepare.record()
        self._step.record()

    def update(self, rollout: Rollout, rewards: Tensor, learning_rate: float) -> Update:
        """Train n_epochs over the rollout in shuffled minibatches; `rewards` [T, B] are the ones to learn from."""
        self._set_learning_rate(learning_rate)
        self._memory.load(rollout, rewards)
        self._prepare()
        batch = self._batch
        self._indices.copy_(self._shuffled(len(batch)))
        if (scales := self._advantage_scales(batch, self._indices)) is not None:
            self._scales.copy_(scales)
        self._row.zero_()
        for _ in self._indices:
            self._heartbeat()
            self._step()
        figures = self._figures.cpu()  # waits for the device
        finite = figures[:, -1].isfinite()
        bad = torch.nonzero(~finite).flatten().tolist()
        statistics, norms = figures[finite, :-1], figures[finite, -1]
        metrics = self._metrics(batch, list(statistics), list(norms), learning_rate)
        return Update(metrics, len(bad), select(batch, self._indices[bad[-1]]) if bad else None)

    def step_once(self) -> None:
        """Learn from the first minibatch of what is in the memory: to measure how long it takes."""
        self._row.zero_()
        self._step()

    def _prepared(self) -> Batch:
        batch: Batch = self.algorithm.prepare(self._memory.rollout, self._memory.rewards, self.config)
        return batch

    def _fill_batch(self) -> None:
        """Compute returns and advantages, to where the optimizer steps read them."""
        for here, new in zip(vars(self._batch).values(), vars(self._prepared()).values(), strict=True):
            if here.data_ptr() != new.data_ptr():
                here.copy_(new)

    def _take_step(self) -> None:
        """Learn from the next minibatch, and keep its metrics and the norm of its gradient."""
        minibatch = select(self._batch, self._indices.index_select(0, self._row).squeeze(0))
        if self._scaled:
            minibatch = with_scaled_advantages(minibatch, self._scales.index_select(0, self._row).squeeze(0))
        metrics = self.gradient_of(minibatch)
        norm = self.parameters.reduce()
        self._skipped.copy_(norm.isfinite().logical_not())
        self.step(norm)
        with distinct_writes():
            self._figures.index_copy_(0, self._row, torch.cat((metrics, norm.view(1))).unsqueeze(0))
        self._row.add_(1)
