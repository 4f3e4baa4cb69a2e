"""Checks the installation: what is present, what is missing, how to install it."""

import importlib.util
import os
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcb.errors import ResourceError, UsageError
from rlcb.words import FAILURE, GOOD, WARNING, counted, typed

if TYPE_CHECKING:
    from rlcb.envs.base import EnvSpec

PIP = "pip install -c constraints.txt -e '.[tensorboard]'"
PACKAGES = {"torch": "torch", "gymnasium": "gymnasium", "numpy": "numpy",
            "pydantic": "pydantic", "yaml": "pyyaml", "jinja2": "jinja2", "psutil": "psutil",
            "rich": "rich"}  # fmt: skip
_SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup.sh"  # of a checkout
FIX = "rlcb doctor --fix"
_LOOK_SECONDS = 1.0  # that the use of the cores is measured for


class Doubt(str):
    """What a check found that training works with, but that is not as it should be."""


def examine(fix: bool = False) -> int:
    """Run every check in order, print a line for each; 0 if training can work here, 6 if something is missing.

    `fix`: fetch Procgen's engine if it is not here.
    """
    checks = {"Python": _python, "Packages": _packages, "TensorBoard": _tensorboard, "W&B": _wandb,
              "Machine": _machine, "CPU load": _use_now, "torch": _torch, "GPU": _gpu, "Procgen": lambda: _procgen(fix),
              "Atari": _atari, "One update": _one_update}  # fmt: skip
    for name, check in checks.items():
        try:
            found = check()
            print(f"{WARNING if isinstance(found, Doubt) else GOOD} {name}: {found}", flush=True)
        except Exception as error:  # a check may fail in any way; the next lines depend on it
            print(f"{FAILURE} {name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}", flush=True)
            return 6
    print("Everything that training needs is installed.")
    return 0


def examine_environment(name: str, imports: Sequence[str]) -> int:
    """Check an environment, print a line for each finding; 0 if training can work with it."""
    try:
        _packages()
    except RuntimeError as error:
        raise ResourceError(str(error)) from None
    from rlcb.config.environment import EnvConfig
    from rlcb.envs.base import EnvSpec
    from rlcb.envs.check import check
    from rlcb.envs.families import make_ready
    from rlcb.envs.own_code import module_of

    module = module_of(name)
    short = name.partition(":")[2] if module else name
    modules = dict.fromkeys([*imports, *([module] if module else [])])
    make_ready(short)
    code, warnings, network = 0, 0, ""
    for found in check(EnvConfig(name=short), list(modules)):
        if isinstance(found, EnvSpec):
            network = _network(found)
            warnings += bool(network)
            continue
        print(found, flush=True)
        code, warnings = code or found.exit_code, warnings + (found.mark == WARNING)
    if code:
        print(f"Training in {short} would fail; correct what is marked {FAILURE}, then check again.")
        return code
    words = ["rlcb", "train", "ppo", "--env", name, *(word for one in imports for word in ("--import", one))]
    also = f" ({counted(warnings, 'warning')})" if warnings else ""
    print(f"Training in {short} can work{also}: {typed(shlex.join(words))}{network} --total-timesteps 100000")
    return 0


def _network(spec: "EnvSpec") -> str:
    """The flag for a network that fits these observations, where the default one does not; for the end of a command."""
    if not spec.is_image:
        return ""
    from rlcb.networks import make_network

    try:
        make_network("auto", spec)
    except UsageError:
        small = f"pictures of {spec.observation_shape} are too small for the default; use --network impala"
        print(f"{WARNING} Network: {small}")
        return " --network impala"
    return ""


def _python() -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    if not (3, 11) <= sys.version_info[:2] < (3, 15):
        raise RuntimeError(f"this is {version}; must be 3.11 to 3.14")
    return version


def _packages() -> str:
    missing = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if missing:
        checkout = _SETUP.is_file()
        command = f"bash scripts/setup.sh (or {PIP})" if checkout else f"pip install {' '.join(missing)}"
        raise RuntimeError(f"missing {', '.join(missing)}; install with: {command}")
    return ", ".join(PACKAGES.values())


def _tensorboard() -> str:
    from rlcb.run.sinks import INSTALL_TENSORBOARD, is_installed

    return "installed" if is_installed("tensorboard") else f"not installed (optional): {INSTALL_TENSORBOARD}"


def _wandb() -> str:
    from rlcb.hardware import package_version
    from rlcb.run.sinks import INSTALL_WANDB, is_installed

    installed = f"{package_version('wandb')}, for --track wandb"
    return installed if is_installed("wandb") else f"not installed (optional): {INSTALL_WANDB}"


