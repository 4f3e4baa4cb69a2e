#!/usr/bin/env bash
# Sets everything up, then runs the linter, the type checker and all tests, two files at a time.
# usage: bash scripts/test.sh [pytest arguments]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
.venv/bin/ruff check .
.venv/bin/ruff format --check .
.venv/bin/mypy
# Most of the time goes into processes that import torch; a file's tests share what it has trained.
exec .venv/bin/python -m pytest -n 2 --dist loadfile "$@"
