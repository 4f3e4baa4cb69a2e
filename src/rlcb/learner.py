"""Learning: policy and optimizer; a rollout in, an update out."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlcb.algorithms.ppo import STATISTICS, Batch, ppo_loss
from rlcb.collector import Rollout
from rlcb.config import Config
from rlcb.group import Group
from rlcb.returns import gae

MOMENTS = ("exp_avg", "exp_avg_sq")  # what Adam keeps for each weight, by its own names


@dataclass(frozen=True)
class Update:
    """What one update did: the figures to log, and how many of its optimizer steps had to be left out."""

    metrics: dict[str, float | None]
    skipped_steps: int
    bad_batch: Batch | None


class Learner:
    """Owns a copy of the policy's weights and turns rollouts into better ones, in step with the group's other copies.

    All weights are views of one flat vector and so are their gradients: clipping, the optimizer step, finiteness and
    what crosses between processes are single operations on it, or on the part of it that falls to this process.
    """

    def __init__(self, policy: nn.Module, config: Config, generator: torch.Generator, group: Group):
        self.policy, self.config, self.generator = policy, config, generator
        self.weights = torch.cat([parameter.detach().flatten() for parameter in policy.parameters()])
        self._moments = {name: torch.zeros_like(self.weights) for name in MOMENTS}
        self._steps = torch.zeros((), device=self.weights.device)
        self.join(group)

    def join(self, group: Group) -> None:
        """Work in this group from now on: weights, moments and gradients go where it wants them."""
        self.group = group
        attached = group.attach(self.weights, list(self._moments.values()))
        self.weights, self.gradient = attached.weights, attached.gradient
        self._moments = dict(zip(MOMENTS, attached.moments, strict=True))
        self._parameters = list(self.policy.parameters())
        for parameter, piece in zip(self._parameters, pieces_of(self.weights, self._parameters), strict=True):
            parameter.data = piece
        self._gradients = pieces_of(self.gradient, self._parameters)
        self.reduced, mine = attached.reduced, nn.Parameter(self.weights[attached.part])
        mine.grad = self.reduced
        training = self.config.training
        self._optimizer = torch.optim.Adam([mine], training.learning_rate, eps=training.adam_eps, fused=True)
        moments = {name: moment[attached.part] for name, moment in self._moments.items()}
        self._optimizer.state[mine] = {"step": self._steps, **moments}

    def update(self, rollout: Rollout, rewards: Tensor, learning_rate: float) -> Update:
        """Train n_epochs over the rollout in shuffled minibatches; `rewards` [T, B] are the ones to learn from."""
        training = self.config.training
        self._optimizer.param_groups[0]["lr"] = learning_rate
        batch = make_batch(rollout, rewards, training.gamma, training.gae_lambda)
        share = self.config.minibatch_size // self.group.size
        orders = [torch.randperm(len(batch), generator=self.generator) for _ in range(training.n_epochs)]
        indices = torch.stack(orders).view(-1, share).to(self.weights.device)  # a row per optimizer step
        scales = self._advantage_scales(batch.advantages, indices)
        statistics, norms, skipped, bad_batch = [], [], 0, None
        for step, chosen in enumerate(indices):
            self.group.alive()
            minibatch = batch.select(chosen)
            mean, deviation = scales[step]
            minibatch = replace(minibatch, advantages=(minibatch.advantages - mean) / deviation)
            figures = self.gradient_of(minibatch)
            norm = self.group.reduce()
            if not torch.isfinite(norm):
                skipped, bad_batch = skipped + 1, minibatch
                continue
            self.step(norm)
            statistics.append(figures)
            norms.append(norm)
        return Update(self._metrics(batch, statistics, norms, learning_rate), skipped, bad_batch)

    def gradient_of(self, minibatch: Batch) -> Tensor:
        """Fill `gradient` with the minibatch's, piece by piece if asked to; returns the loss's figures."""
        total = torch.zeros(len(STATISTICS), device=self.weights.device)
        for number, piece in enumerate(minibatch.split(self.config.training.micro_batch_size or len(minibatch))):
            logits, values = self.policy(piece.observations)
            loss, figures = ppo_loss(logits, values, piece, self.config.ppo)
            share = len(piece) / len(minibatch)
            found = torch.autograd.grad(loss * share, self._parameters)
            for gradient, part in zip(self._gradients, found, strict=True):
                gradient.add_(part) if number else gradient.copy_(part)
            total += figures * share
        return total

    def step(self, norm: Tensor) -> None:
        """Clip the gradient, whose norm this is, and move the weights: this rank its part, the others theirs."""
        self.reduced.mul_((self.config.ppo.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        self._optimizer.step()
        self.group.settle()

    def _advantage_scales(self, advantages: Tensor, indices: Tensor) -> Tensor:
        """Mean and deviation of the advantages in each of the group's minibatches [steps, 2]."""
        steps, share = indices.shape
        count = share * self.group.size
        if not self.config.ppo.normalize_advantages or count < 2:
            return torch.tensor([[0.0, 1.0]], device=advantages.device).expand(steps, 2)
        chosen = advantages[indices].double()
        first, second = self.group.sum(torch.stack((chosen.sum(1), chosen.square().sum(1))).cpu())
        variance = ((second - first.square() / count) / (count - 1)).clamp(min=0)
        return torch.stack((first / count, variance.sqrt() + 1e-8), dim=1).to(advantages.device, torch.float32)

    def _metrics(
        self, batch: Batch, statistics: list[Tensor], norms: list[Tensor], learning_rate: float
    ) -> dict[str, float | None]:
        """Means over the update's optimizer steps and the group, by the names they are logged under."""
        errors = batch.returns - batch.values
        sums = [f.double().sum() for x in (batch.returns, errors) for f in (x, x.square())]
        figures = torch.stack(statistics).double().mean(0) if statistics else torch.zeros(len(STATISTICS)).double()
        together = self.group.sum(torch.cat((torch.stack(sums).cpu(), figures.cpu())))
        means = (together[len(sums) :] / self.group.size).tolist()
        metrics: dict[str, float | None] = dict(zip(STATISTICS, means if statistics else [None] * 6, strict=True))
        metrics["gradient/norm"] = float(torch.stack(norms).mean()) if norms else None
        metrics["value/explained_variance"] = _explained(together[: len(sums)].tolist(), len(batch) * self.group.size)
        metrics["learning_rate"] = learning_rate
        return metrics

    def state(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Copies of the weights by name and of the optimizer's moments."""
        return {
            "policy": _copies(self.policy.state_dict()),
            "optimizer": _copies({"step": self._steps, **self._moments}),
        }

    def load(self, state: dict[str, dict[str, NDArray[Any]]]) -> None:
        """Restore what `state` gave."""
        self.policy.load_state_dict({name: torch.as_tensor(array) for name, array in state["policy"].items()})
        for name, tensor in {"step": self._steps, **self._moments}.items():
            tensor.copy_(torch.as_tensor(state["optimizer"][name]))


def _copies(tensors: dict[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: np.array(tensor.detach().cpu()) for name, tensor in tensors.items()}


def _explained(sums: list[float], count: int) -> float | None:
    """1 − Var(errors) / Var(returns) from the sums and sums of squares of both; None where the returns do not vary."""
    returns, returns2, errors, errors2 = sums
    variance = returns2 - returns * returns / count
    return 1.0 - (errors2 - errors * errors / count) / variance if variance > 0 else None


def make_batch(rollout: Rollout, rewards: Tensor, gamma: float, gae_lambda: float) -> Batch:
    """The rollout's T × B samples with their advantages and returns."""
    earned = rewards + gamma * rollout.bonus
    advantages = gae(earned, rollout.values, rollout.dones, gamma, gae_lambda)
    values = rollout.values[:-1]
    return Batch(
        rollout.observations[:-1].flatten(0, 1),
        rollout.actions.flatten(),
        rollout.log_probs.flatten(),
        values.flatten(),
        advantages.flatten(),
        (advantages + values).flatten(),
    )


def pieces_of(vector: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    """A flat vector's entries as views in the shapes of these parameters, in their order."""
    pieces = torch.split(vector, [parameter.numel() for parameter in parameters])
    return [piece.view_as(parameter) for piece, parameter in zip(pieces, parameters, strict=True)]
