"""Check the installation: what is there, what is missing, how to get it."""

from _launch import check

check()
