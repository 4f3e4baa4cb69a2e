"""What `import rlcb` offers: each function is the command of its name, for Python."""
