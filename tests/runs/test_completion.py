"""Completion in real shells: the printed script is read by the shell, which is then asked what it would complete."""

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from helpers.processes import rlcb
from rlcb.commands.completion import commands
from rlcb.commands.other import SHELLS
from rlcb.commands.overview import VERBS
from rlcb.commands.shells import script
from rlcb.config.registry import ALGORITHMS

# What is typed, with the cursor at its end, and all that may follow; a folder ends with / or not, as the shell likes.
CASES = {
    "rlcb ": {*VERBS},
    "rlcb tr": {"train"},
    "rlcb train ": {*ALGORITHMS},
    "rlcb train --network impala a2": {"a2c"},
    "rlcb train ppo --net": {"--network"},
    "rlcb train ppo --network ": {"auto", "impala", "mlp", "mlp256", "nature"},
    "rlcb train ppo --num-s": set(),
    "rlcb train impala --num-s": {"--num-slots"},
    "rlcb train ppo --mode=par": {"parallel"},
    "rlcb train ppo --insecure t": {"true"},
    "rlcb train ppo --env coin": {"coinrun"},
    "rlcb train ppo --n-steps ": set(),
    "rlcb train ppo --config m": {"my file.yaml", "mine"},
    "rlcb train ppo --config my": {"my file.yaml"},
    "rlcb train ppo --config ppo_pap": {"ppo_paper"},
    "rlcb benchmark --suite qu": {"quick"},
    "rlcb benchmark --config ppo_pap": {"ppo_paper"},
    "rlcb configs procgen": {"procgen16"},
    "rlcb train ppo --resume m": {"mine"},
    "rlcb benchmark --algorithms ppo im": {"impala"},
    "rlcb benchmark --algorithms ppo --mod": {"--modes"},
    "rlcb limits a3c --tensor": {"--tensorboard"},
    "rlcb compare m": {"mine"},
    "rlcb evaluate --levels ": {"train", "unseen", "both"},
    "rlcb completion ": {*SHELLS},
    "rlcb doctor ": set(),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file and a folder to complete, and the three scripts."""
    path = tmp_path_factory.mktemp("completion")
    (path / "my file.yaml").touch()
    (path / "mine").mkdir()
    for shell in SHELLS:
        (path / f"script.{shell}").write_text(script(shell, commands()), encoding="utf-8")
    return path


def program(shell: str) -> str:
    """A shell that is installed; without it the test is skipped."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    return found


def asked(command: list[str], folder: Path) -> list[str]:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def split_as_bash_does(typed: str) -> list[str]:
    words = typed.replace("=", " = ").split()
    return [*words, ""] if typed.endswith(" ") else words


@pytest.mark.parametrize("typed", CASES)
def test_bash(typed: str, folder: Path) -> None:
    ask = 'source script.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _rlcb; printf "%s\\n" "${COMPREPLY[@]}"'
    found = asked([program("bash"), "--norc", "-c", ask, "bash", *split_as_bash_does(typed)], folder)
    assert {line for line in found if line} == CASES[typed]


def test_bash_knows_the_program(folder: Path) -> None:
    found = asked([program("bash"), "--norc", "-c", "source script.bash; complete -p rlcb"], folder)
    assert found == ["complete -F _rlcb rlcb"]


@pytest.mark.parametrize("typed", CASES)
def test_fish(typed: str, folder: Path) -> None:
    ask = "source script.fish; complete -C $argv[1]"
    found = asked([program("fish"), "--no-config", "-c", ask, typed], folder)
    words = {line.split("\t")[0].rstrip("/").replace("\\ ", " ").removeprefix("--mode=") for line in found}
    assert words == CASES[typed]


@pytest.mark.parametrize("typed", [typed for typed, words in CASES.items() if len(words) == 1])
def test_zsh_completes_in_a_terminal(typed: str, folder: Path) -> None:
    (word,) = CASES[typed]
    start = "autoload -U compinit; compinit -D -u; source ./script.zsh; rlcb() { print -r -- 'got<'$argv[-1]'>' }"
    shell = Terminal([program("zsh"), "-f", "-i"], folder)
    try:
        shell.type(f"{start}; PS1='rea''dy'\r")  # the shell repeats what is typed, so it must not contain the prompt
        shell.wait_for("ready")
        shell.type(f"{typed}\t\r")
        text = shell.wait_for(">\r\n")
    finally:
        shell.close()
    assert text.rsplit("got<", 1)[1].split(">")[0].rstrip("/").removeprefix("--mode=") == word


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, command: list[str], folder: Path):
        self._terminal, child = pty.openpty()
        environment = {**os.environ, "TERM": "dumb", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
        self._process = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=child, stdout=child, stderr=child, start_new_session=True
        )
        os.close(child)
        self.seen = ""

    def type(self, text: str) -> None:
        """Type this."""
        os.write(self._terminal, text.encode())

    def wait_for(self, text: str) -> str:
        """What was shown, once it contains this text."""
        deadline = time.monotonic() + 60
        while text not in self.seen:
            readable, _, _ = select.select([self._terminal], [], [], max(deadline - time.monotonic(), 0))
            assert readable, f"{text!r} did not appear: {self.seen!r}"
            self.seen += os.read(self._terminal, 65536).decode(errors="replace")
        return self.seen

    def close(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait(60)
        os.close(self._terminal)


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_prints_the_script(shell: str) -> None:
    done = rlcb("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == script(shell, commands())


def test_an_unknown_shell_is_one_line() -> None:
    rlcb("completion", "tcsh").assert_one_line_error(2, "tcsh", "bash", "zsh", "fish")


def test_every_verb_and_algorithm_is_completed() -> None:
    names = {command.words for command in commands()}
    assert names == {(), *((verb,) for verb in VERBS), *((v, a) for v in ("train", "limits") for a in ALGORITHMS)}
    assert all(flag.text for command in commands() for flag in command.flags)
