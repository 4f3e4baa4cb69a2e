"""The networks: sizes, shapes, memory format."""

import numpy as np
import pytest
import torch

from rlcb.envs.base import EnvSpec
from rlcb.errors import UsageError
from rlcb.networks import make_network
from rlcb.networks.layers import PixelConv, flat_nhwc

FRAMES = EnvSpec((64, 64, 3), np.dtype(np.uint8), 15)
VECTOR = EnvSpec((4,), np.dtype(np.float32), 2)


@pytest.mark.parametrize(("name", "parameters"), [("nature", 608_944), ("impala", 626_256), ("auto", 608_944)])
def test_parameter_counts(name: str, parameters: int) -> None:
    network = make_network(name, FRAMES)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


@pytest.mark.parametrize("name", ["nature", "impala"])
def test_an_untrained_policy_is_nearly_uniform(name: str) -> None:
    torch.manual_seed(0)
    logits, values = make_network(name, FRAMES)(torch.randint(0, 255, (5, 64, 64, 3), dtype=torch.uint8))
    assert logits.shape == (5, 15)
    assert values.shape == (5,)
    entropy = -(logits.softmax(1) * logits.log_softmax(1)).sum(1)
    assert float(entropy.detach().min()) > 0.99 * float(np.log(15))


def test_vectors_get_an_mlp() -> None:
    logits, values = make_network("auto", VECTOR)(torch.randn(7, 4))
    assert logits.shape == (7, 2)
    assert values.shape == (7,)


@pytest.mark.parametrize("shape", [(36, 36, 1), (84, 84, 3), (64, 96, 3)])
def test_other_picture_sizes(shape: tuple[int, int, int]) -> None:
    spec = EnvSpec(shape, np.dtype(np.uint8), 4)
    for name in ("nature", "impala"):
        assert make_network(name, spec)(torch.zeros((2, *shape), dtype=torch.uint8))[0].shape == (2, 4)


@pytest.mark.parametrize(
    ("name", "spec"),
    [("nature", VECTOR), ("impala", VECTOR), ("mlp", FRAMES), ("nature", EnvSpec((20, 20, 3), np.dtype(np.uint8), 4))],
)
def test_networks_that_do_not_fit_are_refused(name: str, spec: EnvSpec) -> None:
    with pytest.raises(UsageError, match="does not fit"):
        make_network(name, spec)


def test_pictures_are_scaled_and_never_rearranged() -> None:
    frames = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    conv = PixelConv(3, 8, 4, 2, padding=1)
    plain = torch.nn.functional.conv2d(frames.permute(0, 3, 1, 2) / 255, conv.weight, conv.bias, 2, 1)
    assert torch.allclose(conv(frames), plain, atol=1e-5)
    assert conv(frames).is_contiguous(memory_format=torch.channels_last)
    features = torch.randn(2, 8, 4, 4).to(memory_format=torch.channels_last)
    assert flat_nhwc(features).data_ptr() == features.data_ptr()
