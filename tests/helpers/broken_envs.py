"""Environments that are as they should be but for one thing each, for the check of environments."""

import fcntl
import os
import subprocess
import sys
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Fine(gymnasium.Env[Any, int]):
    """Numbers that a seed determines, and a time limit of 50 steps."""

    length = 50

    def __init__(self) -> None:
        self.observation_space: spaces.Space[Any] = spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.look(), {}

    def step(self, action: int) -> Any:
        self.t += 1
        return self.look(), self.reward(), False, self.t >= self.length, {}

    def look(self) -> Any:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32)

    def reward(self) -> Any:
        return 1.0


class Outside(Fine):
    def look(self) -> Any:
        return np.full(2, 1.5, np.float32) if self.t == 40 else super().look()


class Shape(Fine):
    def look(self) -> Any:
        return np.zeros(3, np.float32) if self.t == 40 else super().look()


class Double(Fine):
    def look(self) -> Any:
        return super().look().astype(np.float64)


class Fractions(Fine):
    """Pictures of which uint8 would leave nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (40, 40, 3), np.uint8)

    def look(self) -> Any:
        return self.np_random.random((40, 40, 3))


class Small(Fine):
    """Pictures that are too small for the default network."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0, 255, (7, 7, 3), np.uint8)

    def look(self) -> Any:
        return self.np_random.integers(0, 256, (7, 7, 3), np.uint8)


class Part(Fine):
    """One part of what it shows is not in its space, late."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict(place=spaces.Box(-1, 1, (2,), np.float32), key=spaces.Discrete(3))

    def look(self) -> Any:
        return {"place": super().look(), "key": 3 if self.t == 20 else 1}


class Unseen(Fine):
    """Double numbers, one of which is none, so that there are two findings about observations."""

    def look(self) -> Any:
        return np.full(2, np.nan if self.t == 30 else 0.5)


class Late(Fine):
    """A reward that is no number, late in an episode."""

    length = 500

    def reward(self) -> Any:
        return float("nan") if self.t == 490 else 1.0


class Nothing(Fine):
    def reward(self) -> Any:
        return None


class Huge(Fine):
    """A reward that is finite as Python has it, and not as training has it."""

    def reward(self) -> Any:
        return 1e39


class Random(Fine):
    """Randomness that no seed determines, from step 17 on."""

    def reward(self) -> Any:
        return float(np.random.default_rng().random()) if self.t > 16 else 0.0


class Levels(Fine):
    """What an episode is depends on how many there were."""

    level = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.level += 1
        return super().reset(seed=seed)

    def reward(self) -> Any:
        return float(self.level)


class Shared(Fine):
    """All copies in a process count in the one that was reset last."""

    last: "Shared"
    count = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        Shared.last, self.count = self, 0.0
        return super().reset(seed=seed)

    def reward(self) -> Any:
        Shared.last.count += 1
        return Shared.last.count


class Number(Fine):
    """Rewards that depend on the process."""

    def reward(self) -> Any:
        return float(os.getpid())


class Endless(Fine):
    length = 10**12


class Limit(Fine):
    """A time limit that is called a termination."""

    def step(self, action: int) -> Any:
        observation, reward, _, truncated, info = super().step(action)
        return observation, reward, truncated, False, info


class Whole(Fine):
    def step(self, action: int) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), truncated, info


class Four(Fine):
    def step(self, action: int) -> Any:
        return super().step(action)[:4]


class Alone(Fine):
    """Only one process at a time can make it."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = open(os.environ["BROKEN_ENVS_LOCK"], "a")  # noqa: SIM115 - open as long as the environment
        try:
            fcntl.lockf(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RuntimeError("the simulator is in use") from None


class Raises(Fine):
    def step(self, action: int) -> Any:
        return 1 / 0 if self.t == 30 else super().step(action)


class Unmade(Fine):
    def __init__(self) -> None:
        raise OSError("no simulator")


class Several(Fine):
    """Actions that no policy fits."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([2, 2])  # type: ignore[assignment]


class Hangs(Fine):
    """Does not return, and not even to Python; has started another program."""

    def step(self, action: int) -> Any:
        if self.t == 30:
            other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            with open(os.environ["BROKEN_ENVS_LOCK"], "w") as file:
                file.write(str(other.pid))
            sum(range(10**13))
        return super().step(action)


class Ends(Fine):
    def step(self, action: int) -> Any:
        if self.t == 30:
            os._exit(9)
        return super().step(action)


class Crashes(Fine):
    def step(self, action: int) -> Any:
        if self.t == 30:
            os.abort()
        return super().step(action)


class Slow(Fine):
    def __init__(self) -> None:
        super().__init__()
        time.sleep(2)


for kind in Fine.__subclasses__():
    gymnasium.register(f"{kind.__name__}-v0", kind)  # type: ignore[arg-type]
gymnasium.register("Fine-v0", Fine)
