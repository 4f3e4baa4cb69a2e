"""The residual CNN by Triton kernels gives what torch's layers give, forward and backward; needs an NVIDIA GPU."""

import importlib.util
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from rlcb.envs.base import EnvSpec
from rlcb.networks import make_network
from rlcb.networks.computation import Computation

MISSING = [
    *(["an NVIDIA GPU that torch can use"] if not torch.cuda.is_available() else []),
    *(["Triton"] if importlib.util.find_spec("triton") is None else []),
]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {' and '.join(MISSING)}")
SIZES = [(3, 64, 64), (4, 10, 12), (2, 7, 9)]  # pictures, height, width


@pytest.fixture(autouse=True)
def _exact_fp32() -> Iterator[None]:
    """What is compared with is computed in fp32 throughout, not with factors rounded to TF32."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def near(mine: Tensor, theirs: Tensor, tolerance: float = 1e-2) -> None:
    """The largest difference is small beside the largest number; bf16 has 8 bits."""
    difference = (mine.float() - theirs.float()).abs().max()
    assert difference <= tolerance * theirs.float().abs().max(), float(difference)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, device="cuda").bfloat16()


def planes(x: Tensor) -> Tensor:
    """Pictures [B, H, W, C] in fp32 as torch's layers take them."""
    return x.float().permute(0, 3, 1, 2)


def pixels(count: int, height: int, width: int) -> Tensor:
    return torch.randint(0, 256, (count, height, width, 3), dtype=torch.uint8, device="cuda")


@pytest.mark.parametrize(("batch", "height", "width"), SIZES)
@pytest.mark.parametrize(("channels", "outputs"), [(16, 16), (16, 32), (32, 32)])
@pytest.mark.parametrize("relu", [False, True])
def test_convolution_and_its_gradients(
    batch: int, height: int, width: int, channels: int, outputs: int, relu: bool
) -> None:
    from rlcb.gpu.kernels import convolution as kernels
    from rlcb.gpu.kernels import weight_gradient

    torch.manual_seed(0)
    x, gradient = random(batch, height, width, channels), random(batch, height, width, outputs)
    weight = random(outputs, channels, 3, 3).contiguous(memory_format=torch.channels_last)
    bias, residual = random(outputs), random(batch, height, width, outputs)
    inputs = [tensor.float().requires_grad_() for tensor in (x, weight, bias)]
    expected = F.conv2d(planes(F.relu(inputs[0]) if relu else inputs[0]), inputs[1], inputs[2], padding=1)
    expected = expected.permute(0, 2, 3, 1)
    near(kernels.conv(x, weight, bias, relu=relu), expected)
    near(kernels.conv(x, weight, bias, relu=relu, relu_out=True), F.relu(expected))
    near(kernels.conv(x, weight, bias, residual=residual, relu=relu), expected + residual.float())
    for_x, for_weight, for_bias = torch.autograd.grad(expected, inputs, gradient.float())
    added = random(*x.shape)
    mine = kernels.conv_input_gradient(gradient, weight, sign=x if relu else None, residual=added)
    near(mine, for_x + added.float())
    weights, biases = weight_gradient.conv_weight_gradient(x, gradient, weight, bias, relu=relu)
    near(weights, for_weight)
    near(biases, for_bias)
    again, _ = weight_gradient.conv_weight_gradient(x, gradient, weight, bias, relu=relu)
    assert torch.equal(weights, again)


@pytest.mark.parametrize(("batch", "height", "width"), SIZES)
@pytest.mark.parametrize("channels", [16, 32])
def test_pooling_and_its_gradient(batch: int, height: int, width: int, channels: int) -> None:
    from rlcb.gpu.kernels import max_pooling

    torch.manual_seed(0)
    x = random(batch, height, width, channels)
    x[0, 2:5, 2:6] = 1.25  # equal numbers: the first one has the gradient
    wanted = x.float().requires_grad_()
    expected = F.max_pool2d(planes(wanted), 3, stride=2, padding=1).permute(0, 2, 3, 1)
    out, taken = max_pooling.pool(x)
    assert torch.equal(out.float(), expected)
    gradient = random(*out.shape)
    for_x = torch.autograd.grad(expected, wanted, gradient.float())[0]
    near(max_pooling.pool_gradient(gradient, taken, height, width), for_x)


