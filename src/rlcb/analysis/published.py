"""Published PPO results on Procgen, as a reference for learning curves.

Source: Cobbe et al. 2020, "Leveraging Procedural Generation to Benchmark Reinforcement Learning", arXiv 1912.01588;
the learning curves that its authors released (openai/train-procgen, train_procgen/results). All 16 games; each point is
the mean of the last 100 episodes, averaged over 10 updates before and after it (hard levels: 5), and then mean and
standard deviation over 3 runs.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from rlcb.analysis.statistics import Array
from rlcb.files import read_regular

SOURCE = "Cobbe et al. 2020, arXiv 1912.01588"
_FILE = Path(__file__).with_name("published_ppo.csv")
_LARGEST = 16 * 2**20  # bytes
# By distribution mode and number of levels; 0 stands for all levels, which do not depend on the start level.
_PROTOCOLS = {("easy", 200): "easy-200", ("easy", 0): "easy-all", ("hard", 500): "hard-500", ("hard", 0): "hard-all"}


@dataclass(frozen=True, eq=False)
class PublishedCurve:
    """Mean reward per episode over environment steps; `std` is over 3 runs."""

    protocol: str
    game: str
    steps: Array
    mean: Array
    std: Array

    def at(self, steps: float) -> tuple[float, float] | None:
        """Mean and standard deviation after this many steps, linear between known points; None outside of them."""
        if not self.steps[0] <= steps <= self.steps[-1]:
            return None
        return float(np.interp(steps, self.steps, self.mean)), float(np.interp(steps, self.steps, self.std))

    def up_to(self, steps: float) -> tuple[Array, Array]:
        """Steps and means of the part that ends at `steps`; empty where the curve begins later."""
        before = self.steps < steps
        end = self.at(steps)
        if end is None:
            return self.steps[before], self.mean[before]
        return np.append(self.steps[before], steps), np.append(self.mean[before], end[0])


def published_curve(
    game: str, distribution_mode: str | None, num_levels: int | None, start_level: int | None, unseen: bool = False
) -> PublishedCurve | None:
    """The published curve of a task, on its training levels or on `unseen` ones; None where nothing matches."""
    protocol = _PROTOCOLS.get((distribution_mode or "", -1 if num_levels is None else num_levels))
    if protocol is None or (num_levels and start_level):
        return None
    if num_levels:
        protocol += "-test" if unseen else "-train"
    elif unseen:
        return None  # a run on all levels has no unseen ones
    return _curves().get((protocol, game))


@cache
def _curves() -> dict[tuple[str, str], PublishedCurve]:
    rows: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for row in csv.DictReader(read_regular(_FILE, _LARGEST).decode().splitlines()):
        point = float(row["env_steps"]), float(row["mean"]), float(row["std_over_3_runs"])
        rows.setdefault((row["protocol"], row["game"]), []).append(point)
    return {key: PublishedCurve(*key, *np.array(sorted(points)).T) for key, points in rows.items()}
