"""What a training command says before it trains: the banner, or with `--dry-run` the whole plan and nothing else."""

import math
import shutil
from dataclasses import dataclass
from pathlib import Path

from rlcb.config.plan import Plan, make_plan
from rlcb.config.registry import ALGORITHMS
from rlcb.config.schema import Config
from rlcb.console import filled, note, say, warn
from rlcb.envs.families import family_of
from rlcb.files import nearest_existing
from rlcb.hardware import computes_bf16, usable_cpus
from rlcb.run.directory import RunDirectory, foresee_run
from rlcb.run.fit import Fit, check_fit
from rlcb.run.memory import expected_bytes
from rlcb.run.sinks import TRACKERS, want_tensorboard
from rlcb.run.space import check_space, checkpoint_bytes
from rlcb.words import counted


def print_banner(run: RunDirectory, config: Config, plan: Plan, fit: Fit, file: Path | None) -> None:
    """Print the banner of a run with the settings of `file`, after notes on what differs or will be slow."""
    _print_notes(config, run.mode, plan)
    known = {"run": run, "config": config, "plan": plan, "fit": fit, "file": file, **_known(config)}
    say(filled("train_banner.txt", **known))


def _known(config: Config) -> dict[str, object]:
    family = family_of(config.env.name)
    described = family.described(config.env)
    return {"entry": ALGORITHMS[config.algorithm], "has_levels": family.has_levels, "described": described}


def _print_notes(config: Config, mode: str, plan: Plan) -> None:
    wanted, cores = config.hardware.num_threads, usable_cpus()
    here = f"there {'is' if cores == 1 else 'are'} {counted(cores, 'usable core')}"
    turns = f"{here}; they will compete for the cores; fewer would be faster"
    if mode == "sequential" and plan.threads > cores:
        note(f"--num-threads {plan.threads}: {turns}")
    if mode == "parallel" and config.parallel.cluster is None:
        if wanted and wanted > plan.threads:
            noun = "learner" if plan.num_learners else "worker"
            note(f"--num-threads {wanted}: {here}; each {noun} gets {plan.threads}")
        for count, noun in ((plan.num_workers, ALGORITHMS[config.algorithm].worker), (plan.num_learners, "learner")):
            if count > cores:
                note(f"--num-{noun}s {count}: {turns}")
    if plan.device == "cpu" and config.hardware.compile in (True, "graphs"):
        note("compile has no effect: only runs on a GPU are compiled")
    if config.hardware.precision == "bf16" and not computes_bf16(plan.device):
        lacks = "this GPU" if plan.device == "cuda" else "this processor"
        note(f"precision bf16: {lacks} has no bf16 instructions; fp32 would be faster")


# --dry-run


@dataclass(frozen=True)
class Option:
    """How a run would be carried out."""

    config: Config
    plan: Plan
    memory: int  # bytes

    @property
    def threads_in_all(self) -> int:
        """Threads that act or learn, in all processes."""
        return self.plan.num_learners * self.plan.threads + self.plan.num_workers * self.threads_of_a_worker

    @property
    def threads_of_a_worker(self) -> int:
        """Threads of a process that acts: an actor has one, or on a GPU those of its environments."""
        groups = self.config.hardware.env_groups
        if self.plan.actor_device == "cuda" and isinstance(groups, int):
            return groups * self.plan.env_threads
        return 1 if self.plan.num_learners else self.plan.threads


@dataclass(frozen=True)
class UnknownCluster:
    """A cluster that is not connected to, as far as deciding a division needs to know it."""

    local: bool  # of this machine alone, started for the run

    def cores(self) -> int | None:
        """Those of this machine, where it is the cluster."""
        return usable_cpus() if self.local else None

    def others(self) -> int:
        """At least a core, where there are other machines."""
        return 0 if self.local else 1

    def room(self) -> int | None:
        """As much as is asked for."""
        return None


def print_plan(path: Path, config: Config, mode: str, resume: bool, file: Path | None) -> None:
    """Print what a run would do, after all that could refuse it; starts nothing, writes nothing, measures nothing."""
    prospect = foresee_run(path, config, mode, resume)
    fit = check_fit(config)
    size, keep = checkpoint_bytes(config, mode, fit), config.logging.keep_checkpoints
    check_space(prospect.checkpoints, size, keep)
    option = _option(config, mode, fit)
    if option:
        _print_notes(option.config, mode, option.plan)
    values = {
        "prospect": prospect,
        "config": config,
        "file": file,
        "mode": mode,
        "option": option,
        "begun": _begun(prospect.checkpoints, config) if resume else None,
        "updates": math.ceil(config.training.total_timesteps / config.rollout_size),
        "cores": usable_cpus(),
        "checkpoint_mb": size / 2**20,
        "disk_mb": size * (keep + 2) / 2**20,  # the final one, and one that is being written
        "free_mb": shutil.disk_usage(nearest_existing(prospect.checkpoints)).free / 2**20,
        "tensorboard": want_tensorboard(config.logging.tensorboard),
        "tracker": TRACKERS[config.logging.track].title if config.logging.track else None,
    }
    say(filled("train_plan.txt", **values, **_known(config)))


def _option(config: Config, mode: str, fit: Fit) -> Option | None:
    """How a run would be carried out; None where only a cluster's cores would tell."""
    cluster = config.parallel.cluster if mode == "parallel" else None
    pool = UnknownCluster(local=cluster == "local") if cluster is not None else None
    if pool and not pool.local and config.parallel.num_workers == "auto":
        return None
    decided, plan = make_plan(config, mode, pool)
    return Option(decided, plan, expected_bytes(decided, plan, fit.spec))


def _begun(checkpoints: Path, config: Config) -> dict[str, object]:
    """Where a run would be resumed; refuses one that has no usable checkpoint."""
    from rlcb.run.checkpoint import load_newest

    file, content = load_newest(checkpoints, config.algorithm, warn, config)
    progress, seconds = content["progress"], content["run"]["seconds"]
    return {"file": file, "env_steps": progress["env_steps"], "updates": progress["updates"], "hours": seconds / 3600}
