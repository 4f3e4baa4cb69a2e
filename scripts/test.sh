#!/usr/bin/env bash
# Sets everything up, then runs the linter, the type checker and the tests, and says how long each part took.
# usage: bash scripts/test.sh              everything
#        bash scripts/test.sh fast         linter, types and unit tests
#        bash scripts/test.sh ARGUMENTS    linter, types and what pytest makes of these arguments
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh

timed() {
  local name=$1 started=$SECONDS
  shift
  "$@"
  printf '== %s: %d s\n' "$name" $((SECONDS - started))
}
if [ "${1:-}" = fast ]; then
  shift
  set -- tests/unit "$@"
fi
timed "linter" .venv/bin/ruff check .
timed "formatter" .venv/bin/ruff format --check .
timed "type checker" .venv/bin/mypy
# Most tests of runs, faults and clusters wait for processes rather than compute: more files at a time than cores.
# A file's tests share what it has trained.
timed "tests" .venv/bin/python -m pytest -n 4 --dist loadfile "$@"
