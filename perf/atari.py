"""Atari environments: ours beside plain wrappers of Gymnasium and beside ale-py's own vector environment, in turn.

    python perf/atari.py --game Breakout --rounds 5 --steps 300      # needs ale-py; with OpenCV also the plain wrappers

Eight copies of a game, random actions, frame skip 4, 84 × 84 gray, 4 frames; the plain side is what CleanRL trains on
as far as Gymnasium brings it: AtariPreprocessing (OpenCV), FrameStackObservation and SyncVectorEnv, without lives and
FIRE. ale-py's vector environment does the same in C++, here with one thread. Speeds are steps per second of this
process's CPU time, so that other programs matter little; the ratios are of rounds, whose order alternates.
"""

import argparse
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

ENVS = 8


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="Breakout", help="as in ALE/<Game>-v5")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=300, help="of each copy, per round and side")
    given = parser.parse_args()
    sides = {"rlcb": ours(given.game), "ale-py vector": vector(given.game)}
    if find_spec("cv2"):
        sides["plain wrappers"] = plain(given.game)
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(given.rounds + 1):  # the first is warm-up
        for name in list(sides)[:: 1 if number % 2 else -1]:
            speed = measured(sides[name], given.steps)
            if number:
                speeds[name].append(speed)
    for name, found in speeds.items():
        ratios = [one / other for one, other in zip(speeds["rlcb"], found, strict=True)]
        spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        print(f"{name:15} {median(found):7,.0f} steps per CPU second   rlcb / {name}: {spread}", flush=True)


def measured(step: Callable[[], None], steps: int) -> float:
    """Steps of all copies per second of CPU time."""
    begun = time.process_time()
    for _ in range(steps):
        step()
    return steps * ENVS / (time.process_time() - begun)


def ours(game: str) -> Callable[[], None]:
    """A step of this program's environment."""
    import numpy as np

    from rlcb.config.environment import EnvConfig
    from rlcb.envs.families import make_env

    env = make_env(EnvConfig(name=f"ALE/{game}-v5"), ENVS, seed=0, num_threads=0)
    random = np.random.default_rng(0)

    def step() -> None:
        env.step(random.integers(env.spec.num_actions, size=ENVS))

    return step


def plain(game: str) -> Callable[[], None]:
    """A step of Gymnasium's wrappers."""
    import ale_py
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    gymnasium.register_envs(ale_py)

    def make() -> gymnasium.Env[object, object]:
        env = AtariPreprocessing(gymnasium.make(f"ALE/{game}-v5", frameskip=1))
        return FrameStackObservation(env, 4)

    envs = gymnasium.vector.SyncVectorEnv([make] * ENVS)
    envs.reset(seed=0)

    def step() -> None:
        envs.step(envs.action_space.sample())

    return step


def vector(game: str) -> Callable[[], None]:
    """A step of ale-py's vector environment."""
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    options: dict[str, Any] = {"repeat_action_probability": 0.25, "num_threads": 1, "reward_clipping": False}
    envs = gymnasium.make_vec(f"ALE/{game}-v5", num_envs=ENVS, **options)
    envs.reset(seed=0)

    def step() -> None:
        envs.step(envs.action_space.sample())

    return step


if __name__ == "__main__":
    main()
