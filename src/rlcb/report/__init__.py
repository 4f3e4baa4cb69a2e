"""A comparison as a page, a text and files: what `rlcb compare` and `compare_results.py` print and write."""
