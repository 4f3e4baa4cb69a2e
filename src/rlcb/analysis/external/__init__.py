"""Logs of other programs as runs to compare with."""
