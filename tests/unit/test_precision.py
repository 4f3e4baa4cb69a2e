"""bf16 inside the network: what is converted, what stays fp32, how far the results are from fp32's."""

from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rlcb import announce
from rlcb.algorithms.returns import Samples
from rlcb.config import precision as decision
from rlcb.config.load import build_config
from rlcb.config.plan import make_plan
from rlcb.config.precision import with_precision
from rlcb.disturbance.verdict import Disturbance
from rlcb.disturbance.watch import Watch
from rlcb.envs.base import EnvSpec
from rlcb.learner import Learner
from rlcb.limits.precision_trial import measured
from rlcb.networks import make_network
from rlcb.networks.computation import Computation
from rlcb.rollout import make_rollout
from rlcb.run.fit import check_fit

FRAMES = EnvSpec((64, 64, 3), np.dtype(np.uint8), 15)
VECTOR = EnvSpec((4,), np.dtype(np.float32), 2)
NETWORKS = [("nature", FRAMES), ("impala", FRAMES), ("mlp", VECTOR)]


def observations_of(spec: EnvSpec, count: int) -> torch.Tensor:
    shape = (count, *spec.observation_shape)
    return torch.randint(0, 256, shape, dtype=torch.uint8) if spec.is_image else torch.randn(shape)


def gradient_of(computation: Computation, observations: torch.Tensor) -> torch.Tensor:
    logits, values = computation(observations)
    loss = torch.log_softmax(logits, 1)[:, 0].mean() + (values - 1).square().mean()
    return torch.cat([part.float().flatten() for part in torch.autograd.grad(loss, computation.parameters)])


@pytest.mark.parametrize(("name", "spec"), NETWORKS)
def test_bf16_gives_what_fp32_gives_up_to_its_rounding(name: str, spec: EnvSpec) -> None:
    torch.manual_seed(0)
    policy = make_network(name, spec)
    observations = observations_of(spec, 64)
    whole, rounded = Computation(policy, "fp32"), Computation(policy, "bf16")
    assert whole.network is policy
    outputs = zip(whole(observations), rounded(observations), strict=True)
    for exact, near in outputs:
        assert near.dtype == torch.float32
        assert float((exact - near).detach().abs().max()) < 0.05 * max(float(exact.detach().abs().max()), 0.1)
    exact, near = (gradient_of(each, observations) for each in (whole, rounded))
    assert float(torch.nn.functional.cosine_similarity(exact, near, dim=0)) > 0.999
    assert not torch.equal(exact, near)


@pytest.mark.parametrize(("name", "spec"), NETWORKS)
def test_layers_are_bf16_and_outputs_are_the_policys_own(name: str, spec: EnvSpec) -> None:
    policy = make_network(name, spec)
    network = Computation(policy, "bf16").network
    kinds = {key: parameter.dtype for key, parameter in network.named_parameters()}
    originals = dict(policy.named_parameters())
    outputs = ("policy_head", "value_head", "policy.4", "value.4")
    for key, parameter in network.named_parameters():
        if key.startswith(outputs):
            assert parameter is originals[key]
        else:
            assert kinds[key] == torch.bfloat16
    assert all(parameter.dtype == torch.float32 for parameter in policy.parameters())


def test_the_copy_follows_the_policy_also_after_its_weights_have_moved_elsewhere() -> None:
    torch.manual_seed(0)
    config = build_config(None, {"precision": ("x", "bf16")}, algorithm="a2c")
    policy = make_network("nature", FRAMES)
    learner = Learner(policy, config, torch.Generator())  # which makes all weights views of one vector
    observations = observations_of(FRAMES, 8)
    with torch.no_grad():
        learner.weights.mul_(1.5)
        learner.computation.refresh()
        expected = Computation(policy, "bf16")(observations)
        found = learner.computation(observations)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert learner.weights.dtype == learner.gradient.dtype == torch.float32


