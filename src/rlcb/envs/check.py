"""Whether an environment can be trained in, a line for each finding. Its code runs in processes that are watched.

One process makes it, plays whole episodes and compares copies with each other (`check_process`); then as many as there
are cores make it at the same time.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import psutil

from rlcb.disturbance.verdict import AGAIN
from rlcb.disturbance.watch import Watch
from rlcb.envs.base import EnvSettings, EnvSpec
from rlcb.envs.check_process import SPEED_SECONDS, Facts
from rlcb.envs.conformity import Finding, failure
from rlcb.envs.state_trial import plain
from rlcb.envs.watched import Lost, Watched
from rlcb.errors import RlcbError
from rlcb.hardware import prepare_process, usable_cpus
from rlcb.words import GOOD, WARNING

_PROGRAM = "rlcb.envs.check_process"
_PATIENCE = 20.0  # seconds without a sign of life: it hangs
_FIRST_SECONDS = 40.0  # that the first process may take, so that all is done in a minute
_MEMORY_SHARE = 0.7  # of what is free may be taken by processes


def check(settings: EnvSettings, modules: Sequence[str], patience: float = _PATIENCE) -> Iterator[Finding | EnvSpec]:
    """Check the environment that these modules register; UsageError if it does not exist or a module fails.

    What policies need to know of it comes as soon as it is known. `patience`: seconds after which a call that does not
    return is given up.
    """
    prepare_process(1)  # for the processes that are started here
    until = time.monotonic() + _FIRST_SECONDS
    setup: dict[str, Any] = {"settings": plain(settings), "modules": list(modules)}
    facts: Facts | None = None
    doing = "Environment"
    with Watched(_PROGRAM, setup) as process:
        while facts is None:
            try:
                message = process.receive(min(patience, until - time.monotonic()))
            except Lost as lost:
                yield _lost(doing, lost, patience, until)
                return
            if isinstance(message, RlcbError):
                raise message
            if message is None:  # there was a failure
                return
            if isinstance(message, Finding | EnvSpec):
                yield message
            elif isinstance(message, str):
                doing = message or doing
            else:
                facts = message
    yield from _in_processes(setup, facts, patience)


def _lost(doing: str, lost: Lost, patience: float, until: float) -> Finding:
    """What is said of a process that does not answer."""
    if not lost.hangs:
        return failure(doing, f"the process was {lost}")
    if time.monotonic() >= until:
        return Finding(WARNING, doing, f"too slow to be checked in a minute (now{lost}); the rest is not checked")
    return failure(doing, f"hangs{lost}: no answer for {patience:g} s")


def _in_processes(setup: dict[str, Any], facts: Facts, patience: float) -> Iterator[Finding]:
    """Whether several processes can make it at once, whether it is the same there, and how fast they are together."""
    fitting = int(_MEMORY_SHARE * psutil.virtual_memory().available / max(facts["memory"], 1))
    number = max(2, min(usable_cpus(), fitting))
    alone = f"one copy makes {_rate_text(facts['speed'])}"
    with ExitStack() as stack:
        workers = [stack.enter_context(Watched(_PROGRAM, {**setup, "steps": facts["steps"]})) for _ in range(number)]
        digests, problems = _answers(workers, patience)
        watch = Watch()
        watch.look()
        for worker in workers:
            worker.send("go")
        rates, slower = _answers(workers, SPEED_SECONDS + patience) if not problems else ([], [])
        watch.look()
    if problems := problems or slower:
        text = f"{len(problems)} of {number} cannot make or step it at the same time: {problems[0]}"
        yield Finding(WARNING, "Processes", f"{text}; train it with --mode sequential")
        yield Finding(GOOD, "Speed", alone)
        return
    others = sum(digest != facts["digest"] for digest in digests) if facts["digest"] else 0
    if others:
        text = f"in {others} of {number} the same seed gives other episodes than in the first; nothing may depend on "
        yield Finding(WARNING, "Processes", f"{text}the process, such as its number, its start or hash()")
    else:
        same = " and play the same episodes" if facts["digest"] else ""
        yield Finding(GOOD, "Processes", f"{number} make it at the same time{same}")
    together = sum(rates)
    text = (
        f"{alone}, {number} processes with a copy each {_rate_text(together)} ({together / facts['speed']:.1f} times)"
    )
    found = watch.verdict()
    beside = f"; measured too low: {found.words}; {AGAIN}" if found.disturbed else ""
    yield Finding(WARNING if beside else GOOD, "Speed", text + beside)


def _answers(workers: Sequence[Watched], patience: float) -> tuple[list[Any], list[str]]:
    """What each process answers, and what is wrong with those that do not."""
    until = time.monotonic() + patience
    answers, problems = [], []
    for worker in workers:
        try:
            message = worker.receive(until - time.monotonic())
        except Lost as lost:
            problems.append(f"one hangs{lost}" if lost.hangs else f"one was {lost}")
            continue
        if isinstance(message, RlcbError):
            problems.append(str(message))
        else:
            answers.append(message)
    return answers, problems


def _rate_text(speed: float) -> str:
    return f"{speed:,.0f} steps/s" if speed >= 10 else f"{speed:.2g} steps/s"
