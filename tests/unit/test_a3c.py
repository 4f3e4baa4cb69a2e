"""A3C: parameters that several workers move at once, and what it refuses."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from helpers.in_process import rlcb_here
from helpers.parameter_processes import make_learner, make_rollout
from rlcb.comm.control import Control
from rlcb.comm.shared_parameters import SharedParameters
from rlcb.config.load import build_config
from rlcb.envs.families import spec_of
from rlcb.execution.worker import make_policy
from rlcb.learner import Learner


@pytest.fixture
def memory() -> Iterator[tuple[Control, int]]:
    """The control page of two workers, and memory for their parameters."""
    control, descriptor = Control(os.memfd_create("control"), 2), os.memfd_create("parameters")
    yield control, descriptor
    os.close(descriptor)
    os.close(control.descriptor)


def one_update(learner: Learner, seed: int) -> None:
    """Learn from a rollout, in an order that this seed decides."""
    learner.generator.manual_seed(seed)
    rollout = make_rollout(seed)
    assert learner.update(rollout, rollout.rewards, 1e-3).skipped_steps == 0


def test_who_takes_turns_is_one_learner(memory: tuple[Control, int]) -> None:
    """Weights and RMSProp's mean squares are everybody's: two that never overlap do what one would."""
    control, descriptor = memory
    observer, shared = make_learner(control, None, descriptor)
    workers = [make_learner(control, rank, descriptor) for rank in (0, 1)]
    alone = Learner(make_learner(control, None, os.memfd_create("other"))[0].policy, observer.config, torch.Generator())
    assert torch.equal(alone.weights, observer.weights)
    for number in range(6):
        learner, group = workers[number % 2]
        group.refresh()
        one_update(learner, number)
        one_update(alone, number)
        assert group.lag == 0
        assert torch.equal(learner.weights, alone.weights)
    shared.refresh()
    assert torch.equal(observer.weights, alone.weights)
    for name in ("square_avg", "step"):
        assert observer.state()[1][name].tobytes() == alone.state()[1][name].tobytes()
    assert (control.arrivals.tolist(), shared.applied()) == ([3, 3], 6)


def test_a_late_gradient_is_taken_at_the_copy_and_applied_to_what_has_become_of_the_weights(
    memory: tuple[Control, int],
) -> None:
    control, descriptor = memory
    observer, shared = make_learner(control, None, descriptor)
    (first, _), (second, late) = (make_learner(control, rank, descriptor) for rank in (0, 1))
    beginning, rollout = observer.weights.clone(), make_rollout(9)
    batch = second.algorithm.prepare(rollout, rollout.rewards, second.config)
    second.gradient_of(batch)
    gradient = second.gradient.clone()
    for number in range(3):
        one_update(first, number)
    assert torch.equal(second.weights, beginning)  # nobody moves a copy but its owner
    shared.refresh()
    between, squares = observer.weights.clone(), torch.from_numpy(observer.state()[1]["square_avg"])
    assert not torch.equal(between, beginning)
    norm = late.reduce()
    assert late.lag == 3
    second.step(norm)
    training, limit = second.config.training, second.config.a2c.max_grad_norm
    clipped = gradient * min(1.0, limit / (float(norm) + 1e-6))
    squares = training.rms_decay * squares + (1 - training.rms_decay) * clipped**2
    known = 1 - training.rms_decay**4  # all workers' gradients are in the mean squares
    expected = between - training.learning_rate * clipped / ((squares / known).sqrt() + training.rms_eps)
    assert torch.allclose(second.weights, expected, atol=1e-6)
    shared.refresh()
    assert torch.equal(observer.weights, second.weights)
    assert (control.arrivals.tolist(), control.heartbeats.tolist()) == ([3, 1], [3, 0])
    one_update(second, 5)
    assert late.lag == 0


def test_what_is_not_finite_never_reaches_the_shared_weights(memory: tuple[Control, int]) -> None:
    control, descriptor = memory
    observer, shared = make_learner(control, None, descriptor)
    learner, _ = make_learner(control, 0, descriptor)
    before, rollout = observer.weights.clone(), make_rollout(1)
    update = learner.update(rollout, torch.full_like(rollout.rewards, float("nan")), 1e-3)
    shared.refresh()
    assert (update.skipped_steps, update.metrics["loss/total"]) == (1, None)
    assert torch.equal(observer.weights, before)
    assert not observer.state()[1]["square_avg"].any()
    assert (control.arrivals.tolist(), shared.applied()) == ([0, 0], 0)
    one_update(learner, 2)
    shared.refresh()
    assert not torch.equal(observer.weights, before)


def test_a_loaded_state_becomes_everybodys(memory: tuple[Control, int]) -> None:
    control, descriptor = memory
    observer, shared = make_learner(control, None, descriptor)
    other, _ = make_learner(Control(os.memfd_create("control"), 2), None, os.memfd_create("other"))
    trained = Learner(other.policy, other.config, torch.Generator())
    for number in range(3):
        one_update(trained, number)
    observer.load(*trained.state())
    shared.publish()
    learner, _ = make_learner(control, 1, descriptor)
    assert torch.equal(learner.weights, trained.weights)
    one_update(trained, 7)
    one_update(learner, 7)
    assert torch.equal(learner.weights, trained.weights)
    assert control.heartbeats.tolist() == [0, 1]  # the observer, which nobody watches, has none


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--mode", "sequential"), ("--mode sequential", "A2C", "rlcb train a2c --mode sequential")),
        (("--optimizer", "adam"), ("--optimizer", "a3c")),
        (("--backend", "gloo"), ("--backend", "a3c")),
        (("--num-workers", "0"), ("--num-workers", "1 to 1024")),
        (("--device", "cuda"), ("cuda", "A3C")),
    ],
)
def test_what_a3c_does_not_have_is_refused(flags: tuple[str, ...], words: tuple[str, ...]) -> None:
    rlcb_here("train", "a3c", *flags).assert_one_line_error(2, *words)


def test_its_section_and_defaults_are_those_of_a2c_but_for_the_learning_rate() -> None:
    a2c, a3c = (build_config(None, {}, algorithm=name) for name in ("a2c", "a3c"))
    assert (a2c.training.learning_rate, a3c.training.learning_rate) == (2e-3, 9e-4)
    assert a2c.training == a3c.training.model_copy(update={"learning_rate": 2e-3})
    assert a2c.objective == a3c.objective
    assert (a3c.training.optimizer, a3c.training.n_epochs, a3c.minibatch_size) == ("rmsprop", 1, 32 * 16)
    again = build_config(None, {"seed": ("--seed", 1)}, base=a3c)
    assert again.training == a3c.training  # what is not in the file is not forgotten when a run is resumed


def test_a_repeated_gradient_is_applied_once_and_a_replaced_worker_is_refused(memory: tuple[Control, int]) -> None:
    """Ray repeats a call whose answer was lost, also at a server that was started in the place of one that crashed."""
    pytest.importorskip("ray", reason="the extra [cluster] is not installed")
    from rlcb.cluster.parameter_server import ParameterServer
    from rlcb.execution.messages import AsyncSetup

    control, descriptor = memory
    config = build_config(None, {"name": ("", "CartPole-v1"), "num_workers": ("", 2)}, mode="parallel", algorithm="a3c")
    shared = SharedParameters(descriptor, control.arrivals, worker=None, create=True)
    observer = Learner(make_policy(config, spec_of(config.env)), config, torch.Generator(), shared)
    work = os.memfd_create("work")
    setup = AsyncSetup(config, 0, 0, 1, descriptor, work, Path(), 0, (0.0, 0.0, 0.0), (0,))
    servers = [
        ParameterServer.__ray_metadata__.modified_class(setup, control.descriptor, 2, os.getpid(), os.getcwd())  # type: ignore[attr-defined]
        for _ in range(2)
    ]
    gradient = torch.ones_like(observer.weights).numpy()
    before = observer.weights.clone()
    servers[0].apply(0, 0, 0, gradient, 1e-3)
    shared.refresh()
    once = observer.weights.clone()
    assert not torch.equal(once, before)
    for server in servers:  # the same number again
        weights, by_all, by_worker = server.apply(0, 0, 0, gradient, 1e-3)
        assert torch.equal(torch.from_numpy(weights), once)
        assert (by_all, by_worker) == (1, 1)
    servers[1].apply(0, 0, 1, gradient, 1e-3)
    shared.refresh()
    assert not torch.equal(observer.weights, once)
    control.incarnations[0] = 1
    with pytest.raises(PermissionError, match="worker 0 has been replaced"):
        servers[0].apply(0, 0, 2, gradient, 1e-3)
    with pytest.raises(PermissionError):
        servers[0].take(0, 0)
    assert servers[0].fetch(0, 1)[1:] == (2, 2)
    os.close(work)
