"""A program that computes gradients of made-up minibatches in fp32 and in bf16, in turn, and prints how fast it did.

Its argument is the process it dies with; it reads what to measure as JSON. `config.precision` starts it.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from rlcb.config.schema import Config
from rlcb.disturbance.watch import Watch
from rlcb.errors import RlcbError
from rlcb.hardware import prepare_process, resolve_device
from rlcb.run.gpu_failures import gpu_failures, less_memory
from rlcb.signals import die_with

_SECONDS = 1.0  # of measuring, both precisions together
_TURN = 0.1  # seconds that a precision is measured before it is the other's turn: a disturbance then hits both


def main() -> None:
    """Measure and print samples per second by precision, and what disturbed it, as JSON; a failure is one line."""
    die_with(int(sys.argv[1]))
    order = json.load(sys.stdin)
    config = Config.model_validate(order["config"])
    try:
        with gpu_failures(less_memory(config.algorithm)):
            watch = Watch()
            speeds = _speeds(config, order["items"], order["threads"], order["device"], watch)
            print(json.dumps({"speeds": speeds, "disturbance": asdict(watch.verdict())}))
    except RlcbError as error:
        sys.exit(str(error))


def _speeds(config: Config, items: int, threads: int, wanted: str, watch: Watch) -> dict[str, float]:
    """Samples per second by precision on the device that is wanted."""
    prepare_process(threads)
    device = resolve_device(wanted, threads)
    import torch

    from rlcb.envs.families import spec_of
    from rlcb.envs.own_code import load_all
    from rlcb.execution.limit_worker import made_up_batch
    from rlcb.execution.worker import make_policy
    from rlcb.learner import Learner

    torch.set_num_threads(threads)
    load_all(config.modules)
    spec = spec_of(config.env)

    def step_of(precision: str) -> Callable[[], None]:
        configured = config.changed("hardware", precision=precision)
        learner = Learner(make_policy(configured, spec).to(device), configured, torch.Generator())
        batch = made_up_batch(learner, spec, items, device)

        def step() -> None:
            float(learner.gradient_of(batch)[0])  # waits for a GPU

        return step

    return measured({name: step_of(name) for name in ("fp32", "bf16")}, items * config.samples_per_item, watch)


def measured(steps: dict[str, Callable[[], None]], samples: int, watch: Watch) -> dict[str, float]:
    """Samples per second of each step, the steps measured in turn."""
    count, seconds = dict.fromkeys(steps, 0), dict.fromkeys(steps, 0.0)
    for step in steps.values():
        step()  # the first one makes what later ones use again
    watch.look()
    while sum(seconds.values()) < _SECONDS or not all(count.values()):
        for name, step in steps.items():
            started = time.perf_counter()
            while time.perf_counter() - started < _TURN:
                step()
                count[name] += 1
            seconds[name] += time.perf_counter() - started
    watch.look()
    return {name: samples * count[name] / seconds[name] for name in steps}


if __name__ == "__main__":
    main()
