"""One Atari game: the emulator, and what is done to its frames, actions and lives before a policy sees them.

As in the papers: an action holds for `frame_skip` frames, of whose last two the brighter pixels are taken, in gray and
shrunk to 84 × 84; a game begins with up to `noop_max` frames without an action, and with FIRE where nothing moves
before it is pressed; a lost life can end an episode without ending the game.
"""

import json
from typing import NamedTuple

import ale_py
import numpy as np
from ale_py import roms
from numpy.typing import NDArray

from rlcb.envs.area import AreaResizer
from rlcb.envs.base import EnvSettings

SIZE = 84  # pixels of an observation, both ways
_MOST_FRAMES = 108_000  # of a game, half an hour; as ale-py registers its environments


class Turn(NamedTuple):
    """What came of an action."""

    reward: float  # raw
    done: bool  # a life or the game is over, for learning
    over: bool  # the game is
    final: NDArray[np.uint8] | None  # the last observation of a game that was cut off by the limit of frames


class AtariGame:
    """A game that begins again by itself. Its observation, `frames` [84, 84, frame_stack], is kept current in place."""

    def __init__(self, rom: str, settings: EnvSettings, sticky: float, seed: list[int], frames: NDArray[np.uint8]):
        self.frames, self._settings, self._sticky = frames, settings, sticky
        self._random = np.random.default_rng(seed)
        self._ale = ale_py.ALEInterface()
        self._ale.setInt("random_seed", int(self._random.integers(2**31)))
        # Sticky actions are drawn here: the emulator's saved state lacks the action that it would repeat.
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._ale.setInt("max_num_frames_per_episode", _MOST_FRAMES)
        self._ale.loadROM(roms.get_rom_path(rom))
        self.actions = self._ale.getMinimalActionSet()
        fires = len(self.actions) > 2 and self.actions[1] == ale_py.Action.FIRE
        self._opening = self.actions[1:3] if fires else []  # what has to be pressed first
        height, width = self._ale.getScreenDims()
        self._screens = np.zeros((2, height, width), np.uint8)  # the last frame but one, and the last
        self._resize = AreaResizer(height, width, SIZE)
        self._last = ale_py.Action.NOOP  # the action of the last frame
        self._lives, self._unseen = 0, 0.0  # reward of frames before the first step
        self._begin()

    def step(self, action: int) -> Turn:
        """Apply an action; rewards of frames that the policy does not see belong to the step before or after them."""
        reward = self._unseen + self._advance(self.actions[action])
        self._unseen, final = 0.0, None
        over, before, self._lives = self._ale.game_over(), self._lives, self._ale.lives()
        lost = not over and self._settings.episodic_life and 0 < self._lives < before
        if lost:
            reward += self._press([ale_py.Action.NOOP, *self._opening])
            over = self._ale.game_over()
            self._see(anew=True)
        else:
            self._see()
        if over:
            final = self.frames.copy() if self._ale.game_truncated() else None
            self._begin()
        return Turn(reward, over or lost, over, final)

    def picture(self) -> NDArray[np.uint8]:
        """The screen in colours, every pixel twice as high and twice as wide."""
        return np.asarray(self._ale.getScreenRGB()).repeat(2, axis=0).repeat(2, axis=1)

    def get_state(self) -> bytes:
        """Everything needed to continue exactly here: a line of JSON, the emulator with its random numbers, frames."""
        emulator = self._ale.cloneState(include_rng=True).serialize()
        head = {
            "random": self._random.bit_generator.state, "last": self._last.value, "lives": self._lives,
            "unseen": self._unseen, "emulator": len(emulator),
        }  # fmt: skip
        return b"\n".join((json.dumps(head).encode(), emulator + self.frames.tobytes()))

    def set_state(self, state: bytes) -> None:
        """Continue exactly where `get_state` was called; ValueError for what is no such state."""
        line, _, rest = state.partition(b"\n")
        try:
            head = json.loads(line)
            emulator, frames = rest[: head["emulator"]], rest[head["emulator"] :]
            self.frames[...] = np.frombuffer(frames, np.uint8).reshape(self.frames.shape)
            self._random.bit_generator.state = head["random"]
            self._last, self._lives = ale_py.Action(head["last"]), int(head["lives"])
            self._unseen = float(head["unseen"])
            self._ale.restoreState(ale_py.ALEState(emulator))
        except (KeyError, TypeError, RecursionError, OverflowError, SystemError) as error:
            raise ValueError(str(error)) from None

    def _begin(self) -> None:
        """Start a new game, as often as it takes to have one that is not over at once."""
        self._ale.reset_game()
        self._last, self._unseen = ale_py.Action.NOOP, 0.0
        most = self._settings.noop_max
        for _ in range(int(self._random.integers(1, most + 1)) if most else 0):
            self._unseen += self._frame(ale_py.Action.NOOP)
            if self._ale.game_over():
                self._ale.reset_game()
        self._ale.getScreenGrayscale(self._screens[1])
        self._screens[0] = 0
        self._unseen += self._press(self._opening)
        if self._ale.game_over():
            self._begin()
            return
        self._lives = self._ale.lives()
        self._see(anew=True)

    def _press(self, actions: list[ale_py.Action]) -> float:
        """Apply actions that the policy does not choose, until the game is over; returns their reward."""
        reward = 0.0
        for action in actions:
            if not self._ale.game_over():
                reward += self._advance(action)
        return reward

    def _advance(self, action: ale_py.Action) -> float:
        """Apply an action for some frames, or until the game is over; keeps the last two screens."""
        ale, reward, over = self._ale, 0.0, False
        for left in reversed(range(self._settings.frame_skip)):
            reward += self._frame(action)
            over = ale.game_over()
            if left == 1:
                ale.getScreenGrayscale(self._screens[0])
            if over:
                break
        ale.getScreenGrayscale(self._screens[1])
        if over:
            self._screens[0] = 0  # of the step before
        return reward

    def _frame(self, action: ale_py.Action) -> float:
        """One frame, with this action or the one of the frame before."""
        if not (self._sticky and self._random.random() < self._sticky):
            self._last = action
        return float(self._ale.act(self._last))

    def _see(self, anew: bool = False) -> None:
        """Make the last screens the newest frame of the observation, or `anew` all of its frames."""
        frame = self._resize(np.maximum(*self._screens))
        if anew:
            self.frames[...] = frame[:, :, np.newaxis]
        else:
            # Each byte moves one place towards the front, which takes every frame to the place of the one before it.
            memory = self.frames.reshape(-1)
            memory[:-1] = memory[1:]
            self.frames[:, :, -1] = frame
