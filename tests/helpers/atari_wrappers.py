"""The usual preprocessing of Atari games as wrappers of Gymnasium's environment, frame by frame and slowly."""

from typing import Any

import gymnasium
import numpy as np

SIZE = 84


class Scores(gymnasium.Wrapper):
    """Adds up the rewards of all frames."""

    total = 0.0

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        self.total += result[1]
        return result

    def take(self) -> float:
        """The rewards since this was last called."""
        total, self.total = self.total, 0.0
        return total


class Sticky(gymnasium.Wrapper):
    """Sometimes repeats the action of the frame before."""

    def __init__(self, env: gymnasium.Env, random: np.random.Generator, probability: float):
        super().__init__(env)
        self.random, self.probability, self.last = random, probability, 0

    def reset(self, **options: Any) -> Any:
        self.last = 0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        if self.probability and self.random.random() < self.probability:
            action = self.last
        self.last = action
        return self.env.step(action)


class NoopReset(gymnasium.Wrapper):
    """Begins with a random number of frames without an action."""

    def __init__(self, env: gymnasium.Env, random: np.random.Generator, most: int):
        super().__init__(env)
        self.random, self.most = random, most

    def reset(self, **options: Any) -> Any:
        result = self.env.reset(**options)
        if self.most:
            for _ in range(self.random.integers(1, self.most + 1)):
                screen, _, terminated, truncated, about = self.env.step(0)
                result = self.env.unwrapped.reset() if terminated or truncated else (screen, about)
        return result


class MaxAndSkip(gymnasium.Wrapper):
    """Repeats an action; the observation is the maximum of the last two frames."""

    def __init__(self, env: gymnasium.Env, skip: int):
        super().__init__(env)
        self.skip = skip

    def step(self, action: Any) -> Any:
        screens, total = [], 0.0
        for _ in range(self.skip):
            screen, reward, terminated, truncated, about = self.env.step(action)
            screens.append(screen)
            total += reward
            if terminated or truncated:
                screens = [screen]
                break
        return np.max(screens[-2:], axis=0), total, terminated, truncated, about


class EpisodicLife(gymnasium.Wrapper):
    """A lost life ends an episode; only when all are lost the game itself is begun again."""

    lives, over = 0, True

    def reset(self, **options: Any) -> Any:
        if not self.over:
            screen, _, terminated, truncated, about = self.env.step(0)
            result = screen, about
            self.over = terminated or truncated
        if self.over:
            result = self.env.reset(**options)
        self.lives = self.unwrapped.ale.lives()
        return result

    def step(self, action: Any) -> Any:
        screen, reward, terminated, truncated, about = self.env.step(action)
        self.over = terminated or truncated
        lives = self.unwrapped.ale.lives()
        terminated = terminated or 0 < lives < self.lives
        self.lives = lives
        return screen, reward, terminated, truncated, about


class FireReset(gymnasium.Wrapper):
    """Presses FIRE where nothing happens before."""

    def reset(self, **options: Any) -> Any:
        result = self.env.reset(**options)
        meanings = self.unwrapped.get_action_meanings()
        if len(meanings) < 3 or meanings[1] != "FIRE":
            return result
        for action in (1, 2):
            screen, _, terminated, truncated, about = self.env.step(action)
            result = self.env.reset(**options) if terminated or truncated else (screen, about)
        return result


class Warp(gymnasium.ObservationWrapper):
    """Shrinks pictures by area averages."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.observation_space = gymnasium.spaces.Box(0, 255, (SIZE, SIZE), np.uint8)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return area_means(observation, SIZE)


def area_means(picture: np.ndarray, size: int) -> np.ndarray:
    """Every pixel repeated `size` times both ways, which can be divided evenly; then the means, rounded."""
    height, width = picture.shape
    rows = picture.astype(np.int64).repeat(size, axis=0).reshape(size, height, width).sum(axis=1)
    sums = rows.repeat(size, axis=1).reshape(size, size, width).sum(axis=2)
    return np.rint(sums / (height * width)).astype(np.uint8)
