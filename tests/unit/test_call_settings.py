"""The parameters of `import rlcb`: names and types are those of the flags and of the schema, which are not repeated.

A type checker sees only what is written down, so `rlcb.api.settings` writes it down, and this compares it.
"""

import argparse
import inspect
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from pydantic.fields import FieldInfo

import rlcb
from rlcb.api.settings import BenchmarkSettings, CompareSettings, EvaluateSettings, TrainSettings
from rlcb.commands.keys import ALIASES
from rlcb.commands.other import compare_parser, evaluate_parser
from rlcb.commands.training import benchmark_parser, train_parser
from rlcb.config.registry import ALGORITHMS, MODES
from rlcb.config.schema import all_keys
from rlcb.config.values import alternatives, extra
from rlcb.errors import UsageError
from rlcb.flags import Parser, flag_of, parameter_of
from rlcb.suite.keys import PASSED_ON
from rlcb.suite.schema import SuiteConfig

# Every difference between a command and the function of its name, with its reason.
NOT_IN_CALLS = {
    ("train", "dry_run"): "a call that does nothing has nothing to return",
    ("benchmark", "dry_run"): "a call that does nothing has nothing to return",
    ("compare", "watch"): "keeps a page current until all runs are done: a program of its own",
}
NOT_IN_COMMANDS = {
    ("train", "on_update"): "a function",
    ("train", "quiet"): "commands are quiet through > /dev/null",
    ("evaluate", "quiet"): "commands are quiet through > /dev/null",
    ("benchmark", "quiet"): "commands are quiet through > /dev/null",
}
OTHER_NAMES = {("compare", "runs"): "paths"}
OTHER_TYPES = {
    ("train", "total_timesteps"): "int | None: None where a duration is given, as in a suite",
    ("evaluate", "algorithm"): "str: the registry is the one list of algorithms",
    ("compare", "reward_threshold"): "one or several rewards, or the word for published ones",
    ("benchmark", "config"): "a path: one file for each kind of run is a matter of suite files",
    ("benchmark", "variants"): "names of the suite file's variants, whose settings are in the file",
}
PARSERS: dict[str, Callable[[], Parser]] = {
    "train": lambda: train_parser([]),
    "evaluate": evaluate_parser,
    "compare": compare_parser,
    "benchmark": benchmark_parser,
}
SETTINGS = {
    "train": TrainSettings,
    "evaluate": EvaluateSettings,
    "compare": CompareSettings,
    "benchmark": BenchmarkSettings,
}
PATH = {str, PathLike[str]}


def parameters(command: str) -> set[str]:
    """The names that a function takes, those of its settings included."""
    named = inspect.signature(getattr(rlcb, command)).parameters
    return {*named, *get_type_hints(SETTINGS[command])} - {"settings"}


def actions(command: str) -> dict[str, argparse.Action]:
    """What a command's parser takes, hidden flags included, by the name that a call would have."""
    found = {}
    for action in PARSERS[command]()._actions:
        flags = [flag for flag in action.option_strings if flag.startswith("--")]
        name = flags[-1].removeprefix("--").replace("-", "_") if flags else action.dest
        found["imports" if name == "import" else name] = action
    del found["help"]
    return found


def atoms(kind: Any) -> set[Any]:
    """The alternatives of a type, each value of a Literal for itself; str includes the texts."""
    if get_origin(kind) is Literal:
        return {*get_args(kind)}
    found = {kind} if get_origin(kind) in (Sequence, PathLike) or not get_args(kind) else set[Any]()
    for part in () if found else get_args(kind):
        found |= atoms(part)
    return {one for one in found if not (isinstance(one, str) and str in found)}


def types_of_field(field: FieldInfo) -> set[Any]:
    """What a call may pass for a key of the schema.

    None stands for the default; where the default is something else, null is the text "null", as on the command line.
    """
    if get_origin(field.annotation) is list:
        (inner,) = {kind for kind, _ in alternatives(field)} or {str}
        return {Sequence[inner]}  # type: ignore[valid-type]
    found: set[Any] = set()
    for kind, _ in alternatives(field):
        found |= atoms(kind)
    if NoneType in found and field.default is not None:
        found = {*found - {NoneType}, "null"}
    more = {"HOURS": {str}, "DIR": PATH}.get(extra(field, "metavar") or "", set())
    return {one for one in found | more if not (isinstance(one, str) and str in found | more)}


