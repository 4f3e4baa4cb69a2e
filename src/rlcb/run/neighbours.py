"""Other runs of a suite on the same machine: recorded before a run's first checkpoint, kept when it is resumed."""

from rlcb.files import read_events
from rlcb.hardware import jobs_beside
from rlcb.run.directory import RunDirectory

_EVENT = "shared_machine"


def note_jobs_beside(run: RunDirectory) -> int:
    """The most other runs that share the machine with this run, or did with an earlier part of it; kept as an event."""
    now = jobs_beside()
    if now:
        run.event(_EVENT, jobs_beside=now)
    recorded = [event.get("jobs_beside") for event in read_events(run.path / "events.jsonl", _EVENT)]
    return max([now, *(count for count in recorded if type(count) is int)])
