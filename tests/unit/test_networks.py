"""The networks: sizes, shapes, memory format."""

import numpy as np
import pytest
import torch

from rlcb.envs.base import EnvSpec
from rlcb.errors import UsageError
from rlcb.networks import make_network

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


def test_nature_scales_pictures_and_never_rearranges_them() -> None:
    network = make_network("nature", FRAMES)
    frames = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    last: list[torch.Tensor] = []
    network.body["conv3"].register_forward_hook(lambda module, inputs, output: last.append(output))
    logits, values = network(frames)
    assert last[0].is_contiguous(memory_format=torch.channels_last)  # so that flattening makes no copy
    x, weights = frames.permute(0, 3, 1, 2) / 255, dict(network.named_parameters())
    for number, stride in ((1, 4), (2, 2), (3, 1)):
        x = torch.nn.functional.conv2d(
            x, weights[f"body.conv{number}.weight"], weights[f"body.conv{number}.bias"], stride
        )
        x = x.clamp(min=0)
    flat = torch.stack([picture.permute(1, 2, 0).reshape(-1) for picture in x])
    features = (flat @ weights["body.dense.weight"].T + weights["body.dense.bias"]).clamp(min=0)
    assert torch.allclose(logits, features @ weights["policy_head.weight"].T + weights["policy_head.bias"], atol=1e-5)
    expected = features @ weights["value_head.weight"].T + weights["value_head.bias"]
    assert torch.allclose(values, expected.squeeze(1), atol=1e-4)


def test_the_first_convolution_of_impala_scales_pictures() -> None:
    frames = torch.randint(0, 256, (2, 64, 64, 3), dtype=torch.uint8)
    conv = make_network("impala", FRAMES).body["sections"][0].conv
    plain = torch.nn.functional.conv2d(frames.permute(0, 3, 1, 2) / 255, conv.weight, conv.bias, 1, 1)
    assert torch.allclose(conv(frames), plain, atol=1e-5)
    assert conv(frames).is_contiguous(memory_format=torch.channels_last)