def types_of_action(action: argparse.Action) -> set[Any]:
    """What a call may pass for a flag that is no key of the schema."""
    if action.nargs == 0:
        return {bool}
    if isinstance(action, argparse._AppendAction):
        return {Sequence[str]}
    found: set[Any] = {*action.choices} if action.choices else {str}
    if callable(action.type):
        try:
            read = action.type("7")
            found = PATH if isinstance(read, Path) else {type(read)}
        except argparse.ArgumentTypeError:  # no configuration has this name
            found = PATH
    auto: set[Any] = {"auto"} if "auto" in str(action.metavar) else set()
    return found | auto | ({NoneType} if action.default is None else set())


def expected_types(command: str) -> Iterator[tuple[str, set[Any]]]:
    """The types of each parameter of a function that a command has, too."""
    keys, of_suite = all_keys(), SuiteConfig.model_fields
    for name, action in actions(command).items():
        key = ALIASES.get(action.dest, action.dest)
        if command == "benchmark" and key in of_suite:
            yield name, types_of_field(of_suite[key])
        elif command in ("train", "benchmark") and key in keys:
            yield name, types_of_field(keys[key])
        else:
            yield name, types_of_action(action)


@pytest.mark.parametrize("command", PARSERS)
def test_a_function_takes_what_its_command_takes(command: str) -> None:
    calls = {OTHER_NAMES.get((command, name), name) for name in parameters(command)}
    only_calls, only_commands = calls - {*actions(command)}, {*actions(command)} - calls
    print(f"rlcb.{command} alone: {sorted(only_calls)}; rlcb {command} alone: {sorted(only_commands)}")
    assert only_calls == {name for where, name in NOT_IN_COMMANDS if where == command}
    assert only_commands == {name for where, name in NOT_IN_CALLS if where == command}


def test_every_key_is_a_parameter_of_the_same_name() -> None:
    of_train, of_benchmark = get_type_hints(TrainSettings), get_type_hints(BenchmarkSettings)
    assert {parameter_of(key) if key != "imports" else key for key in (*all_keys(), *ALIASES)} <= {*of_train}
    assert {parameter_of(key) if key != "imports" else key for key in PASSED_ON} <= {*of_benchmark}
    for algorithm in ALGORITHMS:  # the parsers of all algorithms take the same, also what they do not list
        known = {flag for action in train_parser([algorithm])._actions for flag in action.option_strings}
        assert {flag_of(key) for key in (*all_keys(), *ALIASES)} <= known


@pytest.mark.parametrize("command", PARSERS)
def test_types_are_those_of_schema_and_flags(command: str) -> None:
    written = {name: atoms(kind) for name, kind in get_type_hints(SETTINGS[command]).items()}
    other = {
        name: (written[name], kinds)
        for name, kinds in expected_types(command)
        if name in written and written[name] != kinds
    }
    print(f"rlcb.{command}: other types than the schema's: {other}")
    assert {*other} == {name for where, name in OTHER_TYPES if where == command}


def test_modes_and_algorithms_are_texts_that_the_call_checks() -> None:
    assert train_parser([]).take({"algorithm": "a2c", "mode": MODES[-1]}).mode == MODES[-1]
    with pytest.raises(UsageError, match="algorithm: 'a9c' is not valid; must be one of ppo, "):
        rlcb.train("a9c")


def test_null_is_said_where_none_means_the_default() -> None:
    from rlcb.commands.requests import train_request

    given = {"algorithm": "ppo", "save_every_minutes": "null", "num_threads": None}
    arguments = train_parser(["ppo"]).take(given, ("dry_run",))
    arguments.dry_run = False
    overrides = train_request("rlcb train", arguments).overrides
    assert {key: value for key, (_, value) in overrides.items()} == {"save_every_minutes": None}
