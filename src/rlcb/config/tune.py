"""`rlcb tune`: divisions, environments and minibatches chosen by measurement."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rlcb.config.division import largest_division
from rlcb.config.gpu_plan import most_actors
from rlcb.config.own_modules import import_words
from rlcb.config.plan import FEW_CORES, Division, divided, most_learners, rebuilt
from rlcb.config.schema import Config
from rlcb.console import say
from rlcb.disturbance.verdict import AGAIN, Disturbance
from rlcb.envs.own_code import permitted_flags
from rlcb.errors import ResourceError
from rlcb.files import read_regular, refuse_to_replace, write_whole
from rlcb.hardware import usable_cpus
from rlcb.words import counted, typed

_LARGEST_LOG = 16 * 2**20  # bytes of a trial's log
_WORTH_IT = 1.05  # a change that costs memory or alters learning must gain at least this much


def worker_counts(num_envs: int, minibatch: int, cores: int) -> list[int]:
    """Numbers of workers worth trying: powers of two and all cores, as far as environments and minibatches divide."""
    counts = {2**power for power in range(cores.bit_length()) if 2**power <= cores} | {cores}
    return sorted(count for count in counts if num_envs % count == 0 and minibatch % count == 0)


def actor_divisions(num_envs: int, unrolls: int, cores: int) -> list[Division]:
    """Actors and learners worth trying: learning is most of the work, but on few cores all of them share."""
    counts = sorted({max(cores // 4, 1), max(cores // 2, 1), min(cores, FEW_CORES)})
    actors = [count for count in counts if num_envs % count == 0] or [1]
    tried = (Division(count, most_learners(unrolls, learners)) for count in actors for learners in (1, *counts))
    return list(dict.fromkeys(tried))


def divisions(config: Config, cores: int) -> list[Division]:
    """What is worth trying for this configuration."""
    if config.parallel_execution.has_learners and config.hardware.device == "cuda":
        most = most_actors(config, cores)
        counts = (max(most // 4, 1), max(most // 2, 1), most)
        return list(dict.fromkeys(Division(largest_division(config, count), 1) for count in counts))
    if config.parallel_execution.has_learners:
        found = actor_divisions(config.env.num_envs, config.minibatch_items, cores)
        given = config.parallel.num_learners
        return list(dict.fromkeys(Division(one.workers, given or one.learners) for one in found))
    return [Division(count) for count in worker_counts(config.env.num_envs, config.minibatch_size, cores)]


def measure(config: Config, division: Division, updates: int, accept_disturbed: bool) -> float:
    """Steps per second of a real, short parallel run; ResourceError if other programs disturbed it twice."""
    for _ in range(2):
        speed, disturbance = _trial(config, division, updates)
        if accept_disturbed or not disturbance.disturbed:
            return speed
    raise ResourceError(
        f"a trial run was disturbed twice: {disturbance.words}; no result; {AGAIN}, or add --accept-disturbed"
    )


def _trial(config: Config, division: Division, updates: int) -> tuple[float, Disturbance]:
    """The speed of such a run after its first update, which is warm-up, and what other programs took of its cores."""
    length = {"total_timesteps": (updates + 1) * config.rollout_size, "duration_hours": None}
    places = {"tensorboard": False, "track": None, "checkpoint_dir": None, "log_dir": None}
    trial = rebuilt(divided(config, division), num_threads=None, **length, **places)
    with tempfile.TemporaryDirectory(prefix="rlcb-tune-") as folder:
        file, run = Path(folder) / "trial.yaml", Path(folder) / "run"
        file.write_text(trial.to_yaml())
        # Started like a suite's runs: it is killed if this process dies.
        command = [sys.executable, "-m", "rlcb.suite.process", str(os.getpid())]
        command += ["train", config.algorithm, "--mode", "parallel", *import_words(config)]
        done = subprocess.run(
            [*command, "--config", str(file), "--output-dir", str(run)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            words, why = division.words(config, usable_cpus()), done.stderr.strip().splitlines()[-1]
            why = why.partition("; traceback in ")[0]  # the trial's files, to which the rest refers, are removed
            raise ResourceError(f"a trial run with {words} failed: {why}")
        log = run / "logs" / f"{config.algorithm.upper()}_Parallel" / "metrics.jsonl"
        lines = read_regular(log, _LARGEST_LOG).splitlines()
        summary = json.loads(read_regular(run / "training_summary.json", _LARGEST_LOG))
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    speed = float((last["step"] - first["step"]) / (last["time"] - first["time"]))
    return speed, Disturbance(**summary["disturbance"])


def fastest_division(config: Config, updates: int, accept_disturbed: bool) -> tuple[Division, float]:
    """The fastest division of this configuration here, and its speed; prints what is measured."""
    cores = usable_cpus()
    # The actors' first rollouts arrive all at once: the lasting speed shows a few updates later.
    updates = 3 * updates if config.parallel_execution.has_learners else updates
    say(f"Measuring on {counted(cores, 'core')} ({counted(config.env.num_envs, 'environment')} in total):")
    speeds: dict[Division, float] = {}
    for division in divisions(config, cores):
        speeds[division] = measure(config, division, updates, accept_disturbed)
        say(f"  {division.words(config, cores)}: {speeds[division]:,.0f} FPS")
    best = max(speeds, key=lambda division: speeds[division])
    say(f"Chosen: {best.words(config, cores)}, the fastest")
    return best, speeds[best]


def tune(config: Config, output: Path, updates: int, accept_disturbed: bool) -> int:
    """Workers and threads, then environments, then the minibatch, each by measurement; writes a ready configuration."""
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        refuse_to_replace(output)
    except OSError as error:
        raise ResourceError(f"--output {output}: cannot be written: {error.strerror}") from None
    division, speed = fastest_division(config, updates, accept_disturbed)
    best = divided(config, division)
    say("Trying more environments and larger minibatches (these affect learning, so they must pay off in speed):")
    for key, values in (
        ("num_envs", [best.env.num_envs * 2, best.env.num_envs * 4]),
        ("batch_size", [best.minibatch_size * 2, best.minibatch_size * 4]),
    ):
        for value in values:
            trial = rebuilt(best, **{key: value, "num_envs_per_worker": None})
            if trial.minibatch_size < trial.training.batch_size:
                break
            found = measure(trial, division, updates, accept_disturbed)
            keep = found > _WORTH_IT * speed
            say(f"  {key} {value}: {found:,.0f} FPS, {'kept' if keep else 'no gain'}")
            if not keep:
                break
            best, speed = trial, found
    text = f"# Tuned on this machine by `rlcb tune`: {speed:,.0f} FPS.\n{best.to_yaml()}"
    write_whole(output, text.encode())
    command = typed(f"rlcb train {config.algorithm} --mode parallel --config {output}{permitted_flags()}")
    say(f"Written: {output}; use it with: {command}")
    return 0
