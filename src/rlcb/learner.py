"""Learning: policy and optimizer; a rollout in, an update out."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlcb.algorithms.ppo import STATISTICS, Batch, normalized, ppo_loss
from rlcb.collector import Rollout
from rlcb.config import Config
from rlcb.returns import explained_variance, gae


@dataclass(frozen=True)
class Update:
    """What one update did: the figures to log, and how many of its optimizer steps had to be left out."""

    metrics: dict[str, float | None]
    skipped_steps: int
    bad_batch: Batch | None


class Learner:
    """Owns the policy's weights and turns rollouts into better ones.

    All weights are views of one flat vector and so are their gradients: clipping, the optimizer step, finiteness and
    whatever has to cross between processes are single operations on it.
    """

    def __init__(self, policy: nn.Module, config: Config, generator: torch.Generator):
        self.policy, self.config, self.generator = policy, config, generator
        self.weights, self.gradient = flatten_parameters(policy)
        self._flat = nn.Parameter(self.weights)
        self._flat.grad = self.gradient
        training = config.training
        self.optimizer = torch.optim.Adam([self._flat], training.learning_rate, eps=training.adam_eps, fused=True)
        self.optimizer_steps = 0

    def update(self, rollout: Rollout, rewards: Tensor, learning_rate: float) -> Update:
        """Train n_epochs over the rollout in shuffled minibatches; `rewards` [T, B] are the ones to learn from."""
        training = self.config.training
        self.optimizer.param_groups[0]["lr"] = learning_rate
        batch = make_batch(rollout, rewards, training.gamma, training.gae_lambda)
        statistics, norms, skipped, bad_batch = [], [], 0, None
        for _ in range(training.n_epochs):
            order = torch.randperm(len(batch), generator=self.generator).to(self.weights.device)
            for indices in torch.split(order, self.config.minibatch_size):
                minibatch = batch.select(indices)
                figures, norm = self.gradient_of(minibatch)
                if not torch.isfinite(norm):
                    skipped, bad_batch = skipped + 1, minibatch
                    continue
                self._step(norm)
                statistics.append(figures)
                norms.append(norm)
        return Update(self._metrics(batch, statistics, norms, learning_rate), skipped, bad_batch)

    def gradient_of(self, minibatch: Batch) -> tuple[Tensor, Tensor]:
        """Fill `gradient` with the minibatch's, piece by piece if asked to; returns its figures and its norm."""
        ppo = self.config.ppo
        if ppo.normalize_advantages:
            fields = {**vars(minibatch), "advantages": normalized(minibatch.advantages)}
            minibatch = Batch(**fields)
        self.gradient.zero_()
        total = torch.zeros(len(STATISTICS), device=self.weights.device)
        for piece in minibatch.split(self.config.training.micro_batch_size or len(minibatch)):
            logits, values = self.policy(piece.observations)
            loss, figures = ppo_loss(logits, values, piece, ppo)
            share = len(piece) / len(minibatch)
            (loss * share).backward()  # type: ignore[no-untyped-call]
            total += figures * share
        return total, self.gradient.norm()

    def _step(self, norm: Tensor) -> None:
        self.gradient.mul_((self.config.ppo.max_grad_norm / (norm + 1e-6)).clamp(max=1.0))
        self.optimizer.step()
        self.optimizer_steps += 1

    def _metrics(
        self, batch: Batch, statistics: list[Tensor], norms: list[Tensor], learning_rate: float
    ) -> dict[str, float | None]:
        """Means over the update's optimizer steps, by the names they are logged under; None where there were none."""
        means: list[float] = torch.stack(statistics).mean(0).tolist() if statistics else []
        metrics: dict[str, float | None] = dict.fromkeys(STATISTICS)
        metrics.update(zip(STATISTICS, means, strict=False))
        metrics["gradient/norm"] = float(torch.stack(norms).mean()) if norms else None
        metrics["value/explained_variance"] = explained_variance(batch.values, batch.returns)
        metrics["learning_rate"] = learning_rate
        return metrics

    def state(self) -> dict[str, Any]:
        """Weights by name and the optimizer's moments."""
        return {
            "policy": {name: tensor.detach().cpu().clone() for name, tensor in self.policy.state_dict().items()},
            "optimizer": {
                "steps": self.optimizer_steps,
                **{key: value.cpu().clone() for key, value in self.optimizer.state[self._flat].items()},
            },
        }

    def load(self, state: dict[str, Any]) -> None:
        """Restore what `state` gave."""
        self.policy.load_state_dict(state["policy"])
        moments = dict(state["optimizer"])
        self.optimizer_steps = moments.pop("steps")
        device = self.weights.device
        self.optimizer.state[self._flat] = {key: value.to(device) for key, value in moments.items()}


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


def flatten_parameters(module: nn.Module) -> tuple[Tensor, Tensor]:
    """Move a module's parameters and gradients into two flat vectors that they become views of."""
    parameters = list(module.parameters())
    weights = torch.cat([parameter.detach().flatten() for parameter in parameters])
    gradient = torch.zeros_like(weights)
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        parameter.data = weights[start:end].view_as(parameter)
        parameter.grad = gradient[start:end].view_as(parameter)
        start = end
    return weights, gradient
