"""Completion scripts for bash, zsh and fish: a table of all commands, and the shell's own functions around it."""

from collections.abc import Sequence
from pathlib import Path

from rlcb.commands.completion import Command, Flag, Values
from rlcb.config.registry import ALGORITHMS
from rlcb.files import read_regular

_TABLE = "# (table)\n"  # what a template has in its place
_ALGORITHMS = "ALGORITHM_NAMES"
_MOST_BYTES = 64 * 1024  # of a template


def script(shell: str, commands: Sequence[Command]) -> str:
    """The script that completes `rlcb` in a shell."""
    table = {"bash": _bash_table, "zsh": _zsh_table, "fish": _fish_table}[shell](commands)
    template = read_regular(Path(__file__).with_name(f"completion.{shell}"), _MOST_BYTES).decode()
    return template.replace(_ALGORITHMS, " ".join(ALGORITHMS)).replace(_TABLE, table)


def _quoted(text: str) -> str:
    """A text in single quotes, for bash and zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def _cases(command: Command) -> list[str]:
    """For each kind of values, the flags that take them: a case of bash and zsh."""
    same: dict[tuple[Values, bool], list[str]] = {}
    for flag in command.flags:
        if flag.values is not None:
            same.setdefault((flag.values, flag.several), []).append(flag.name)
    lines = []
    for (values, several), names in same.items():
        takes = f"takes={'several' if several else 'one'}"
        lines.append(f"{'|'.join(names)}) {takes} choices={_quoted(' '.join(values.words))} files='{values.files}' ;;")
    return lines


def _shell_table(commands: Sequence[Command], flags_of: dict[str, str]) -> str:
    lines = []
    for command in commands:
        words, files = _quoted(" ".join(command.values.words)), command.values.files
        lines += [f"{_quoted(command.name)})", f"    flags=({flags_of[command.name]})"]
        lines += [f"    arguments={words} argument_files='{files}'", '    case "$flag" in']
        lines += [f"    {case}" for case in _cases(command)]
        lines += ["    esac", "    ;;"]
    return "".join(f"    {line}\n" for line in lines)


def _bash_table(commands: Sequence[Command]) -> str:
    return _shell_table(commands, {one.name: " ".join(flag.name for flag in one.flags) for one in commands})


def _zsh_table(commands: Sequence[Command]) -> str:
    described = {
        one.name: " ".join(_quoted(f"{flag.name}:{flag.text.replace(':', chr(92) + ':')}") for flag in one.flags)
        for one in commands
    }
    return _shell_table(commands, described)


def _fish_table(commands: Sequence[Command]) -> str:
    lines = []
    for command in commands:
        here = f"-n {_fish_quoted(f'__rlcb_is {command.name}'.rstrip())}"
        if not command.words:
            for verb in command.values.words:
                about = next(one.text for one in commands if one.words == (verb,))
                lines.append(f"{here} -a {verb} -d {_fish_quoted(about)}")
        elif command.values != Values():
            lines.append(f"{here} {_fish_values(command.values)}")
        for flag in command.flags:
            lines += _fish_flag(here, command, flag)
    return "".join(f"complete -c rlcb {line}\n" for line in lines)


def _fish_flag(here: str, command: Command, flag: Flag) -> list[str]:
    line = f"{here} -l {flag.name.removeprefix('--')} -d {_fish_quoted(flag.text)}"
    if flag.values is None:
        return [line]
    values = _fish_values(flag.values)
    more = f"-n {_fish_quoted(f'__rlcb_within {flag.name} {command.name}')} {values}"
    return [f"{line} -r {values}", *([more] if flag.several else [])]


def _fish_values(values: Values) -> str:
    words = " ".join((*values.words, *(["(__fish_complete_directories)"] if values.files == "directory" else [])))
    return f"{'-F' if values.files == 'file' else '-f'}" + (f" -a {_fish_quoted(words)}" if words else "")


def _fish_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
