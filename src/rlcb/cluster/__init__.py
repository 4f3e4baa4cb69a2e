"""Runs on several machines: Ray starts the workers there, tells who is lost, and carries what they say."""
