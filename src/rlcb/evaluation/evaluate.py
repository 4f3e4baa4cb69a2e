"""The steps of an evaluation: checks, policy, environments, episodes, results."""

from typing import TYPE_CHECKING, Any

from rlcb.config.schema import EnvConfig
from rlcb.console import filled, note
from rlcb.envs.families import family_of, make_env
from rlcb.errors import UsageError
from rlcb.evaluation.request import Request, check_request
from rlcb.evaluation.results import EvaluationFile
from rlcb.hardware import prepare_process, resolve_device
from rlcb.signals import StopRequest

if TYPE_CHECKING:  # these import torch, which must not happen before the number of threads is set
    from rlcb.evaluation.policy import LoadedPolicy


def evaluate(request: Request, titled: bool = False) -> int:
    """Check everything that can be checked, play, print and write; returns the exit code.

    `titled`: name the algorithm above the header and above the results.
    """
    stop = StopRequest("stopping; the episodes that have finished are kept")
    stop.install()
    check_request(request)
    threads = prepare_process(request.num_threads)
    import torch

    from rlcb.evaluation.evaluator import Evaluator
    from rlcb.evaluation.policy import build_policy, environment_for, find_policy, shape_words
    from rlcb.evaluation.video import show

    torch.set_num_threads(threads)
    device = resolve_device(request.device, threads)
    trained = find_policy(request.checkpoint, request.algorithm)
    env, spec = environment_for(trained, request.env)
    tracks = _tracks(request, trained, env)
    policy = build_policy(trained, spec, device)
    beside = trained.path.with_name(f"{trained.path.stem}_evaluation.json")
    file = EvaluationFile(request.output or beside, trained.header())
    evaluator = Evaluator(request, policy, spec.num_actions, device, threads, file, stop)
    window = _window(request, tracks[0][1])
    header = {"shape": shape_words(spec), "num_actions": spec.num_actions, "device": device, "titled": titled}
    stop.begin()  # from here on there are episodes to keep
    print(filled("evaluation_header.txt", request=request, trained=trained, env=env, **header), flush=True)
    if window:
        show(window, evaluator.frames(tracks[0][1]))
    title = f"{trained.algorithm.upper()} Evaluation Results" if titled else "Evaluation Results"
    for levels, config in tracks:
        evaluator.track(levels, config, title)
    evaluator.conclude(env)
    if request.video:
        evaluator.film(request.video, tracks[0][1])
    return evaluator.exit_code()


def _window(request: Request, config: EnvConfig) -> Any | None:
    """A window, if one was asked for and can be opened; None otherwise. An environment to film must be drawable."""
    from rlcb.evaluation.video import open_window

    if not request.render and not request.video:
        return None
    try:
        make_env(config, 1, seed=0, num_threads=0, pictured=True).close()
        window = open_window() if request.render else None
    except UsageError as error:
        if request.video:
            raise
        window = str(error)
    if isinstance(window, str):
        note(f"--render: no window, {window}; evaluating without it")
        return None
    return window


def _tracks(request: Request, trained: "LoadedPolicy", env: EnvConfig) -> list[tuple[str, EnvConfig]]:
    """Which levels to play, in which order."""
    if not family_of(env.name).has_levels:
        if request.levels != "train":
            raise UsageError(f"--levels {request.levels}: {env.name} has no levels to tell apart, only Procgen has")
        return [("train", env)]
    unseen = env.model_copy(update={"num_levels": 0, "start_level": 0})
    if env.name != trained.env.name:
        note(f"the policy was trained in {trained.env.name}: 'train' means the levels of the same numbers here")
    elif not env.num_levels:
        note("the run trained on all levels: train and unseen are the same")
    wanted = {"train": ["train"], "unseen": ["unseen"], "both": ["train", "unseen"]}[request.levels]
    if not env.num_levels:
        wanted = wanted[:1]
    return [(levels, unseen if levels == "unseen" else env) for levels in wanted]