def test_auto_takes_the_faster_one_and_saves_it(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    config = build_config(None, {"precision": ("x", "auto")})
    for speeds, chosen in (({"fp32": 2.0, "bf16": 3.0}, "bf16"), ({"fp32": 3.0, "bf16": 2.0}, "fp32")):
        monkeypatch.setattr(decision, "_measured", lambda config, mode, speeds=speeds: (speeds, Disturbance()))
        assert with_precision(config, "sequential").hardware.precision == chosen
        assert f"Precision: {chosen}" in capsys.readouterr().out
    fixed = build_config(None, {"precision": ("x", "bf16")})
    assert with_precision(fixed, "parallel") is fixed


@pytest.mark.parametrize(("algorithm", "mode"), [("ppo", "sequential"), ("impala", "parallel"), ("a3c", "parallel")])
def test_both_precisions_are_measured_for_real(algorithm: str, mode: str) -> None:
    given = {"precision": ("x", "auto"), "name": ("x", "CartPole-v1")}
    config = build_config(None, given, algorithm=algorithm, mode=mode)
    speeds, _ = decision._measured(config, mode)
    assert set(speeds) == {"fp32", "bf16"}
    assert min(speeds.values()) > 0


def test_auto_concludes_nothing_from_a_measurement_that_was_disturbed_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    config = build_config(None, {"precision": ("x", "auto")})
    speeds, noise = {"fp32": 2.0, "bf16": 3.0}, Disturbance(True, 40.0, 50.0, 0.0, 40.0, 3.0, 0.0)
    answers = [(speeds, noise), (speeds, Disturbance(False)), (speeds, noise), (speeds, noise)]
    monkeypatch.setattr(decision, "_measured", lambda config, mode: answers.pop(0))
    assert with_precision(config, "sequential").hardware.precision == "bf16"  # the second time was quiet
    assert with_precision(config, "sequential").hardware.precision == "fp32"
    assert not answers
    used = "other programs used 50 % of the cores (40 % of its CPU time lost"
    said = f"Precision: fp32, because the measurement was disturbed: {used}"
    assert said in capsys.readouterr().out


def test_steps_are_measured_in_turn() -> None:
    order: list[str] = []
    speeds = measured({name: lambda name=name: order.append(name) for name in ("a", "b")}, samples=10, watch=Watch())  # type: ignore[misc]
    assert order[:2] == ["a", "b"]
    switches = sum(one != other for one, other in pairwise(order))
    assert switches >= 3
    assert min(speeds.values()) > 0


@pytest.mark.parametrize("has", [True, False])
def test_a_processor_without_bf16_is_named(has: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(announce, "computes_bf16", lambda device: has)
    config, plan = make_plan(build_config(None, {"precision": ("x", "bf16")}), "sequential")
    run: Any = SimpleNamespace(mode="sequential", algorithm="ppo", path="x")
    announce.print_banner(run, config, plan, check_fit(config), None)
    shown = capsys.readouterr()
    assert ("fp32 would be faster" in shown.err) == (not has)
    assert "Precision: bf16" in shown.out


@pytest.mark.parametrize(("algorithm", "envs"), [("ppo", 6), ("a2c", 6), ("impala", 6), ("impala", 1)])
def test_in_bf16_each_thread_takes_samples_of_its_own_and_the_gradient_is_that_of_all(
    algorithm: str, envs: int
) -> None:
    steps = 48 // envs
    given = {"precision": ("x", "bf16"), "num_envs": ("x", envs), "n_steps": ("x", steps), "batch_size": ("x", 48)}
    given = given if algorithm != "a2c" else {key: value for key, value in given.items() if key != "batch_size"}
    config, before, found = build_config(None, given, algorithm=algorithm), torch.get_num_threads(), []
    try:
        for threads in (1, 3, 4):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            learner = Learner(make_network("nature", FRAMES), config, torch.Generator().manual_seed(0))
            assert learner.computation.threads == threads
            rollout = make_rollout(steps, envs, FRAMES, "cpu")
            for tensor in (rollout.values, rollout.log_probs, rollout.truncation_value, rollout.dones):
                tensor.zero_()
            rollout.observations.copy_(observations_of(FRAMES, 48 + envs).view(-1, envs, 64, 64, 3))
            rollout.actions.copy_(torch.randint(0, 15, (steps, envs)))
            with torch.inference_mode():
                learner.computation.refresh()
                for step in rollout.observations[:-1]:
                    learner.computation.act(step)
            learner.update(rollout, torch.randn(steps, envs), 1e-9)
            found.append(learner.gradient.clone())
    finally:
        torch.set_num_threads(before)
    for gradient in found[1:]:
        assert float((gradient - found[0]).norm()) <= 0.02 * float(found[0].norm())


def test_the_summands_of_several_threads_are_bf16_and_their_sum_is_fp32() -> None:
    given = {"precision": ("x", "bf16"), "num_envs": ("x", 2), "n_steps": ("x", 16), "batch_size": ("x", 32)}
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        torch.manual_seed(0)
        learner = Learner(make_network("nature", FRAMES), build_config(None, given), torch.Generator())
        draw = torch.randn(4, 32)
        batch = Samples(observations_of(FRAMES, 32), torch.randint(0, 15, (32,)), draw[0], draw[1], draw[2], draw[3])
        learner.gradient_of(batch)
        loss = partial(learner.algorithm.loss, batch=batch, config=learner.config)
        summands, _ = learner.computation.gradients(batch.observations, loss)
    finally:
        torch.set_num_threads(before)
    assert len(summands) == 3
    assert {part.dtype for part in summands[0]} == {torch.bfloat16, torch.float32}
    sums = [torch.stack([part.float() for part in parts]) for parts in zip(*summands, strict=True)]
    expected = torch.cat([(parts[0] + parts[1] + parts[2]).flatten() for parts in sums])
    assert torch.equal(learner.gradient, expected)
