"""Evaluation: a checkpoint in; episodes, figures and pictures out."""
