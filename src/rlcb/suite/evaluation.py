"""The evaluations of a suite: of every finished run, side by side, as their duration is not measured."""

import time
from dataclasses import dataclass

from rlcb.analysis.evaluations import evaluations_in
from rlcb.analysis.suites import SuiteRun
from rlcb.analysis.untrusted import read_object
from rlcb.config.own_modules import import_words
from rlcb.config.schema import Config
from rlcb.envs.families import canonical_env_name, family_of
from rlcb.errors import ResourceError, UsageError
from rlcb.files import sha256_of
from rlcb.hardware import resolve_device
from rlcb.run.directory import LARGEST_CHECKPOINT
from rlcb.run.memory import available_bytes
from rlcb.suite.directory import event
from rlcb.suite.jobs import CorePool, core_shares
from rlcb.suite.process import POLL_SECONDS, Child
from rlcb.suite.work import Work
from rlcb.words import counted

_MEMORY = 2**30  # bytes of an evaluation, roughly
_GPU_THREADS = 2  # of an evaluation on a GPU: they step the environments


@dataclass(frozen=True)
class _Job:
    """An evaluation in progress."""

    run: SuiteRun
    child: Child
    label: str


class Evaluations:
    """Evaluates the final checkpoint of every finished run that is not evaluated yet."""

    def __init__(self, work: Work, most: int | None = None):
        """`most`: evaluations at a time; None: as many as there are cores for."""
        self._work, self._stop, self._display = work, work.stop, work.display
        self._episodes, self._configs = work.suite.settings.eval_episodes, work.suite.configs
        finished = [run for run in work.runs if run in work.results] if self._episodes else []
        self._todo = [run for run in finished if not is_evaluated(run, self._configs[run.kind], self._episodes)]
        self._already = len(finished) - len(self._todo)
        shares = core_shares()
        self._cores, self._all = CorePool(shares), len(shares)
        self._on_gpu = bool(self._todo) and resolve_device("auto") == "cuda"
        self._most = max(min(most or self._all, available_bytes() // _MEMORY), 1)
        self._jobs: list[_Job] = []
        self._waiting = list(self._todo)
        self._begun = time.monotonic()

    def evaluate(self) -> None:
        """Do all of them; one that fails is recorded and does not stop the others."""
        if self._already:
            self._display.line(
                f"Already evaluated: {self._already} of {counted(self._already + len(self._todo), 'run')}"
            )
        while self._jobs or (self._waiting and self._stop.signal is None):
            while self._waiting and self._stop.signal is None and self._has_room(self._waiting[0]):
                self._start(self._waiting.pop(0))
            for job in list(self._jobs):
                if job.child.ended(POLL_SECONDS / len(self._jobs), self._stop):
                    self._jobs.remove(job)
                    self._cores.leave(job.run)
                    self._take_result(job)
            done = 1 - (len(self._waiting) + len(self._jobs)) / len(self._todo)
            if self._display.drawn:
                current = [f"{job.label}: {job.child.last_line()}" for job in self._jobs]
                self._display.show("Evaluation", done, self._times(), current)
            elif self._display.line_due:
                self._display.say("Evaluation", done, self._times(), [job.label for job in self._jobs])

    def _has_room(self, run: SuiteRun) -> bool:
        """Whether an evaluation can be started beside those in progress."""
        return len(self._jobs) < self._most and len(self._cores.free) >= self._claim(run)

    def _claim(self, run: SuiteRun) -> int:
        """The cores for an evaluation: as many as it has threads."""
        return min(self._threads(run), self._all)

    def _threads(self, run: SuiteRun) -> int:
        """As many as learned, or one: not the free cores of the moment, on which the last bit of a sum could depend."""
        return _GPU_THREADS if self._on_gpu else self._configs[run.kind].hardware.num_threads or 1

    def _start(self, run: SuiteRun) -> None:
        label = f"[{self._todo.index(run) + 1}/{len(self._todo)}] evaluation of {run.name}"
        levels = "both" if len(_levels(self._configs[run.kind], run.game)) > 1 else "train"
        command = ["evaluate", "--checkpoint", str(run.final_checkpoint), "--levels", levels]
        command += import_words(self._configs[run.kind])
        command += ["--num-episodes", str(self._episodes), "--num-threads", str(self._threads(run))]
        cores = self._cores.take(run, self._claim(run))
        try:
            child = Child(command, run.log, cores if self._claim(run) < self._all else ())
        except ResourceError as error:
            self._cores.leave(run)
            self._fail(run, label, str(error))
            return
        self._jobs.append(_Job(run, child, label))

    def _take_result(self, job: _Job) -> None:
        """Say how an evaluation ended; one that was interrupted is done when the suite is continued."""
        reason = job.child.reason()
        if reason is None:
            self._display.line(f"{job.label}: finished ({self._times()})")
        elif self._stop.signal is None:
            self._fail(job.run, job.label, reason)

    def _fail(self, run: SuiteRun, label: str, reason: str) -> None:
        self._work.failures[f"evaluation of {run.name}"] = reason
        event(self._work.output, "evaluation_failed", run=run.name, reason=reason)
        self._display.line(f"{label}: FAILED, {reason} ({self._times()})")

    def _times(self) -> str:
        left = len(self._waiting) + len(self._jobs)
        done = len(self._todo) - left
        if not done:
            return self._work.times(self._work.evaluation_seconds(self._todo))
        return self._work.times(left * (time.monotonic() - self._begun) / done)


def _levels(config: Config, game: str) -> tuple[str, ...]:
    """What to evaluate on: also unseen levels, where there are any."""
    return ("train", "unseen") if family_of(game).has_levels and config.env.num_levels else ("train",)


def is_evaluated(run: SuiteRun, config: Config, episodes: int) -> bool:
    """Whether the final checkpoint, identified by its hash, was evaluated on all the levels that it should be."""
    try:
        known = read_object(run.evaluation)
        digest = sha256_of(run.final_checkpoint, LARGEST_CHECKPOINT)
    except (OSError, UsageError):
        return False
    name = canonical_env_name(run.game)
    done = {
        entry.levels
        for entry in evaluations_in(known)
        if entry and (entry.env, entry.policy) == (name, "sampled") and entry.complete and entry.episodes >= episodes
    }
    return known.get("checkpoint_sha256") == digest and done.issuperset(_levels(config, run.game))
