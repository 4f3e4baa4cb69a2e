"""Two processes that apply gradients to the same parameters; prints a JSON object.

torch is imported once: they are forks. First one of them is stopped between computing a gradient and applying it,
while the other one goes on; then both run freely at the same time.
"""

import json
import os
import signal
from collections.abc import Callable

import torch
from torch import nn

from rlcb.comm.control import Control, Heartbeat, no_heartbeat
from rlcb.comm.shared_parameters import SharedParameters
from rlcb.config.load import build_config
from rlcb.learner import Learner
from rlcb.rollout import Rollout

MEANWHILE = 50  # gradients of one while the other is stopped
FREE = 1000  # gradients of each when both run
T, B, FEATURES = 4, 2, 3


class Linear(nn.Module):
    """A policy with a value, as small as can be; large enough that applying a gradient takes a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(FEATURES, 500)
        self.policy_head, self.value_head = nn.Linear(500, 2), nn.Linear(500, 1)

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits and values."""
        features = self.body(observations)
        return self.policy_head(features), self.value_head(features).squeeze(1)


def make_learner(control: Control, rank: int | None, descriptor: int) -> tuple[Learner, SharedParameters]:
    """A learner on the shared parameters; the observer makes them."""
    given = {"name": "CartPole-v1", "num_envs": B, "n_steps": T}
    config = build_config(None, {key: (key, value) for key, value in given.items()}, algorithm="a3c")
    torch.manual_seed(0)
    shared = SharedParameters(descriptor, control.arrivals, rank, create=rank is None)
    heartbeat = no_heartbeat if rank is None else Heartbeat(control, rank)
    return Learner(Linear(), config, torch.Generator().manual_seed(0), shared, heartbeat), shared


def make_rollout(seed: int) -> Rollout:
    """Something to learn from."""
    draw = torch.Generator().manual_seed(seed)
    return Rollout(
        torch.randn(T + 1, B, FEATURES, generator=draw), torch.randint(2, (T, B), generator=draw),
        -torch.rand(T, B, generator=draw), torch.randn(T + 1, B, generator=draw), torch.randn(T, B, generator=draw),
        torch.rand(T, B, generator=draw) < 0.2, torch.zeros(T, B), torch.zeros(T, B, dtype=torch.bool),
    )  # fmt: skip


def forked(work: Callable[[], object], answer: int) -> int:
    """Do this in another process, which writes the result down; returns its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        os.write(answer, json.dumps(work()).encode() + b"\n")
        code = 0
    finally:
        os._exit(code)


def stopped_in_between(control: Control, descriptor: int) -> dict[str, object]:
    """Compute a gradient, be stopped by the parent, apply it; says how far the others had come."""
    learner, group = make_learner(control, 1, descriptor)
    rollout = make_rollout(1)
    batch = learner.algorithm.prepare(rollout, rollout.rewards, learner.config)
    at = learner.weights.clone()
    learner.gradient_of(batch)
    os.kill(os.getpid(), signal.SIGSTOP)
    unmoved = torch.equal(learner.weights, at)
    learner.step(group.reduce())
    return {"unmoved": unmoved, "lag": group.lag, "moved_on": not torch.equal(learner.weights, at)}


def applied_freely(control: Control, rank: int, descriptor: int, number: int) -> dict[str, object]:
    """Apply so many gradients, waiting for nobody."""
    learner, group = make_learner(control, rank, descriptor)
    rollout, lags = make_rollout(rank), []
    for _ in range(number):
        learner.update(rollout, rollout.rewards, 1e-4)
        lags.append(group.lag)
    return {"lags": [min(lags), sum(lags)], "finite": bool(torch.isfinite(learner.weights).all())}


def main() -> None:
    """Run both parts and print what was seen."""
    torch.set_num_threads(1)
    control, descriptor = Control(os.memfd_create("control"), 2), os.memfd_create("parameters")
    observer, shared = make_learner(control, None, descriptor)
    before = observer.weights.clone()
    reading, writing = os.pipe()

    stopped = forked(lambda: stopped_in_between(control, descriptor), writing)
    _, status = os.waitpid(stopped, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    other = forked(lambda: applied_freely(control, 0, descriptor, MEANWHILE), writing)
    went_on = os.waitpid(other, 0)[1] == 0
    counts = [control.arrivals.tolist(), shared.applied()]
    os.kill(stopped, signal.SIGCONT)
    assert os.waitpid(stopped, 0)[1] == 0
    with os.fdopen(os.dup(reading)) as lines:
        alone, late = json.loads(lines.readline()), json.loads(lines.readline())

    children = [forked(lambda rank=rank: applied_freely(control, rank, descriptor, FREE), writing) for rank in (0, 1)]
    ends = [os.waitpid(child, 0)[1] for child in children]
    with os.fdopen(reading) as lines:
        free = [json.loads(lines.readline()) for _ in children]
    shared.refresh()
    moved = float((observer.weights - before).abs().max())
    print(json.dumps({
        "went_on": went_on, "counts": counts, "alone": alone, "late": late, "ends": ends, "free": free,
        "arrivals": control.arrivals.tolist(), "heartbeats": control.heartbeats.tolist(), "moved": moved,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
