"""Saves a checkpoint over and over, killed by SIGKILL before the first, second, third, … system call of the save.

usage: kill_while_saving.py CHECKPOINT FOLDER; prints for each point which checkpoint is found afterwards: old or new.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlcb.run.checkpoint import load_checkpoint, load_newest, save_checkpoint


def killed_before_call(number: int, path: Path, content: dict[str, Any]) -> bool:
    """Fork, save in the child, kill it before its system call `number`; False when the save had fewer calls."""
    child = os.fork()
    if child == 0:
        calls = 0

        def deadly(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **options)

            return call

        for name in ("open", "write", "fsync", "close", "rename"):
            setattr(os, name, deadly(getattr(os, name)))
        save_checkpoint(path, content)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def main() -> None:
    """Go through all points."""
    source, folder = Path(sys.argv[1]), Path(sys.argv[2])
    content = load_checkpoint(source)
    number = 0
    while True:
        number += 1
        place = folder / str(number)
        place.mkdir()
        shutil.copy(source, place / "ppo_sequential_step_768.pt")
        content["meta"]["env_steps"] = content["progress"]["env_steps"] = 1024
        if not killed_before_call(number, place / "ppo_sequential_step_1024.pt", content):
            break
        found, _ = load_newest(place, "ppo", lambda text: sys.exit(f"damaged: {text}"))
        print("new" if found.name.endswith("1024.pt") else "old")
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
