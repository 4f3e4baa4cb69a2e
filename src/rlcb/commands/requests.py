"""From arguments, of a command line or of a call from Python, to what is asked for."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rlcb.commands.keys import overrides_of, permit_named
from rlcb.config.registry import ALGORITHMS
from rlcb.console import note
from rlcb.errors import UsageError
from rlcb.flags import flag_of

if TYPE_CHECKING:  # quick_test.py runs without pydantic
    from rlcb.run.request import Request

MOST_SEEDS = 100  # that --num-seeds takes
AUTO = "auto"  # of --resume; a directory of that name is ./auto
OnUpdate = Callable[[dict[str, Any]], object]


def train_request(
    prog: str,
    arguments: argparse.Namespace,
    named: Callable[[str], str] = flag_of,
    on_update: OnUpdate | None = None,
) -> "Request":
    """What `rlcb train` is asked for; `named`: what messages call a key."""
    if arguments.algorithm is None and arguments.resume in (None, AUTO):
        raise UsageError(f"no algorithm given; choose one of {', '.join(ALGORITHMS)}")
    if arguments.duration_hours is not None and arguments.total_timesteps is not None:
        raise UsageError(f"{named('duration_hours')} and {named('total_timesteps')} cannot be used together")
    mode = arguments.mode or (ALGORITHMS[arguments.algorithm].modes[0] if arguments.resume is None else None)
    return request_of(prog, arguments, arguments.algorithm, mode, named, on_update)


def request_of(
    prog: str,
    arguments: argparse.Namespace,
    algorithm: str | None,
    mode: str | None,
    named: Callable[[str], str] = flag_of,
    on_update: OnUpdate | None = None,
) -> "Request":
    """What a training command of this algorithm and mode is asked for."""
    from rlcb.run.request import Request

    auto = arguments.resume == AUTO
    usual = ALGORITHMS[algorithm].modes[0] if auto and algorithm else None
    overrides = overrides_of(arguments, algorithm, mode or usual, named)
    where = (arguments.config, arguments.output_dir, None if auto else arguments.resume)
    return Request(
        prog, algorithm, mode, overrides, *where, dry_run=arguments.dry_run, resume_auto=auto, on_update=on_update
    )


def suite_request(arguments: argparse.Namespace, named: Callable[[str], str] = flag_of) -> dict[str, Any]:
    """What `rlcb benchmark` is asked for, as arguments of the function of that name."""
    from rlcb.config.yaml_file import parse_scalar

    given = {key: value for key, value in vars(arguments).items() if value is not None}
    if imports := permit_named(given):
        given["imports"] = imports
    seeds = {"seeds": (named("num_seeds"), list(range(1, number + 1)))} if (number := given.pop("num_seeds", 0)) else {}
    if seeds and "seeds" in given:
        raise UsageError(f"{named('seeds')} and {named('num_seeds')} cannot be used together")
    places = {"output": given.pop("output_dir"), "file": given.pop("suite", None), "dry_run": given.pop("dry_run")}
    how = {"jobs": given.pop("jobs", None), "repeat_disturbed": given.pop("repeat_disturbed")}

    def read(value: Any) -> Any:
        return parse_scalar(value) if isinstance(value, str) else value

    values = {k: [read(one) for one in v] if isinstance(v, list) else read(v) for k, v in given.items()}
    _note_single_seed(values.get("seeds", []), named)
    return {**places, **how, "flags": {**{key: (named(key), value) for key, value in values.items()}, **seeds}}


def _note_single_seed(seeds: list[Any], named: Callable[[str], str]) -> None:
    """Say what a single seed means where a number of seeds may have been meant."""
    if len(seeds) == 1 and isinstance(seeds[0], int) and 1 < seeds[0] <= MOST_SEEDS:
        number = seeds[0]
        note(
            f"{named('seeds')} {number}: the one seed {number}; {named('num_seeds')} {number} gives seeds 1 to {number}"
        )
