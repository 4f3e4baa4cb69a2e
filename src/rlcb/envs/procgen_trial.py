"""A program that loads saved states of a Procgen game and steps once: whether they are sound is its exit code.

The game's own code ends the process when it is given something else than a state. `procgen.state_problem` starts it.
"""

import json
import sys
from itertools import accumulate, pairwise
from types import SimpleNamespace

import numpy as np

from rlcb.envs.procgen import ProcgenEnv


def main() -> None:
    """Read the settings and the states' lengths, a line of JSON, then the states."""
    name, mode, num_levels, start_level, *lengths = json.loads(sys.stdin.buffer.readline())
    data = sys.stdin.buffer.read()
    states = [data[start:end] for start, end in pairwise(accumulate(lengths, initial=0))]
    count = len(states)
    settings = SimpleNamespace(
        name=name, num_envs=count, distribution_mode=mode, num_levels=num_levels, start_level=start_level
    )
    env = ProcgenEnv(settings, count, seed=0, num_threads=0)
    env.set_state(states)
    env.step(np.zeros(count, np.int64))
    env.close()


if __name__ == "__main__":
    main()
