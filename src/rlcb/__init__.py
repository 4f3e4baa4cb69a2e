"""rl-cluster-benchmark: train, time and compare reinforcement-learning algorithms on Procgen."""

__version__ = "0.1.0"
