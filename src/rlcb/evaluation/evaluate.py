"""What an evaluation is asked to do, and its steps: checks, policy, environments, episodes, results."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcb.console import filled, note, say
from rlcb.envs.families import family_of, make_env
from rlcb.envs.own_code import load
from rlcb.errors import OwnCodeFailed, ResourceError, RlcbError, UsageError
from rlcb.files import refuse_to_replace
from rlcb.hardware import cuda_problem, describe_gpus, prepare_process, resolve_device, usable_cpus
from rlcb.run.gpu_failures import gpu_failures
from rlcb.run.own_failures import TRACEBACK, own_failures, write_traceback
from rlcb.run.tracking import add_video
from rlcb.signals import StopRequest
from rlcb.words import counted

if TYPE_CHECKING:  # `--help` need not wait for these, and the number of threads is set before torch is imported
    from rlcb.config.environment import EnvConfig
    from rlcb.evaluation.policy import LoadedPolicy
    from rlcb.evaluation.results import Evaluated

# A fixed seed, other than training's default. Random numbers come in streams apart from training's, so that a run with
# this very seed is not evaluated on its own training episodes either.
DEFAULT_SEED = 1_000_000
ANSWER = "stopping; finished episodes are kept"  # to a signal


@dataclass(frozen=True)
class Request:
    """What to evaluate and how."""

    checkpoint: Path | None = None
    algorithm: str | None = None
    env: str | None = None
    imports: Sequence[str] = ()  # modules of the user's own, which were permitted when the command was read
    num_episodes: int = 100
    num_envs: int | None = None
    deterministic: bool = False
    levels: str = "train"
    seed: int = DEFAULT_SEED
    device: str = "auto"
    num_threads: int | None = None
    render: bool = False
    video: Path | None = None
    output: Path | None = None

    @property
    def policy(self) -> str:
        """How actions are chosen: deterministic or sampled."""
        return "deterministic" if self.deterministic else "sampled"


def evaluate(request: Request, stop: StopRequest, titled: bool = False) -> "Evaluated":
    """Check what can be checked, play, print (`titled`: with titles that name the algorithm) and write the results.

    `stop`: what signals mean meanwhile.
    """
    with gpu_failures("fewer --num-envs, or --device cpu"):
        return _evaluate(request, stop, titled)


def _evaluate(request: Request, stop: StopRequest, titled: bool) -> "Evaluated":
    stop.install()
    _check_request(request)
    if request.num_threads and request.num_threads > usable_cpus():
        cores = counted(usable_cpus(), "usable core")
        note(f"--num-threads {request.num_threads}: more than the {cores}; fewer would be faster")
    threads = prepare_process(request.num_threads)
    import torch

    from rlcb.evaluation.play import Evaluator
    from rlcb.evaluation.policy import build_policy, environment_for, find_policy, shape_words
    from rlcb.evaluation.results import Evaluated, EvaluationFile, as_results
    from rlcb.evaluation.video import show

    torch.set_num_threads(threads)
    device = _device(request, threads)
    for module in request.imports:
        load(module)
    trained = find_policy(request.checkpoint, request.algorithm)
    env, spec = environment_for(trained, request.env)
    tracks = _tracks(request, trained, env)
    policy = build_policy(trained, spec, device)
    beside = trained.path.with_name(f"{trained.path.stem}_evaluation.json")
    kept = {name: getattr(trained, name) for name in ("algorithm", "mode", "env_steps")}
    about = {"checkpoint": trained.path.name, "checkpoint_sha256": trained.sha256, **kept}
    file = EvaluationFile(request.output or beside, about)
    evaluator = Evaluator(request, policy, spec, device, threads, file, stop)
    window = _window(request, tracks[0][1])
    described = family_of(env.name).described(env)
    header = {"shape": shape_words(spec), "spec": spec, "device": device, "titled": titled, "described": described}
    stop.begin()  # from here on there are episodes to keep
    say(filled("evaluation_header.txt", request=request, trained=trained, env=env, **header))
    title = f"{trained.algorithm.upper()} Evaluation Results" if titled else "Evaluation Results"
    try:
        with own_failures(env.name, trained.training.network):
            if window:
                show(window, evaluator.frames(tracks[0][1]))
            for levels, config in tracks:
                evaluator.track(levels, config, title)
            gap = evaluator.conclude(env)
            filmed = request.video is not None and evaluator.film(request.video, tracks[0][1])
    except OwnCodeFailed as failure:
        where = write_traceback(file.path.with_name(f"{file.path.stem}_{TRACEBACK}"), failure)
        raise OwnCodeFailed(f"{failure}{where}", failure.kind, failure.traceback) from failure.__cause__
    if request.video is not None and filmed:
        add_video(trained.path, request.video, trained.env_steps)
    results = tuple(as_results(one) for one in evaluator.results)
    return Evaluated(trained.path, file.path, results, gap, evaluator.signal())


def _device(request: Request, threads: int) -> str:
    """`cpu` or `cuda`; a note says why `auto` does not take the GPU of a machine that has one."""
    if request.device != "auto":
        return resolve_device(request.device, threads)
    problem = cuda_problem(threads)
    if problem is not None and describe_gpus()["gpus"]:
        note(f"--device auto selects the CPU: {problem}")
    return "cuda" if problem is None else "cpu"


def _check_request(request: Request) -> None:
    """Raise an error for what would fail only after all episodes were played."""
    if request.num_envs is not None and request.num_envs > request.num_episodes:
        raise UsageError(
            f"--num-envs {request.num_envs}: more than the {counted(request.num_episodes, 'episode')}; "
            "at most one per episode"
        )
    if request.video:
        from rlcb.evaluation.video import check_encoder

        _check_writable("--video", request.video)
        check_encoder(request.video)
    if request.output:
        _check_writable("--output", request.output)


def _check_writable(flag: str, path: Path) -> None:
    """Raise an error if the file cannot be written."""
    if not os.path.isdir(path.parent):
        raise UsageError(f"{flag} {path}: no such directory: {path.parent}")
    try:
        refuse_to_replace(path)
    except OSError as error:
        raise UsageError(f"{flag} {path}: is {error.strerror}") from None
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ResourceError(f"{flag} {path}: cannot be written: {error.strerror}") from None


def _window(request: Request, config: "EnvConfig") -> Any | None:
    """A window, if one was asked for and can be opened; None otherwise. An environment to film must be drawable."""
    from rlcb.evaluation.video import open_window

    if not request.render and not request.video:
        return None
    try:
        make_env(config, 1, seed=0, num_threads=0, pictured=True).close()
        return open_window() if request.render else None
    except RlcbError as error:
        if request.video and isinstance(error, UsageError):
            raise
        note(f"--render: no window: {error}; continuing without it")
        return None


def _tracks(request: Request, trained: "LoadedPolicy", env: "EnvConfig") -> list[tuple[str, "EnvConfig"]]:
    """Which levels to play, in which order."""
    if not family_of(env.name).has_levels:
        if request.levels != "train":
            raise UsageError(f"--levels {request.levels}: {env.name} has no levels; only Procgen games have")
        return [("train", env)]
    unseen = env.model_copy(update={"num_levels": 0, "start_level": 0})
    if env.name != trained.env.name:
        note(f"the policy was trained in {trained.env.name}; here 'train' means the levels with the same numbers")
    elif not env.num_levels:
        note("the run trained on all levels, so training and unseen levels are the same")
    wanted = {"train": ["train"], "unseen": ["unseen"], "both": ["train", "unseen"]}[request.levels]
    if not env.num_levels:
        wanted = wanted[:1]
    return [(levels, unseen if levels == "unseen" else env) for levels in wanted]
