"""The two kinds of policies as pure functions: what a network's policy outputs mean, how actions are drawn from them.

Discrete actions are integers [...] and the outputs their logits [..., A]. Continuous actions (Gymnasium's Box) are
vectors of floats [..., D] and the outputs are the means and the logarithms of the standard deviations of a diagonal
Gaussian [..., 2D]. The type of the actions tells which one it is.
"""

import math

import torch
from torch import Tensor

_LOG_ROOT_2_PI = 0.5 * math.log(2 * math.pi)


def fill_noise(noise: Tensor, continuous: bool, generator: torch.Generator | None) -> Tensor:
    """Fill a tensor [..., A or D] with what `draw` needs: exponential variables, or standard normal ones."""
    return noise.normal_(generator=generator) if continuous else noise.exponential_(generator=generator)


def draw(outputs: Tensor, noise: Tensor, continuous: bool) -> tuple[Tensor, Tensor]:
    """Actions and their log-probabilities [...], from a policy's outputs and noise [..., A or D].

    For discrete actions the noise is an exponential race: the smallest in relation to its probability wins.
    """
    if continuous:
        mean, log_std = outputs.chunk(2, dim=-1)
        actions = mean + log_std.exp() * noise
        return actions, gaussian_log_probs(mean, log_std, actions)
    log_policy = torch.log_softmax(outputs, dim=-1)
    actions = torch.argmax(log_policy.exp() / noise, dim=-1)
    return actions, log_policy.gather(-1, actions.unsqueeze(-1)).squeeze(-1)


def pick(outputs: Tensor, noise: Tensor, continuous: bool) -> Tensor:
    """Actions drawn as by `draw`, for those who need no log-probabilities."""
    if continuous:
        return draw(outputs, noise, continuous)[0]
    return torch.argmax(torch.softmax(outputs, dim=-1).div_(noise), dim=-1)


def likeliest(outputs: Tensor, continuous: bool) -> Tensor:
    """The actions of the highest probability: the mean of a Gaussian."""
    return outputs.chunk(2, dim=-1)[0] if continuous else torch.argmax(outputs, dim=-1)


def log_probs_and_entropy(outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """The log-probabilities of these actions and the policy's entropies, both [...]."""
    if actions.is_floating_point():
        mean, log_std = outputs.chunk(2, dim=-1)
        return gaussian_log_probs(mean, log_std, actions), (log_std + (0.5 + _LOG_ROOT_2_PI)).sum(-1)
    log_policy = torch.log_softmax(outputs, dim=-1)
    log_probs = log_policy.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
    return log_probs, -(log_policy.exp() * log_policy).sum(-1)


def gaussian_log_probs(mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
    """Σ_d −½((a_d − μ_d) / σ_d)² − log σ_d − ½ log 2π, over the last dimension."""
    errors = (actions - mean) * (-log_std).exp()
    return (-0.5 * errors.square() - log_std - _LOG_ROOT_2_PI).sum(-1)
