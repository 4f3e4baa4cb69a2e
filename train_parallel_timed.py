"""Train PPO with parallel workers for a fixed time."""

from _launch import train

train("ppo", "parallel", timed=True)
