"""Train PPO with parallel workers for a fixed number of steps."""

from _launch import train

train("ppo", "parallel", timed=False)
