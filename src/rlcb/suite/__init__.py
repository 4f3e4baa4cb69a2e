"""A benchmark suite: a matrix of runs, then evaluation and report."""
