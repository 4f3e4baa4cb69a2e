"""Evaluate a trained policy."""

from _launch import evaluate

evaluate(universal=False)
