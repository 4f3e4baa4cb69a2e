"""Shell completion: the words that can follow in a command, read from the parsers."""

import argparse
import re
from dataclasses import dataclass

from rlcb.commands import other, training
from rlcb.commands.overview import VERBS, overview
from rlcb.config.registry import ALGORITHMS
from rlcb.flags import Parser

_FILES = {"FILE": "file", "PATH": "file", "DIR": "directory", "RUN": "directory", "LOG": "file"}  # by metavar
_SHORT = 70  # characters of a description


@dataclass(frozen=True)
class Values:
    """What completes a value: words, and the names of files or directories; neither: nothing can be proposed."""

    words: tuple[str, ...] = ()
    files: str = ""  # file or directory


@dataclass(frozen=True)
class Flag:
    """A flag of a command."""

    name: str
    text: str  # what it means, short
    values: Values | None  # None: it takes no value
    several: bool = False  # it takes any number of values


@dataclass(frozen=True)
class Command:
    """A verb, or a verb with an algorithm."""

    words: tuple[str, ...]
    text: str
    flags: tuple[Flag, ...]
    values: Values  # of its other arguments

    @property
    def name(self) -> str:
        """Its words as one text."""
        return " ".join(self.words)


def commands() -> list[Command]:
    """Every command of `rlcb`; the first is `rlcb` itself, and a verb comes before its forms with an algorithm."""
    parsers = {
        "benchmark": training.benchmark_parser,
        "tune": training.tune_parser,
        "evaluate": other.evaluate_parser,
        "status": other.status_parser,
        "compare": other.compare_parser,
        "configs": other.configs_parser,
        "import": other.import_parser,
        "doctor": other.doctor_parser,
        "completion": other.completion_parser,
    }
    with_algorithm = {"train": training.train_parser, "limits": training.limits_parser}
    found = [Command((), "", _flags(overview()), Values(tuple(VERBS)))]
    for verb, about in VERBS.items():
        if verb in with_algorithm:
            for words in ((), *((algorithm,) for algorithm in ALGORITHMS)):
                parser = with_algorithm[verb](words)
                known = _arguments(parser) if not words else Values()
                found.append(Command((verb, *words), about.summary, _flags(parser), known))
        else:
            parser = parsers[verb]()
            found.append(Command((verb,), about.summary, _flags(parser), _arguments(parser)))
    return found


def _flags(parser: Parser) -> tuple[Flag, ...]:
    found = []
    for action in parser.shown():
        if action.option_strings:
            values = None if action.nargs == 0 else _values(action)
            found.append(Flag(action.option_strings[-1], _short(action.help or ""), values, action.nargs == "+"))
    return tuple(found)


def _arguments(parser: Parser) -> Values:
    """What completes the arguments that are no flags."""
    return next((_values(action) for action in parser.shown() if not action.option_strings), Values())


def _values(action: argparse.Action) -> Values:
    """The words of a choice, names of environments or configurations, or files, as the metavar says."""
    from rlcb.config.named import configs, suites
    from rlcb.envs.families import GAMES

    if action.choices:
        return Values(tuple(map(str, action.choices)))
    metavar = str(action.metavar)
    if metavar == "ENV":
        return Values(GAMES)
    parts = [part for part in re.split(r"[{},|]", metavar) if part]
    files = next((_FILES[part] for part in parts if part in _FILES), "")
    named = {"config": configs(), "suite": suites(), "name": {**configs(), **suites()}}
    words = tuple(named.get(action.dest, ())) if "NAME" in parts else ()
    return Values((*words, *(part for part in parts if not part.isupper())), files)


def _short(help_text: str) -> str:
    """The beginning of a description, up to what qualifies it."""
    plain = re.split(r";| \(", help_text.replace("%%", "%"))[0]
    return plain if len(plain) <= _SHORT else plain[:_SHORT].rsplit(" ", 1)[0] + " …"


def print_script(shell: str) -> int:
    """Print the script that completes `rlcb` in a shell."""
    from rlcb.commands.shells import script

    print(script(shell, commands()), end="")
    return 0
