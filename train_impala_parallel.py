"""Train IMPALA with actors and learners for a fixed number of steps."""

from _launch import train

train("impala", "parallel", timed=False)
