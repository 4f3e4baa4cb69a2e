"""One timed run of CleanRL's ppo_procgen.py; perf/peers.py starts it with the Python that its packages are in.

The file of the given checkout is run as it is, with its own flags, but for three things: its network (class Agent) is
replaced by the Nature CNN, the number of levels is 200 instead of all, and its log tells the clock when an update ends.
"""

import ast
import os
import sys
import types
from pathlib import Path
from typing import Any

import procgen
import torch
from torch import Tensor, nn
from torch.distributions.categorical import Categorical
from torch.utils import tensorboard

from peer_games import EpisodeLog
from peer_network import FEATURES, NatureBody
from peer_work import (
    DISTRIBUTION,
    GAME,
    NUM_ACTIONS,
    NUM_LEVELS,
    WORK,
    Clock,
    PeakMemory,
    add_log_options,
    print_result,
    refuse_other_size,
    worker_options,
)

_END_OF_UPDATE = "charts/SPS"  # the last number that the file logs in an update


class Enough(Exception):
    """Enough is timed."""


class Agent(nn.Module):
    """The Nature CNN with the methods that the file calls."""

    def __init__(self, envs: Any) -> None:
        super().__init__()
        self.body = NatureBody()
        self.policy, self.value = nn.Linear(FEATURES, NUM_ACTIONS), nn.Linear(FEATURES, 1)
        if envs.single_action_space.n != NUM_ACTIONS:
            raise SystemExit(f"the game has {envs.single_action_space.n} actions, not {NUM_ACTIONS}")
        refuse_other_size(sum(parameter.numel() for parameter in self.parameters()))

    def get_value(self, pictures: Tensor) -> Tensor:
        """Values [B, 1]."""
        values: Tensor = self.value(self.body(pictures))
        return values

    def get_action_and_value(
        self, pictures: Tensor, action: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Actions (drawn, unless given), their log-probabilities, entropies and values [B, 1]."""
        features = self.body(pictures)
        policy: Any = Categorical(logits=self.policy(features))
        chosen = policy.sample() if action is None else action
        return chosen, policy.log_prob(chosen), policy.entropy(), self.value(features)


def module_of(file: Path) -> types.CodeType:
    """The compiled file without its class Agent."""
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    kept = [node for node in tree.body if not (isinstance(node, ast.ClassDef) and node.name == "Agent")]
    if len(kept) != len(tree.body) - 1:
        raise SystemExit(f"{file}: expected one class Agent; this is not the ppo_procgen.py that was meant")
    tree.body = kept
    return compile(tree, str(file), "exec")


def logged(games: Any, log: EpisodeLog) -> Any:
    """The games with a log of all their episodes: the file's own leaves out some that end in the same step."""
    step_wait = games.step_wait

    def step_and_log() -> Any:
        found = step_wait()
        log.step(found[1], found[2])
        return found

    games.step_wait = step_and_log
    return games


def run(file: Path, clock: Clock, seed: int, log: Path | None) -> None:
    """Run the file until enough is timed; its own logs go below the current folder."""
    work, make_games = clock.work, procgen.ProcgenEnv
    code = module_of(file)

    class TimedWriter(tensorboard.SummaryWriter):
        """The file's log; ends the run once enough is timed."""

        def add_scalar(self, tag: Any, scalar_value: Any, global_step: Any = None, *others: Any, **more: Any) -> None:
            super().add_scalar(tag, scalar_value, global_step, *others, **more)
            if tag == _END_OF_UPDATE and clock.update_ended(global_step):
                raise Enough

    def games(**settings: Any) -> Any:
        made = make_games(**{**settings, "num_levels": NUM_LEVELS, "distribution_mode": DISTRIBUTION})
        return made if log is None else logged(made, EpisodeLog(log / "monitor.csv", work.num_envs))

    flags = {
        "env-id": GAME,
        "num-envs": work.num_envs,
        "num-steps": work.n_steps,
        "num-minibatches": work.steps_per_update // work.batch_size,
        "update-epochs": work.n_epochs,
        "learning-rate": work.learning_rate,
        "gamma": work.gamma,
        "gae-lambda": work.gae_lambda,
        "total-timesteps": 10**10,
        "seed": seed,
    }
    setattr(tensorboard, "SummaryWriter", TimedWriter)  # noqa: B010
    procgen.ProcgenEnv = games
    sys.argv = [str(file), "--no-cuda", *(f"--{name}={value}" for name, value in flags.items())]
    # The file is the main module to itself; its functions and flags look their names up there.
    main_module = types.ModuleType("__main__")
    main_module.__dict__.update(__file__=str(file), Agent=Agent)
    sys.modules["__main__"] = main_module
    try:
        exec(code, main_module.__dict__)
    except Enough:
        return


def main() -> None:
    """Train until enough is timed, then print the JSON line."""
    parser = worker_options("CleanRL", ("ppo",))
    parser.add_argument("--file", type=Path, required=True, help="cleanrl/ppo_procgen.py of a checkout")
    add_log_options(parser)
    options = parser.parse_args()
    clock = Clock(WORK[options.algorithm], options.seconds, options.total_timesteps)
    with PeakMemory.of(os.getpid()) as peak:
        run(options.file.absolute(), clock, options.seed, options.log)
    print_result(
        clock,
        peak,
        ("torch", "numpy", "gym", "tyro", "tensorboard", "procgen-mirror"),
        settings={"torch_threads": torch.get_num_threads()},
    )


if __name__ == "__main__":
    main()
