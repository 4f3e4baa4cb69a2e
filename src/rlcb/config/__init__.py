"""The configuration of a run: its keys, files and defaults, and what they come to on this machine."""
