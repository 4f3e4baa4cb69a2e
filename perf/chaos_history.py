"""What `chaos.py` knows of a run: its updates as they are recorded, and what should never have happened to them."""

import json
import sys
from collections import Counter
from pathlib import Path

LOST, DOUBLE, HOLE, HANG, TRACEBACK = "steps lost beyond the bound", "double counts", "holes", "hangs", "tracebacks"
LEFT, SHARED, DAMAGED, CODE = "leftover processes", "names left in /dev/shm", "damaged files", "wrong exit codes"
KINDS = (LOST, DOUBLE, HOLE, HANG, TRACEBACK, LEFT, SHARED, DAMAGED, CODE)


class Findings:
    """What should never have happened, counted by kind and told at once."""

    def __init__(self) -> None:
        self.counts = Counter[str](dict.fromkeys(KINDS, 0))
        self._told: set[tuple[str, str]] = set()

    def add(self, kind: str, story: str) -> None:
        """One more of a kind; the same one is found by every check that follows, and counts once."""
        if (kind, story) in self._told:
            return
        self._told.add((kind, story))
        self.counts[kind] += 1
        print(f"{kind}: {story}", file=sys.stderr, flush=True)


class History:
    """The updates in a run's metrics.jsonl, read as it grows."""

    def __init__(self, run: Path):
        self._run, self._text = run, b""
        self.lines: list[tuple[int, int]] = []  # (update, step)

    @property
    def updates(self) -> int:
        """The number of the last update."""
        return self.lines[-1][0] if self.lines else 0

    @property
    def steps(self) -> int:
        """The environment steps on record."""
        return self.lines[-1][1] if self.lines else 0

    def read(self) -> None:
        """Take in whole new lines; a resumed run cuts the file back to its checkpoint, so it is read anew then."""
        for log in self._run.glob("logs/*/metrics.jsonl"):
            text = log.read_bytes()
            text = text[: text.rfind(b"\n") + 1]
            if text[: len(self._text)] != self._text:
                self._text, self.lines = b"", []
            new = text[len(self._text) :]
            self._text = text
            self.lines += [(line["update"], line["step"]) for line in map(json.loads, new.splitlines())]

    def faults(self, rollout: int, ends: set[int]) -> list[tuple[str, str]]:
        """Updates that are missing or counted twice; a stretch of A3C may `end` with less than a whole round."""
        found, last = [], (0, 0)
        for update, step in self.lines:
            if update <= last[0] or step <= last[1]:
                found.append((DOUBLE, f"update {update} (step {step}) follows update {last[0]} (step {last[1]})"))
            elif update != last[0] + 1 or step - last[1] > rollout or (step - last[1] < rollout and step not in ends):
                found.append((HOLE, f"update {update} (step {step}) follows update {last[0]} (step {last[1]})"))
            last = (update, step)
        return found
