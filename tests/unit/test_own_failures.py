"""Whose fault an exception is: the environment's, the network's or neither's."""

import signal
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rlcb.envs.gymnasium import GymnasiumEnv
from rlcb.errors import OwnCodeFailed, ResourceError, UsageError
from rlcb.networks.computation import Computation
from rlcb.run.gpu_failures import gpu_failures
from rlcb.run.own_failures import own_failures, write_traceback
from rlcb.signals import StopRequest

NETWORK = f"{__name__}:Broken"


class Broken(nn.Module):
    """Raises what it is told to."""

    def __init__(self, error: BaseException):
        super().__init__()
        self.error = error

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        raise self.error


def compute(error: BaseException) -> None:
    Computation(Broken(error))(torch.zeros(1, 2))


def test_a_network_of_the_users_is_named_with_the_line_that_raised() -> None:
    line = Broken.forward.__code__.co_firstlineno + 1
    with pytest.raises(OwnCodeFailed) as failed, own_failures("CartPole-v1", NETWORK):
        compute(KeyError("layer"))
    said = f"network {NETWORK} failed with KeyError: 'layer' ({__file__}, line {line}); the fault is in the network"
    assert str(failed.value).startswith(said)
    assert failed.value.kind == "network"
    assert isinstance(failed.value.__cause__, KeyError)
    assert failed.value.traceback.startswith("Traceback (most recent call last):\n")
    assert "rlcb/run/own_failures" not in failed.value.traceback


def test_what_is_not_the_users_stays_what_it_is() -> None:
    with pytest.raises(KeyError), own_failures("CartPole-v1", "mlp"):  # a network of this program
        compute(KeyError("layer"))
    with pytest.raises(KeyError), own_failures("CartPole-v1", NETWORK):  # raised elsewhere
        raise KeyError("elsewhere")
    with pytest.raises(UsageError), own_failures("CartPole-v1", NETWORK):  # an expected failure
        compute(UsageError("expected"))


def test_a_gpu_that_fails_in_the_users_network_is_not_the_networks_fault() -> None:
    error = RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
    told = pytest.raises(ResourceError, match="out of memory on the GPU")
    with told, gpu_failures("less"), own_failures("CartPole-v1", NETWORK):
        compute(error)


def test_an_installed_environment_is_named_with_the_line_of_its_package() -> None:
    env = GymnasiumEnv("CartPole-v1", 1, seed=0)
    with pytest.raises(OwnCodeFailed) as failed, own_failures("CartPole-v1", "mlp"):
        env.step(np.array([7]))
    assert str(failed.value).startswith("environment CartPole-v1 failed with AssertionError: ")
    assert failed.value.kind == "environment"
    assert f"({Path(gymnasium.__file__).parent}" in str(failed.value)


def test_a_signal_that_comes_in_an_environment_is_not_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    env = GymnasiumEnv("CartPole-v1", 1, seed=0)
    stop = StopRequest()
    stop.signal = signal.SIGTERM  # it came; its handler raises the exception wherever the process is
    monkeypatch.setattr(env._envs[0], "step", lambda action: stop.install())
    with pytest.raises(SystemExit), own_failures("CartPole-v1", "mlp"):
        env.step(np.array([0]))


def test_a_traceback_that_cannot_be_written_is_not_referred_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = OwnCodeFailed("environment X failed", "environment", "Traceback: …")
    assert write_traceback(tmp_path / "traceback.txt", failure) == f"; traceback in {tmp_path / 'traceback.txt'}"
    assert (tmp_path / "traceback.txt").read_text().endswith("environment X failed\n\nTraceback: …")
    assert write_traceback(tmp_path / "nowhere" / "traceback.txt", failure) == ""
    assert "the traceback could not be written" in capsys.readouterr().err
