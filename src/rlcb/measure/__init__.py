"""Measurements of what this machine can do, each a program of its own."""
