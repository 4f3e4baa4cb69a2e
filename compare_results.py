"""Compare a sequential and a parallel run: a table, a picture with four panels and a report."""

from _launch import compare

compare()
