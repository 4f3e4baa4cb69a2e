"""Train PPO sequentially for a fixed number of steps."""

from _launch import train

train("ppo", "sequential", timed=False)
