#!/usr/bin/env bash
# Sets everything up, then checks style and types, runs the tests and says how long each part took.
# usage: bash scripts/test.sh                    everything
#        bash scripts/test.sh fast               style, types and unit tests
#        bash scripts/test.sh PYTEST_ARGUMENTS   style, types and what pytest makes of these arguments
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh

times="" failed=""
part() { # NAME COMMAND…
  local name=$1 begun=$SECONDS took
  shift
  printf '== %s\n' "$name"
  "$@" || failed+=" $name"
  took=$((SECONDS - begun))
  times+=$(printf '%-8s %2d:%02d' "$name" $((took / 60)) $((took % 60)))$'\n'
}
# Tests that share something expensive are a group; a group runs in one process.
tests() { .venv/bin/python -m pytest --dist loadgroup "$@"; }

part style .venv/bin/ruff check .
part format .venv/bin/ruff format --check .
part types .venv/bin/mypy
case ${1:-} in
  "")
    part unit tests -n 2 tests/unit
    # Much of these is waiting for processes: more of them at a time than there are cores.
    part runs tests -n 4 tests/runs
    part faults tests -n 4 tests/faults
    part cluster tests -n 3 tests/cluster  # each starts clusters of many processes
    ;;
  fast) part unit tests -n 2 tests/unit ;;
  *) part tests tests -n 2 "$@" ;;
esac
printf '%s' "$times"
[ -z "$failed" ] || { printf 'failed:%s\n' "$failed"; exit 1; }
