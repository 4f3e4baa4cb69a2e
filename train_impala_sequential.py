"""Train IMPALA sequentially for a fixed number of steps."""

from _launch import train

train("impala", "sequential", timed=False)
