"""Evaluation: a checkpoint in; metrics of its episodes and pictures out."""
