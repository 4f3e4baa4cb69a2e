"""Environments behind one small interface: many copies stepped together, finished episodes restarted at once."""
