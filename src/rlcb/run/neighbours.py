"""Other runs of a suite on the same machine: recorded before a run's first checkpoint, kept when it is resumed."""

import json
from collections.abc import Iterator

from rlcb.files import read_regular
from rlcb.hardware import jobs_beside
from rlcb.run.directory import RunDirectory

_EVENT = "shared_machine"
_LARGEST_EVENTS = 16 * 2**20  # bytes of events.jsonl


def note_jobs_beside(run: RunDirectory) -> int:
    """The most other runs that share the machine with this run, or did with an earlier part of it; kept as an event."""
    now = jobs_beside()
    if now:
        run.event(_EVENT, jobs_beside=now)
    return max([now, *_recorded(run)])


def _recorded(run: RunDirectory) -> Iterator[int]:
    """What the run's events say; damaged ones say nothing."""
    try:
        lines = read_regular(run.path / "events.jsonl", _LARGEST_EVENTS).splitlines()
    except OSError:
        return
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and entry.get("event") == _EVENT and type(entry.get("jobs_beside")) is int:
            yield entry["jobs_beside"]
