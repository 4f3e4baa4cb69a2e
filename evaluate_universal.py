"""Evaluate a trained policy of any algorithm."""

from _launch import evaluate

evaluate(universal=True)
