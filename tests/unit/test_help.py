"""Help: what each command lists, with defaults; and which flags an algorithm takes."""

import argparse
import re
from pathlib import Path

import pytest

from helpers.in_process import rlcb_here
from helpers.processes import ROOT
from rlcb.commands import other, training
from rlcb.commands.keys import ALIASES, FIXED_KEYS, peek
from rlcb.commands.overview import VERBS
from rlcb.config import named
from rlcb.config.load import build_config
from rlcb.config.registry import ALGORITHMS, MODES
from rlcb.config.schema import all_keys, fields
from rlcb.config.section import GROUPS
from rlcb.config.values import value_text
from rlcb.flags import Parser, flag_of
from rlcb.suite.settings import read_settings

PARSERS = {
    "train": lambda: training.train_parser([]),
    **{f"train {name}": lambda name=name: training.train_parser([name]) for name in ALGORITHMS},
    **{f"limits {name}": lambda name=name: training.limits_parser([name]) for name in ALGORITHMS},
    "benchmark": training.benchmark_parser,
    "tune": training.tune_parser,
    "evaluate": other.evaluate_parser,
    "evaluate.py": lambda: other.evaluate_parser("evaluate.py", universal=False),
    "compare": other.compare_parser,
    "compare_results.py": lambda: other.compare_script_parser("compare_results.py"),
    "status": other.status_parser,
    "doctor": other.doctor_parser,
    "completion": other.completion_parser,
    "train_timed.py": lambda: training.script_parser("train_timed.py", "ppo", "sequential", timed=True),
    "train_impala_parallel.py": lambda: training.script_parser("p", "impala", "parallel", timed=False),
}


def entries(text: str) -> dict[str, str]:
    """The flags that help lists, each with all that is said of it."""
    found: dict[str, str] = {}
    flag = ""
    for line in text.splitlines():
        begins = re.match(r"  (?:-h, )?(--[\w-]+)", line)
        if begins:
            flag = begins[1]
            found[flag] = ""
        elif not line.startswith(" " * 8):
            flag = ""
        if flag:
            found[flag] += " " + line.strip()
    return found


def shown(*arguments: str) -> str:
    done = rlcb_here(*arguments, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_lists_what_it_has_with_the_defaults_of_its_files(algorithm: str, mode: str) -> None:
    if mode not in ALGORITHMS[algorithm].modes:
        pytest.skip(f"{algorithm} has no mode {mode}")
    configs = {
        one: build_config(ROOT / "config" / f"{algorithm}_{one}.yaml", {}, mode=one, algorithm=algorithm)
        for one in ALGORITHMS[algorithm].modes
    }
    listed = entries(shown("train", algorithm, "--mode", mode))
    known = {key: section for section, key, _ in fields(algorithm)}
    for key, section in known.items():
        config = configs["parallel" if section == "parallel" else mode]
        default = value_text(getattr(getattr(config, section), key))
        if (key, mode) != ("num_envs", "parallel"):
            assert listed[flag_of(key)].endswith(f"(default {default})"), listed[flag_of(key)]
    assert listed["--num-envs"].endswith("alias of --num-envs-per-worker") == (mode == "parallel")
    aliases = [name for name in ALIASES if name in ALGORITHMS[algorithm].aliases]
    own = {"--help", "--mode", "--config", "--output-dir", "--resume", "--dry-run"}
    assert set(listed) == {*own, *map(flag_of, (*known, *aliases))}


def test_ppo_lists_nothing_of_other_algorithms() -> None:
    listed = entries(shown("train", "ppo"))
    foreign = set(all_keys()) - {key for _, key, _ in fields("ppo")}
    assert {"num_slots", "vtrace_clip_c_threshold"} < foreign
    assert not {flag_of(key) for key in (*foreign, *ALIASES)} & set(listed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "ppo", "--num-slots", "3"], ["--num-slots", "ppo has no such setting", "impala"]),
        (["train", "--num-slots", "3", "ppo"], ["--num-slots", "ppo has no such setting", "impala"]),
        (["train", "a3c", "--clip-range", "0.1"], ["--clip-range", "a3c has no such setting", "it belongs to ppo"]),
        (["train", "a2c", "--batch-size", "64"], ["--batch-size", "a2c has no such setting", "ppo and impala"]),
        (["limits", "a2c", "--batch-size", "64"], ["--batch-size", "a2c has no such setting", "ppo and impala"]),
        (["train", "ppo", "--mode", "parallel", "--num-actors", "2"], ["--num-actors", "impala", "--num-workers"]),
    ],
)
def test_a_flag_of_another_algorithm_names_those_that_have_it(arguments: list[str], words: list[str]) -> None:
    rlcb_here(*arguments).assert_one_line_error(2, *words)


