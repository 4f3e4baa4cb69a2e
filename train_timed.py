"""Train PPO sequentially for a fixed time."""

from _launch import train

train("ppo", "sequential", timed=True)
