"""Saved states of environments, loaded and stepped once by a process of its own before the run's own loads them.

Code of games trusts a state that it is given: one that is something else can end the process.
"""

import json
import subprocess
import sys
from itertools import accumulate, pairwise
from types import SimpleNamespace
from typing import Any, get_type_hints

from rlcb.envs.base import EnvSettings, EnvSpec

_SECONDS = 300.0  # importing a game on a crowded machine takes long


def problem(settings: EnvSettings, spec: EnvSpec, states: list[bytes]) -> str | None:
    """What is wrong with saved states; None: nothing."""
    del spec
    head = json.dumps({"settings": plain(settings), "lengths": [len(state) for state in states]}).encode()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rlcb.envs.state_trial"], input=b"\n".join((head, b"".join(states))),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"envs are not states of {settings.name}: the game hangs"
    if done.returncode == 0:
        return None
    reason = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
    return f"envs are not states of {settings.name}: {''.join(reason) or 'the game crashes'}"


def plain(settings: EnvSettings) -> dict[str, Any]:
    """The settings by their names, for another process."""
    return {name: getattr(settings, name) for name in (*get_type_hints(EnvSettings), "distribution_mode")}


def main() -> None:
    """Read settings and lengths of the states, a line of JSON, then the states; fails if they do not load."""
    import numpy as np

    from rlcb.envs.families import make_env

    head = json.loads(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read()
    states = [data[start:end] for start, end in pairwise(accumulate(head["lengths"], initial=0))]
    settings = SimpleNamespace(**head["settings"])
    env = make_env(settings, len(states), seed=0, num_threads=0)
    env.set_state(states)
    env.step(np.zeros(len(states), np.int64))
    env.close()


if __name__ == "__main__":
    main()
