"""A program that trains a network on made-up observations in fp32 and in bf16, in turn, and prints how fast it did.

Its argument is the process it dies with; it reads what to measure as JSON. `config.precision` starts it.
"""

import json
import sys
import time
from collections.abc import Callable

from rlcb.config.schema import EnvConfig
from rlcb.envs.families import foreseen_spec
from rlcb.hardware import prepare_process, resolve_device
from rlcb.signals import die_with

_SECONDS = 1.0  # of measuring, both precisions together
_TURN = 0.1  # seconds that a precision is measured before it is the other's turn: a disturbance then hits both


def main() -> None:
    """Measure and print samples per second by precision, as JSON."""
    die_with(int(sys.argv[1]))
    order = json.load(sys.stdin)
    prepare_process(order["threads"])
    import torch

    from rlcb.networks import make_network
    from rlcb.networks.computation import Computation

    device = resolve_device(order["device"], order["threads"])
    torch.set_num_threads(order["threads"])
    spec, samples = foreseen_spec(EnvConfig(**order["env"])), order["samples"]
    policy = make_network(order["network"], spec).to(device)
    shape = (samples, *spec.observation_shape)
    observations = torch.randint(0, 256, shape, dtype=torch.uint8) if spec.is_image else torch.randn(shape)
    observations = observations.to(device)

    def step_of(precision: str) -> Callable[[], None]:
        computation = Computation(policy, precision)

        def step() -> None:
            computation.refresh()
            logits, values = computation(observations)
            torch.autograd.grad(logits.square().mean() + values.square().mean(), computation.parameters)
            if device == "cuda":
                torch.cuda.synchronize()

        return step

    print(json.dumps(measured({name: step_of(name) for name in ("fp32", "bf16")}, samples)))


def measured(steps: dict[str, Callable[[], None]], samples: int) -> dict[str, float]:
    """Samples per second of each step, the steps measured in turn."""
    count, seconds = dict.fromkeys(steps, 0), dict.fromkeys(steps, 0.0)
    for step in steps.values():
        step()  # the first one makes what later ones use again
    while sum(seconds.values()) < _SECONDS or not all(count.values()):
        for name, step in steps.items():
            started = time.perf_counter()
            while time.perf_counter() - started < _TURN:
                step()
                count[name] += 1
            seconds[name] += time.perf_counter() - started
    return {name: samples * count[name] / seconds[name] for name in steps}


if __name__ == "__main__":
    main()
