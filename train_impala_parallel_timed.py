"""Train IMPALA with actors and learners for a fixed time."""

from _launch import train

train("impala", "parallel", timed=True)
