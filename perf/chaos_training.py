"""A training that `chaos.py` does harm to: started, resumed and watched, and checked for what must always hold."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from chaos_history import CODE, DAMAGED, HANG, HOLE, LEFT, LOST, SHARED, TRACEBACK, Findings, History
from helpers.clusters import SETTINGS, ours
from helpers.fault_runs import shared_names
from rlcb.errors import CheckpointUnusable
from rlcb.run.checkpoint import load_checkpoint
from rlcb.run.directory import read_run
from rlcb.signals import die_with

REPO = Path(__file__).resolve().parent.parent
LOOKS_EVERY = 0.1  # seconds
GOES_ON = 3  # updates after which training counts as going on
_PATIENCE = 60.0  # seconds in which the processes of a run that has ended must be gone
_TOGETHER = 30.0  # seconds: whoever loses all workers within them may end with exit code 4
_OF_A_RUN = re.compile(r"-m rlcb\b|ray::(WorkerActor|ParameterServer)")
_RESUMED = re.compile(r"resuming from .* at step ([\d,]+)")


class Training:
    """`rlcb train …` in a folder of its own, begun again whenever it has ended."""

    def __init__(self, folder: Path, run: Path, words: Sequence[str], inside: Sequence[str], hang_seconds: float):
        """`words`: arguments of `rlcb train`; `inside`: what to put before a command for it to run on a node."""
        self.findings, self.history, self.path = Findings(), History(run), run
        self._folder, self._words, self._inside, self._hang = folder, words, inside, hang_seconds
        self.on_cluster = bool(inside)
        self._stretches = 0
        self._shared = shared_names()
        self._ends: set[int] = set()  # steps that the run was resumed from
        self._grew = time.monotonic()  # when the history last did
        self.gap, self.lost, self.bound = 0.0, 0, 0  # since `begin_fault`
        self._struck: list[float] = []  # when workers were done harm to
        self._starts_due = 0  # workers that must have started in this stretch before all are there again
        self.damaged: dict[Path, bytes] = {}  # checkpoints that were done harm to

    # Starting and ending

    def start(self) -> None:
        """Begin the run."""
        self._begin(*self._words, "--output-dir", str(self.path))
        if not self._reaches(GOES_ON) or self.ended:
            sys.exit(f"the run does not start:\n{self.said()}")
        self.size = self._started()  # workers that act
        self.config, _ = read_run(self.path)
        self.interval = self.config.logging.save_interval * self.config.rollout_size  # steps between checkpoints

    def _begin(self, *words: str) -> None:
        self._stretches += 1
        self._starts_due = 0
        self.output = self._folder / f"output_{self._stretches}.txt"
        command = [*self._inside, sys.executable, "-m", "rlcb", "train", *words]
        here = os.getpid()
        with self.output.open("wb") as file:
            self.process = psutil.Popen(
                command, cwd=REPO, env={**os.environ, **SETTINGS}, start_new_session=True,
                preexec_fn=lambda: die_with(here), stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def resume(self, bound: int, *more: str) -> None:
        """Begin again where the run was; at most `bound` steps that were on record may be lost."""
        self.history.read()
        old, steps = self.history.lines, self.history.steps
        newest = max((step for _, step in self.whole_checkpoints()), default=-1)
        self._begin("--resume", str(self.path), *more)
        self.watch(lambda: bool(_RESUMED.search(self.said())) or self.ended)
        if not (match := _RESUMED.search(self.said())):
            return  # whoever waits for updates will notice
        at = int(match[1].replace(",", ""))
        lost = steps - at
        self._ends.add(at)
        self.lost, self.bound = max(self.lost, lost), max(self.bound, bound)
        if lost > bound or at != newest:
            self.findings.add(LOST, f"resumed at step {at}, {lost} back; allowed {bound}, newest checkpoint {newest}")
        if steps > at:
            self.watch(lambda: self.history.lines is not old or self.ended)
        kept = [line for line in old if line[1] <= at]
        if self.history.lines[: len(kept)] != kept:
            self.findings.add(HOLE, f"resuming at step {at} changed the history before it")

    @property
    def ended(self) -> bool:
        """Whether the command has ended."""
        return self.process.poll() is not None

    def wait_for_end(self, *codes: int) -> None:
        """Wait for the command to end with one of these codes, and for its processes to be gone."""
        if not self.watch(lambda: self.ended):
            self.findings.add(HANG, f"the run did not end in {self._hang:g} s\n{self.said()[-2000:]}")
            self.end_at_once()
        elif self.process.returncode not in codes:
            self.findings.add(CODE, f"{self.process.returncode} instead of {codes}\n{self.said()[-2000:]}")
        self._clear()

    def end_at_once(self) -> None:
        """Kill the run with everything that belongs to it."""
        processes = self.processes()
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=_PATIENCE)

    def _clear(self) -> None:
        """Nothing of a run that has ended may be left."""
        _, alive = psutil.wait_procs(self.processes(), timeout=_PATIENCE)
        for process in alive:
            self.findings.add(LEFT, str(process))
            process.kill()
        if names := shared_names() - self._shared:
            self.findings.add(SHARED, " ".join(sorted(names)))
            self._shared |= names
        if "Traceback" in self.said():
            self.findings.add(TRACEBACK, self.said()[-4000:])

    # Watching

    def processes(self) -> list[psutil.Process]:
        """All processes of the run, wherever they are."""
        return sorted((p for p in ours() if _OF_A_RUN.search(" ".join(p.info["cmdline"] or ()))), key=lambda p: p.pid)

    def workers(self) -> list[psutil.Process]:
        """Those that the driver supervises: workers, actors and learners."""
        commands = [(process, process.info["cmdline"]) for process in self.processes()]
        return [p for p, words in commands if "rlcb.execution.entry" in words or "ray::WorkerActor" in words[0]]

    def said(self) -> str:
        """What the command has printed since it was started or resumed."""
        return self.output.read_text(errors="replace")

    def watch(self, until: Callable[[], bool], seconds: float | None = None) -> bool:
        """Look at the run until something is true, at most for so long; returns whether it became true."""
        deadline = time.monotonic() + (self._hang if seconds is None else seconds)
        while time.monotonic() < deadline:
            lines, count = self.history.lines, len(self.history.lines)
            self.history.read()
            if self.history.lines is lines and len(lines) > count:
                self.gap, self._grew = max(self.gap, time.monotonic() - self._grew), time.monotonic()
            if until():
                return True
            time.sleep(LOOKS_EVERY)
        return False

    def begin_fault(self) -> None:
        """From here on gaps and losses are those of a new fault."""
        self.gap, self.lost, self.bound, self._grew = 0.0, 0, 0, time.monotonic()

    def strike(self, victim: psutil.Process) -> None:
        """A worker is done harm to that it will not survive."""
        self._struck.append(time.monotonic())
        acts = "learner" not in victim.info["cmdline"]  # learners are there again when updates are
        if acts and not self.on_cluster:  # which may have no room for another one
            self._starts_due = max(self._starts_due, self._started()) + 1

    def _started(self) -> int:
        return len(re.findall(r"^\w+ \d+ started with", self.said(), re.MULTILINE))

    def wait_for_updates(self) -> None:
        """Wait until all lost workers are replaced and training goes on; a run that has ended is resumed first."""
        for _ in range(3):
            self.watch(lambda: self._started() >= self._starts_due or self.ended)
            self.history.read()
            first = self.history.updates + GOES_ON
            if self._reaches(first) and not self.ended:
                return
            if self.ended:
                self.resume(self._take_end())
            else:
                self.findings.add(HANG, f"no updates for {self._hang:g} s\n{self.said()[-2000:]}")
                self.end_at_once()
                self._clear()
                self.resume(self.interval)
        sys.exit("the run cannot be made to go on")

    def _reaches(self, update: int) -> bool:
        return self.watch(lambda: self.history.updates >= update or self.ended)

    def _take_end(self) -> int:
        """The run has ended by itself: by design or not; returns how many steps that may cost."""
        recent = [when for when in self._struck if time.monotonic() - when < _TOGETHER]
        if self.process.returncode == 4 and len(recent) >= self.size:
            self.wait_for_end(4)
            return self.interval if self.on_cluster else 0
        self.wait_for_end()
        return self.interval

    # Checking

    def whole_checkpoints(self) -> list[tuple[Path, int]]:
        """The checkpoints that load, with their steps; one that does not must have been done harm to."""
        whole = []
        for path in self.path.glob("checkpoints/*.pt"):
            try:
                whole.append((path, int(load_checkpoint(path)["meta"]["env_steps"])))
            except CheckpointUnusable as error:
                if path.exists() and self.damaged.get(path) != path.read_bytes():  # it may just have been pruned
                    self.findings.add(DAMAGED, str(error))
        return sorted(whole, key=lambda entry: entry[1])

    def check(self) -> None:
        """What must hold at any time."""
        self.history.read()
        for kind, story in self.history.faults(self.config.rollout_size, self._ends | {self.history.steps}):
            self.findings.add(kind, story)
        self.whole_checkpoints()
        events = self.path / "events.jsonl"  # there is none before the first
        for line in events.read_text(errors="replace").splitlines() if events.exists() else ():
            try:
                json.loads(line)
            except json.JSONDecodeError:
                self.findings.add(DAMAGED, f"events.jsonl: {line}")

    def finish(self) -> None:
        """Stop the run as a user would, resume it to a target a few updates later, and look at all that is left."""
        self.process.send_signal(signal.SIGTERM)
        self.wait_for_end(128 + signal.SIGTERM)
        self.history.read()
        rollout = self.config.rollout_size
        target = -(-self.history.steps // rollout) * rollout + GOES_ON * rollout
        self.resume(0, "--total-timesteps", str(target))
        self.wait_for_end(0)
        self.check()
        done = json.loads((self.path / "training_summary.json").read_text())["total_timesteps"]
        if not self.history.steps == done >= target:
            self.findings.add(HOLE, f"the summary says {done} steps, the history {self.history.steps}, due {target}")
