"""Train IMPALA sequentially for a fixed time."""

from _launch import train

train("impala", "sequential", timed=True)