@pytest.mark.parametrize("name", PARSERS)
def test_every_argument_of_every_command_has_help_a_group_and_a_metavar(name: str) -> None:
    parser: Parser = PARSERS[name]()
    text = parser.format_help()
    assert "VALUE" not in text
    for action in parser.shown():
        assert action.help, action
        assert action.nargs == 0 or action.choices or action.metavar, action
    grouped = {id(action) for group in parser._action_groups[2:] for action in group._group_actions}
    loose = [a for a in parser.shown() if id(a) not in grouped and not isinstance(a, argparse._HelpAction)]
    assert not loose
    defaults = entries(text)
    for action in parser.shown():
        given = action.default is not False and action.default not in (None, [], argparse.SUPPRESS)
        if action.option_strings and given:
            assert f"(default {action.default})" in defaults[action.option_strings[-1]]


def test_groups_are_the_schemas_and_in_its_order() -> None:
    titles = re.findall(r"^([\w &]+)(?: \(\w+\))?:$", shown("train", "ppo"), re.MULTILINE)
    assert titles[-len(GROUPS) :] == list(GROUPS)


def test_the_overview_has_every_verb_with_an_example() -> None:
    text = shown()
    for name, verb in VERBS.items():
        assert f"  {name:<11} {verb.summary}\n              $ {verb.example}\n" in text
        assert verb.example.removeprefix('eval "$(').startswith(f"rlcb {name}")
        assert rlcb_here(name, "--help").returncode == 0
    assert text.index("train:") < text.index("measure:") < text.index("inspect:") < text.index("setup:")


def test_train_lists_the_algorithms() -> None:
    text = shown("train")
    for name, entry in ALGORITHMS.items():
        assert re.search(rf"^  {name} +{re.escape(entry.summary)} \({', '.join(entry.modes)}\)$", text, re.MULTILINE)


def test_help_works_with_a_damaged_file_and_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named, "_FOLDERS", (tmp_path,))
    done = rlcb_here("train", "ppo", "--help", folder=tmp_path)
    assert entries(done.stdout)["--n-steps"].endswith("(default 128)")
    (tmp_path / "ppo_sequential.yaml").write_text("training: {n_steps: many}\n")
    done = rlcb_here("train", "ppo", "--help", folder=tmp_path)
    assert entries(done.stdout)["--n-steps"].endswith("(default 128)")
    assert "n_steps: 'many' is not valid" in done.stderr


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], (None, None)),
        (["ppo"], ("ppo", "sequential")),
        (["--network", "impala", "ppo", "--mode", "parallel"], ("ppo", "parallel")),
        (["--network=impala"], (None, None)),
        (["a3c", "--mode=sequential"], ("a3c", "parallel")),
    ],
)
def test_help_finds_algorithm_and_mode_in_the_command_line(
    words: list[str], found: tuple[str | None, str | None]
) -> None:
    assert peek(words) == found


def test_scripts_list_their_documented_flags_alone() -> None:
    parser = training.script_parser("train_ppo_sequential.py", "ppo", "sequential", timed=False)
    own = {"--help", "--config", "--output-dir", "--resume", "--dry-run"}
    assert set(entries(parser.format_help())) == {*own, *map(flag_of, FIXED_KEYS)}


@pytest.mark.parametrize(
    ("text", "hours"),
    [("1h", 1.0), ("30m", 0.5), ("90s", 0.025), ("1h30m", 1.5), ("0.5h", 0.5), (0.5, 0.5), (2, 2.0)],
)
def test_durations_have_a_unit_or_are_hours(text: object, hours: float, tmp_path: Path) -> None:
    assert build_config(None, {"duration_hours": ("--duration", text)}).training.duration_hours == hours
    file = tmp_path / "timed.yaml"
    file.write_text(f"training:\n  duration_hours: {text}\n")
    assert build_config(file, {}).training.duration_hours == hours
    suite = tmp_path / "suite.yaml"
    suite.write_text(f"duration_hours: {text}\n")
    assert read_settings(suite).duration_hours == hours


@pytest.mark.parametrize("text", ["3x", "h", "0s", "9000h", "1 h", "30m1h", "1.h", "-1h", "1:30", "nan", "٣h"])
def test_a_wrong_duration_is_one_line(text: str) -> None:
    words = ("1h, 30m, 90s", "a number of hours above 0 up to 8760")
    rlcb_here("train", "ppo", f"--duration={text}").assert_one_line_error(2, "--duration", repr(text), *words)
    rlcb_here("benchmark", f"--duration={text}").assert_one_line_error(2, "--duration", repr(text), *words)


@pytest.mark.parametrize("arguments", [("train", "ppo", "--duration", ""), ("benchmark", "--games", "coinrun", "")])
def test_an_empty_value_is_refused(arguments: tuple[str, ...]) -> None:
    rlcb_here(*arguments).assert_one_line_error(2, "the value is empty")