@pytest.mark.parametrize(("batch", "height", "width"), SIZES)
@pytest.mark.parametrize("some", [False, True])
def test_convolution_of_pixels_with_pooling(batch: int, height: int, width: int, some: bool) -> None:
    from rlcb.gpu.kernels import first_layer

    torch.manual_seed(0)
    pictures = pixels(7, height, width)
    chosen = torch.randperm(7, device="cuda")[:batch] if some else None
    weight, bias = random(16, 3, 3, 3).contiguous(memory_format=torch.channels_last), random(16)
    inputs = [(weight * (1 / 255)).float().requires_grad_(), bias.float().requires_grad_()]
    seen = pictures if chosen is None else pictures[chosen]
    expected = F.max_pool2d(F.conv2d(planes(seen), *inputs, padding=1), 3, stride=2, padding=1).permute(0, 2, 3, 1)
    out, taken = first_layer.conv_pool(pictures, chosen, weight, bias)
    near(out, expected)
    gradient = random(*out.shape)
    weights, biases = first_layer.conv_pool_gradient(pictures, chosen, gradient, taken, weight, bias)
    for_weight, for_bias = torch.autograd.grad(expected, inputs, gradient.float())
    near(weights, for_weight / 255)
    near(biases, for_bias)


@pytest.mark.parametrize(("batch", "height", "width"), SIZES)
def test_the_whole_network(batch: int, height: int, width: int) -> None:
    """Both are as far from fp32 as bf16 makes them: the kernels' gradient is not further away than torch's layers'."""
    from rlcb.gpu.kernels.impala_network import fast_forward

    torch.manual_seed(0)
    policy = make_network("impala", EnvSpec((height, width, 3), np.dtype(np.uint8), 15)).cuda()
    computation, exact = Computation(policy, "bf16"), Computation(policy, "fp32")
    computation.refresh()
    pictures, chosen = pixels(7, height, width), torch.randperm(7, device="cuda")[:batch]

    def gradient(outputs: tuple[Tensor, Tensor], parameters: list[Tensor]) -> Tensor:
        loss = torch.log_softmax(outputs[0], 1)[:, 0].mean() + (outputs[1] - 1).square().mean()
        return torch.cat([part.float().flatten() for part in torch.autograd.grad(loss, parameters)])

    mine = fast_forward(computation.network, pictures, chosen)  # type: ignore[arg-type]
    layers, wanted = computation(pictures[chosen]), exact(pictures[chosen])
    near(mine[0], wanted[0], 0.05)
    near(mine[1], wanted[1], 0.05)
    expected = gradient(wanted, exact.parameters)
    far = (gradient(mine, computation.parameters) - expected).norm() / expected.norm()
    assert far < max(0.05, 1.5 * float((gradient(layers, computation.parameters) - expected).norm() / expected.norm()))


def test_a_captured_step_repeats_bit_for_bit() -> None:
    from rlcb.gpu.kernels.impala_network import fast_forward

    torch.manual_seed(0)
    policy = make_network("impala", EnvSpec((64, 64, 3), np.dtype(np.uint8), 15)).cuda()
    computation = Computation(policy, "bf16")
    computation.refresh()
    pictures, chosen = pixels(300, 64, 64), torch.randperm(300, device="cuda")[:256]

    def step() -> list[Tensor]:
        logits, values = fast_forward(computation.network, pictures, chosen)  # type: ignore[arg-type]
        return list(torch.autograd.grad(logits.square().mean() + values.square().mean(), computation.parameters))

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # compiles the kernels
        directly = step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for _ in range(3):
        graph.replay()
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(captured, directly, strict=True))
