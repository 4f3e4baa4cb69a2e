"""Runs on several machines: Ray starts the workers there, reports losses and carries messages."""
