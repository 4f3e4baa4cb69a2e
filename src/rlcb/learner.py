"""Learning: policy and optimizer; a rollout in, an update out."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlcb.algorithms import algorithm_named
from rlcb.algorithms.returns import Batch, Samples
from rlcb.comm.control import no_heartbeat
from rlcb.comm.parameters import ReplicatedParameters, ShardedParameters
from rlcb.comm.process_group import ProcessGroup, SharedMemoryGroup, SoloGroup
from rlcb.comm.shared_parameters import SharedParameters
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config, TrainingConfig
from rlcb.envs.own_code import module_of
from rlcb.networks.computation import Computation, Loss
from rlcb.networks.policy import observation_moments, scaling_of
from rlcb.rmsprop import RMSprop
from rlcb.rollout import Rollout

MOMENTS = {"adam": ("exp_avg", "exp_avg_sq"), "rmsprop": ("square_avg",)}  # what each keeps for a weight, in its words
Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Update:
    """What one update did: its metrics, and how many of its optimizer steps were skipped as not finite."""

    metrics: dict[str, float | None]
    skipped_steps: int
    bad_batch: Batch | None


class Learner:
    """Policy and optimizer: turns rollouts into better weights, in step with the other ranks of its group.

    All weights are views of one flat vector and so are their gradients: clipping, the optimizer step, the check for
    finiteness and what crosses between processes are single operations on it, or on this rank's shard of it.
    """

    def __init__(
        self,
        policy: nn.Module,
        config: Config,
        generator: torch.Generator,
        shared: SharedParameters | None = None,
        heartbeat: Callable[[], None] = no_heartbeat,
    ):
        """Alone, until `join`; `shared`: where weights and moments are kept, by default in this process's memory."""
        self.policy, self.config, self.generator, self._heartbeat = policy, config, generator, heartbeat
        self.algorithm = algorithm_named(config.algorithm)
        self._loss = self.algorithm.loss
        self.computation = self._make_computation()
        self.weights = flattened(policy)
        self._moments = {name: torch.zeros_like(self.weights) for name in MOMENTS[config.training.optimizer]}
        self._steps = torch.zeros((), device=self.weights.device)
        self.join(SoloGroup(), shared)

    def _make_computation(self) -> Computation:
        """How the policy is computed."""
        config = self.config
        # One gradient per rollout, at the weights that acted: the forward pass of acting serves for learning, too.
        # What layers the user's own networks have is not known.
        own = module_of(config.training.network) is not None
        once = ALGORITHMS[config.algorithm].whole_rollout and not config.training.micro_batch_size and not own
        return Computation(self.policy, config.hardware.precision, keeps_layers=once)

    def join(self, group: ProcessGroup, shared: SharedParameters | None = None) -> None:
        """Work in this group from now on; weights, moments and gradients go where its parameters are kept."""
        self.group, moments = group, list(self._moments.values())
        kept: ReplicatedParameters | ShardedParameters | SharedParameters
        if shared is not None:
            kept = shared
            shared.attach(self.weights, moments, self._steps)
            self._steps = shared.steps
        elif isinstance(group, SharedMemoryGroup):
            kept = ShardedParameters(group, self.weights, moments)
        else:
            kept = ReplicatedParameters(group, self.weights, moments)
        self.parameters = kept
        self.weights, self.gradient = kept.weights, kept.gradient
        self._moments = dict(zip(self._moments, kept.moments, strict=True))
        shapes = list(self.policy.parameters())
        for parameter, piece in zip(shapes, pieces_of(self.weights, shapes), strict=True):
            parameter.data = piece
        self.gradient.zero_()  # also where nothing is learned, and memory may be used for the second time
        pieces = zip(shapes, pieces_of(self.gradient, shapes), strict=True)
        self._gradients = [piece for parameter, piece in pieces if parameter.requires_grad]
        mine = nn.Parameter(kept.moved[kept.shard])
        mine.grad = kept.reduced[: mine.numel()]  # nothing, where another process moves the weights
        self._optimizer = make_optimizer(mine, self.config.training)
        shard = {name: moment[kept.shard] for name, moment in self._moments.items()}
        self._optimizer.state[mine] = {"step": self._steps, **shard}

    def update(self, rollout: Rollout, rewards: Tensor, learning_rate: float) -> Update:
        """Train n_epochs over the rollout in shuffled minibatches; `rewards` [T, B] are the ones to learn from."""
        self._set_learning_rate(learning_rate)
        batch = self.algorithm.prepare(rollout, rewards, self.config)
        indices = self._shuffled(len(batch)).to(self.weights.device)
        scales = self._advantage_scales(batch, indices)
        statistics, norms, skipped, bad_batch = [], [], 0, None
        for step, chosen in enumerate(indices):
            self._heartbeat()
            as_acted = self.computation.kept_samples == len(chosen) == len(batch)
            minibatch = batch if as_acted else select(batch, chosen)
            if scales is not None:
                minibatch = with_scaled_advantages(minibatch, scales[step])
            metrics = self.gradient_of(minibatch, as_acted)
            norm = self.parameters.reduce()
            if not torch.isfinite(norm):
                skipped, bad_batch = skipped + 1, minibatch
                continue
            self.step(norm)
            statistics.append(metrics)
            norms.append(norm)
        return Update(self._metrics(batch, statistics, norms, learning_rate), skipped, bad_batch)

    def _shuffled(self, count: int) -> Tensor:
        """The numbers of this many items in a new order for every epoch, a row for each optimizer step of this rank."""
        orders = [torch.randperm(count, generator=self.generator) for _ in range(self.config.training.n_epochs)]
        return torch.stack(orders).view(-1, self.config.minibatch_items // self.group.size)

    def gradient_of(self, minibatch: Batch, as_acted: bool = False) -> Tensor:
        """Fill `gradient` with the minibatch's, piece by piece if asked to; returns the loss's metrics.

        `as_acted`: the minibatch is all that was acted on with these weights, in that order.
        """
        if not as_acted:
            self.computation.refresh()
        micro = self.config.training.micro_batch_size
        # Items in a backward pass at a time.
        items = max(micro // self.config.samples_per_item, 1) if micro else len(minibatch)
        total, begun = torch.zeros(len(self.algorithm.statistics), device=self.weights.device), False
        for piece in split(minibatch, items):
            observations, loss = piece.observations.flatten(0, piece.item_dim), self._share_of_loss(piece, minibatch)
            found, metrics = self.computation.gradients(observations, loss, as_acted)
            for gradient in found:
                for whole, part in zip(self._gradients, gradient, strict=True):
                    whole.add_(part) if begun else whole.copy_(part)
                begun = True
            total += metrics
        return total

    def _share_of_loss(self, piece: Batch, minibatch: Batch) -> Loss:
        """What a piece of a minibatch adds to its loss and metrics, as a function of outputs and values."""
        share = len(piece) / len(minibatch)
        # The group averages its gradients, so a sum over all samples is the mean times their number in all ranks.
        factor = share * (self.config.minibatch_size if self.algorithm.summed else 1)

        def loss_and_metrics(outputs: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            loss, metrics = self._loss(outputs, values, piece, self.config)
            return loss * factor, metrics * share

        return loss_and_metrics

    def step(self, norm: Tensor) -> None:
        """Clip the mean gradient, whose norm this is, and move the weights: this rank its shard, the others theirs."""
        self.parameters.reduced.mul_((self.config.objective.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        self.parameters.apply(self._optimizer)

    def observe(self, rollout: Rollout) -> None:
        """Take in the group's observations, where they are scaled; acting and learning know of them from then on."""
        scaling = scaling_of(self.policy)
        if scaling is None:
            return
        moments = observation_moments(rollout.observations[:-1])
        if isinstance(self.parameters, SharedParameters):
            self.parameters.take_in(scaling, moments)
            return
        known = scaling.known()  # before the sum: where ranks share the weights, another may be quicker to change them
        scaling.take_in(known, self.group.sum(moments))

    def apply(self, learning_rate: float) -> None:
        """Move the weights by the gradient as it is."""
        self._set_learning_rate(learning_rate)
        self.parameters.apply(self._optimizer)

    def _set_learning_rate(self, learning_rate: float) -> None:
        """Set the optimizer's step size; one that is too large for a float32 is infinite, as torch would refuse it."""
        largest = torch.finfo(torch.float32).max
        rate, group = learning_rate if learning_rate <= largest else math.inf, self._optimizer.param_groups[0]
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate

    def is_finite(self) -> bool:
        """Whether all weights are finite."""
        return all(bool(torch.isfinite(extreme)) for extreme in torch.aminmax(self.weights))  # NaN is both extremes

    def _advantage_scales(self, batch: Batch, indices: Tensor) -> Tensor | None:
        """Mean and deviation of the advantages in each of the group's minibatches [steps, 2], or None to leave them."""
        count = indices.shape[1] * self.group.size
        wanted = getattr(self.config.objective, "normalize_advantages", False)
        if not isinstance(batch, Samples) or not wanted or count < 2:
            return None
        chosen = batch.advantages[indices].double()
        first, second = self.group.sum(torch.stack((chosen.sum(1), chosen.square().sum(1))))
        variance = ((second - first.square() / count) / (count - 1)).clamp(min=0)
        return torch.stack((first / count, variance.sqrt() + 1e-8), dim=1).float()

    def _metrics(
        self, batch: Batch, statistics: list[Tensor], norms: list[Tensor], learning_rate: float
    ) -> dict[str, float | None]:
        """Means over the update's optimizer steps and the group, by the names they are logged under."""
        names, errors = self.algorithm.statistics, batch.returns - batch.values
        sums = [f.double().sum() for x in (batch.returns, errors) for f in (x, x.square())]
        figures = torch.stack(statistics).double().mean(0) if statistics else torch.zeros(len(names)).double()
        together = self.group.sum(torch.cat((torch.stack(sums).cpu(), figures.cpu())))
        means = (together[len(sums) :] / self.group.size).tolist()
        metrics: dict[str, float | None] = dict(zip(names, means if statistics else [None] * len(names), strict=True))
        metrics["gradient/norm"] = float(torch.stack(norms).mean()) if norms else None
        count = errors.numel() * self.group.size
        metrics["value/explained_variance"] = _explained(together[: len(sums)].tolist(), count)
        metrics["learning_rate"] = learning_rate
        return metrics

    def vectors(self) -> list[Tensor]:
        """Everything that learning has changed so far, as flat vectors: weights, moments, the number of steps."""
        return [self.weights, *self._moments.values(), self._steps.view(1)]

    def load_vectors(self, together: Tensor) -> None:
        """Restore what `vectors` gave, put behind one another."""
        vectors = self.vectors()
        for vector, saved in zip(vectors, torch.split(together, [len(vector) for vector in vectors]), strict=True):
            vector.copy_(saved)

    def state(self) -> tuple[Arrays, Arrays]:
        """Copies of the weights by name, and of the optimizer's moments and number of steps."""
        return _copies(self.policy.state_dict()), _copies({"step": self._steps, **self._moments})

    def load(self, policy: Arrays, optimizer: Arrays) -> None:
        """Restore what `state` gave."""
        self.policy.load_state_dict({name: torch.tensor(array) for name, array in policy.items()})
        for name, tensor in {"step": self._steps, **self._moments}.items():
            tensor.copy_(torch.as_tensor(optimizer[name]))


BatchType = TypeVar("BatchType", bound=Batch)


def select(batch: BatchType, indices: Tensor) -> BatchType:
    """The items of a batch at these positions."""
    return type(batch)(*(tensor.index_select(batch.item_dim, indices) for tensor in vars(batch).values()))


def with_scaled_advantages(batch: Batch, scale: Tensor) -> Batch:
    """Samples with their advantages less the mean and divided by the deviation that `scale` [2] holds."""
    assert isinstance(batch, Samples)
    mean, deviation = scale
    return replace(batch, advantages=(batch.advantages - mean) / deviation)


def split(batch: BatchType, size: int) -> list[BatchType]:
    """Pieces of at most `size` items, in order."""
    columns = (tensor.split(size, dim=batch.item_dim) for tensor in vars(batch).values())
    return [type(batch)(*pieces) for pieces in zip(*columns, strict=True)]


def _copies(tensors: dict[str, Tensor]) -> Arrays:
    return {name: np.array(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()}


def _explained(sums: list[float], count: int) -> float | None:
    """1 − Var(errors) / Var(returns) from the sums and sums of squares of both; None where the returns do not vary."""
    returns, returns2, errors, errors2 = sums
    variance = returns2 - returns * returns / count
    return 1.0 - (errors2 - errors * errors / count) / variance if variance > 0 else None


def make_optimizer(parameter: nn.Parameter, training: TrainingConfig) -> torch.optim.Optimizer:
    """The optimizer of a flat vector; on a GPU its rate is a tensor there, as all that a CUDA graph reads."""
    on_gpu = parameter.is_cuda
    rate = torch.tensor(training.learning_rate, device=parameter.device) if on_gpu else training.learning_rate
    if training.optimizer == "adam":
        return torch.optim.Adam([parameter], rate, eps=training.adam_eps, fused=True, capturable=on_gpu)
    return RMSprop(parameter, rate, training.rms_decay, training.rms_eps)


def flattened(policy: nn.Module) -> Tensor:
    """All weights as one vector, of which the policy's parameters become views."""
    parameters = list(policy.parameters())
    vector = torch.cat([parameter.detach().flatten() for parameter in parameters])
    for parameter, piece in zip(parameters, pieces_of(vector, parameters), strict=True):
        parameter.data = piece
    return vector


def pieces_of(vector: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """A flat vector's entries as views in the shapes of these parameters, in their order."""
    pieces = torch.split(vector, [parameter.numel() for parameter in parameters])
    return [piece.view_as(parameter) for piece, parameter in zip(pieces, parameters, strict=True)]
