"""The run's clock, and what depends on it: the learning rate, when to save, when to end."""

import time

from rlcb.config.schema import Config


class Schedule:
    """One for each process that decides; where several learn in step, the decisions of rank 0 count."""

    def __init__(self, config: Config, zero: float):
        """`zero`: the reading of the monotonic clock at which the training time was 0."""
        self._training, self._logging, self.zero = config.training, config.logging, zero
        self._saved, self._mark = time.perf_counter(), self.now()
        self.update_seconds = 0.0  # what the last update took

    def now(self) -> float:
        """Training time in seconds, earlier stretches of a resumed run included."""
        return time.perf_counter() - self.zero

    def lap(self) -> float:
        """An update ends here and the next one begins; returns the training time."""
        now = self.now()
        self.update_seconds, self._mark = now - self._mark, now
        return now

    def fraction(self, env_steps: int) -> float:
        """How much of the run is done, from 0 to 1."""
        hours = self._training.duration_hours
        return min(self.now() / (3600 * hours) if hours else env_steps / self._training.total_timesteps, 1.0)

    def learning_rate(self, fraction: float) -> float:
        """The optimizer's step size after so much of the run."""
        linear = self._training.lr_schedule == "linear"
        return self._training.learning_rate * (1 - fraction if linear else 1.0)

    def reached(self, env_steps: int, updates: int, pending: int = 0) -> bool:
        """Whether steps or time are reached: a timed run ends with the update that is nearest to its time.

        `updates` have been done or ordered, `pending` of them are still to be done, each taking as long as the last.
        """
        hours = self._training.duration_hours
        if hours is None:
            return env_steps >= self._training.total_timesteps
        return updates > 0 and self.now() + (pending + 0.5) * self.update_seconds >= 3600 * hours

    def save_due(self, updates: int) -> bool:
        """Whether a checkpoint is due, by updates or by time; asking starts the time anew."""
        minutes = self._logging.save_every_minutes
        waited = time.perf_counter() - self._saved
        due = updates % self._logging.save_interval == 0 or (minutes is not None and waited >= 60 * minutes)
        if due:
            self._saved = time.perf_counter()
        return due


def ending(reached: bool, stopped: bool) -> str | None:
    """How the run ends, if it does: by reaching its steps or time, or by a signal before that."""
    if reached:
        return "finished"
    return "interrupted" if stopped else None
