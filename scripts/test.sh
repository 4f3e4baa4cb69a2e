#!/usr/bin/env bash
# Sets everything up, then checks style and types, runs the tests and says how long each part took.
# usage: bash scripts/test.sh                    everything
#        bash scripts/test.sh fast               style, types and unit tests
#        bash scripts/test.sh PYTEST_ARGUMENTS   style, types and what pytest makes of these arguments
#        bash scripts/test.sh --python X [--numpy Y]
#            in a new environment, .venv-X, on Python X (3.13, or a path), with NumPy Y (1.26) in place of the pinned one:
#            unit tests, one short training per algorithm, a resume and a short study
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=.venv
if [ "${1:-}" = --python ]; then
  [ $# = 2 ] || [ "$# ${3:-}" = "4 --numpy" ] || { echo "test.sh: error: $*; must be --python X [--numpy Y]" >&2; exit 2; }
  python=$2 numpy=${4:-}
  case $python in */*) ;; *) python=python$python ;; esac
  venv=.venv-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')${numpy:+-numpy-$numpy} ||
    { echo "test.sh: error: $python cannot be run" >&2; exit 2; }
  rm -rf "$venv"
  VENV=$venv PYTHON=$python bash scripts/setup.sh
  # Without the pins, pip finds older packages where the pinned ones need a later NumPy.
  [ -z "$numpy" ] || "$venv/bin/python" -m pip install --disable-pip-version-check "numpy==$numpy.*" \
    -e '.[tensorboard,video,fast,cluster,dev]'
else
  bash scripts/setup.sh
fi

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
tests() { "$venv/bin/python" -m pytest --dist loadgroup "$@"; }
rlcb() { "$venv/bin/python" -m rlcb "$@"; }

if [ $venv = .venv ]; then
  part style .venv/bin/ruff check .
  part format .venv/bin/ruff format --check .
  part types .venv/bin/mypy
fi
case ${1:-} in
  "")
    part unit tests -n 2 tests/unit
    # Much of these is waiting for processes: more of them at a time than there are cores.
    part runs tests -n 4 tests/runs
    part faults tests -n 4 tests/faults
    part cluster tests -n 3 tests/cluster  # each starts clusters of many processes
    ;;
  --python)
    runs=$(mktemp -d)
    trap 'rm -rf "$runs"' EXIT
    part unit tests -n 2 tests/unit
    part doctor rlcb doctor  # a step of CoinRun
    for words in "ppo sequential" "ppo parallel" "a2c sequential" "a2c parallel" "impala sequential" "impala parallel" \
      "a3c parallel"; do
      read -r algorithm mode <<<"$words"
      part "$algorithm" rlcb train "$algorithm" --mode "$mode" --env CartPole-v1 --total-timesteps 4096 \
        --output-dir "$runs/$algorithm-$mode"
    done
    part resume rlcb train --resume "$runs/ppo-parallel" --total-timesteps 8192
    part study rlcb benchmark --games CartPole-v1 --seeds 1 2 --total-timesteps 4096 --output-dir "$runs/study"
    ;;
  fast) part unit tests -n 2 tests/unit ;;
  *) part tests tests -n 2 "$@" ;;
esac
printf '%s' "$times"
[ -z "$failed" ] || { printf 'failed:%s\n' "$failed"; exit 1; }
