"""What this machine could reach for a run: measured in its parts, combined, kept in a file; `rlcb limits`."""
