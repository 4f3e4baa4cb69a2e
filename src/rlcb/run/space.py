"""Whether the disk has room for a run's checkpoints."""

import shutil
from pathlib import Path

from rlcb.config.schema import Config
from rlcb.envs.families import family_of
from rlcb.errors import ResourceError
from rlcb.files import nearest_existing


def checkpoint_bytes(config: Config) -> int:
    """The size of a checkpoint, roughly: weights with two moments of the optimizer, and the environments' states."""
    return 3 * 4 * 700_000 + family_of(config.env.name).state_bytes * config.env.num_envs


def check_space(checkpoints: Path, size: int, keep: int) -> None:
    """Raise ResourceError unless a folder's disk has room for three times the checkpoints, of `size` bytes each."""
    need = 3 * size * (keep + 1)
    free = shutil.disk_usage(nearest_existing(checkpoints)).free
    if free < need:
        raise ResourceError(
            f"{checkpoints}: {need / 2**20:.0f} MB needed for checkpoints, {free / 2**20:.0f} MB free; "
            "free some space, keep fewer checkpoints (keep_checkpoints) or choose another directory"
        )
