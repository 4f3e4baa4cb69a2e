"""How large a run's checkpoints are, and whether the disk has room for them."""

import math
import shutil
from pathlib import Path

from rlcb.config.schema import Config
from rlcb.envs.base import EnvSpec
from rlcb.envs.families import family_of
from rlcb.errors import ResourceError
from rlcb.files import nearest_existing
from rlcb.hardware import usable_cpus
from rlcb.run.fit import Fit

_UNKNOWN = 700_000  # weights of a network that is not known: about as many as those for pictures have
_VECTORS = {"adam": 3, "rmsprop": 2}  # of floats: weights and the optimizer's moments
_WORKER = 10_200  # bytes of a worker's random generators
_PER_ENV = 330  # bytes of an environment beside its state
_REST = 6_000  # bytes


def checkpoint_bytes(config: Config, mode: str, fit: Fit | None = None) -> int:
    """The size of a checkpoint, roughly: weights with the optimizer's moments, and the states of workers' environments.

    `fit`: what is known of environment and network; without it, the network is taken for a usual one for pictures.
    """
    size = 4 * _VECTORS[config.training.optimizer] * (num_weights(config, fit) if fit else _UNKNOWN) + _REST
    workers = 1
    if mode == "parallel":
        if not config.parallel_execution.shares_minibatches:
            return size  # the states of actors and asynchronous workers are not saved
        wanted = config.parallel.num_workers
        workers = wanted if isinstance(wanted, int) else usable_cpus()
    return size + workers * _WORKER + config.env.num_envs * (family_of(config.env.name).state_bytes + _PER_ENV)


def num_weights(config: Config, fit: Fit) -> int:
    """How many weights the policy's network has, without loading torch for it."""
    if fit.num_weights is not None:
        return fit.num_weights
    network, spec = config.training.network, fit.spec
    if network == "auto":
        network = "nature" if spec.is_image else "mlp"
    known = {"nature": _nature, "impala": _impala, "mlp": _mlp, "mlp256": _mlp256}
    return known[network](spec) if network in known else _UNKNOWN


def _nature(spec: EnvSpec) -> int:
    height, width, channels = spec.observation_shape
    positions = math.prod(((pixels - 8) // 4 + 1 - 4) // 2 + 1 - 2 for pixels in (height, width))
    convolutions = 32 * (8 * 8 * channels + 1) + 64 * (4 * 4 * 32 + 1) + 64 * (3 * 3 * 64 + 1)
    return convolutions + 512 * (64 * positions + 1) + (512 + 1) * (spec.num_actions + 1)


def _impala(spec: EnvSpec) -> int:
    height, width, channels = spec.observation_shape
    weights = 0
    for depth in (16, 32, 32):
        weights += depth * (3 * 3 * channels + 1) + 4 * depth * (3 * 3 * depth + 1)
        channels, height, width = depth, (height + 1) // 2, (width + 1) // 2
    return weights + 256 * (channels * height * width + 1) + (256 + 1) * (spec.num_actions + 1)


def _mlp(spec: EnvSpec, width: int = 64) -> int:
    inner = width * (math.prod(spec.observation_shape) + 1) + width * (width + 1)
    return 2 * inner + (width + 1) * (spec.num_actions + 1)


def _mlp256(spec: EnvSpec) -> int:
    return _mlp(spec, 256)


def check_space(checkpoints: Path, size: int, keep: int) -> None:
    """Raise ResourceError unless a folder's disk has room for three times the checkpoints, of `size` bytes each."""
    need = 3 * size * (keep + 1)
    free = shutil.disk_usage(nearest_existing(checkpoints)).free
    if free < need:
        raise ResourceError(
            f"{checkpoints}: {need / 2**20:.0f} MB needed for checkpoints, {free / 2**20:.0f} MB free; "
            "free some space, keep fewer checkpoints (keep_checkpoints) or choose another directory"
        )
