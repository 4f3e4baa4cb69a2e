"""What travels between actors and their supervisor: tickets for rollout slots. Light: nothing here imports torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ticket:
    """The right to fill a slot, and once filled, what is in it."""

    number: int
    slot: int
    actor: int = -1
    incarnation: int = 0  # which of the processes that have been this actor
    rollout: int = 0  # how many it had filled before
    version: int = 0  # of the policy that acted

    @property
    def stamp(self) -> int:
        """What the slot itself must say: never the same for two rollouts of a run."""
        return (self.actor << 48) + (self.incarnation << 32) + self.rollout + 1


@dataclass(frozen=True)
class Filled:
    """An actor's message: a slot is full; where the actor's time went since the one before."""

    ticket: Ticket
    seconds: dict[str, float]