def _machine() -> str:
    from rlcb.hardware import describe_machine

    machine = describe_machine()
    quota = f", cgroup quota {counted(machine['cgroup_quota'], 'core')}" if machine["cgroup_quota"] else ""
    return (
        f"{machine['cpu']}, {counted(machine['physical_cores'], 'core')} / "
        f"{counted(machine['logical_cores'], 'thread')}, "
        f"{machine['usable_cores']} usable{quota}, {machine['memory_gb']} GB, {' '.join(machine['instruction_sets'])}"
    )


def _use_now() -> str:
    """How busy other programs keep the cores at this moment."""
    from rlcb.disturbance.verdict import MOST_OTHERS
    from rlcb.disturbance.watch import Watch

    watch = Watch()
    watch.look()
    time.sleep(_LOOK_SECONDS)
    watch.look()
    found = watch.verdict()
    if found.others_percent is None:
        return "the load of the cores cannot be read here"
    busy = f"other programs use {found.others_percent:.0f} % of the cores, CPU steal is {found.stolen_percent:.0f} %"
    return Doubt(f"{busy}; speeds measured now may be too low") if found.others_percent >= MOST_OTHERS else busy


def _torch() -> str:
    from rlcb.hardware import prepare_process

    threads = prepare_process(None)
    import torch

    torch.set_num_threads(threads)
    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPUs"
    return f"{torch.__version__}, built for {built_for}, {counted(torch.get_num_threads(), 'thread')}"


def _gpu() -> str:
    from rlcb.hardware import computes_bf16, cuda_problem, describe_gpus

    problem = cuda_problem()
    if problem is not None:
        return f"training uses the CPU: {problem}"
    from rlcb.run.gpu import gpu_used

    used = gpu_used("cuda")
    driver = describe_gpus()["gpu_driver"] or "unknown"
    bf16 = "bf16" if computes_bf16("cuda") else "no bf16"
    return f"{used['gpu']}, {used['gpu_memory_gb']} GB, driver {driver}, {bf16}, {_compilation()}"


def _compilation() -> str:
    """Whether torch.compile can make programs for a GPU here: it takes Triton, which takes a C compiler."""
    if importlib.util.find_spec("triton") is None:
        return "no torch.compile (Triton is not installed: pip install triton)"
    if not any(shutil.which(name) for name in (os.environ.get("CC", "cc"), "cc", "gcc", "clang")):
        return "no torch.compile (no C compiler: apt-get install -y gcc)"
    return "torch.compile"


def _procgen(fix: bool) -> str:
    import numpy as np

    from rlcb.config.environment import EnvConfig
    from rlcb.envs import engine
    from rlcb.envs.families import make_env, make_ready

    missing = engine.find() is None
    if missing and (unsupported := engine.unsupported()):
        return Doubt(unsupported)
    if missing and not fix:
        return Doubt(f"its engine is not here yet; a run that needs it fetches it, and so does: {typed(FIX)}")
    make_ready("coinrun")
    env = make_env(EnvConfig(), num_envs=2, seed=0, num_threads=0)
    env.step(np.zeros(2, np.int64))
    env.close()
    return f"engine {engine.release(engine.build())} in {engine.find()}, one CoinRun step done"


def _atari() -> str:
    import numpy as np

    from rlcb.config.environment import EnvConfig
    from rlcb.envs.families import INSTALL_ATARI, make_env
    from rlcb.hardware import package_version

    if importlib.util.find_spec("ale_py") is None:
        return f"not installed (optional): {INSTALL_ATARI}"
    env = make_env(EnvConfig(name="ALE/Pong-v5"), num_envs=2, seed=0, num_threads=0)
    env.step(np.zeros(2, np.int64))
    env.close()
    return f"ale-py {package_version('ale-py')}, Pong made a step"


def _one_update() -> str:
    from rlcb.config.load import build_config
    from rlcb.envs import engine
    from rlcb.execution.worker import Worker

    name = "CartPole-v1" if engine.find() is None else "coinrun"
    values = {"name": name, "num_envs": 8, "n_steps": 16, "batch_size": 128, "n_epochs": 1}
    config = build_config(None, {key: (key, value) for key, value in values.items()})
    worker = Worker(config)
    started = time.perf_counter()
    rollout = worker.collector.collect()
    update = worker.learner.update(rollout, rollout.rewards, config.training.learning_rate)
    worker.env.close()
    if update.skipped_steps:
        raise RuntimeError("the gradient was not finite")
    return f"one PPO update on {config.rollout_size} steps of {name} in {time.perf_counter() - started:.2f} s"
