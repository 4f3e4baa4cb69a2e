"""Executions: who runs where. An execution is a loop that moves rollouts and gradients."""
