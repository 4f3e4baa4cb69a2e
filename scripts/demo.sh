#!/usr/bin/env bash
# The main job: sets everything up, then benchmarks sequential and parallel PPO on CoinRun, three seeds each, for about
# five minutes, evaluates all runs, compares them and writes a report. Started again it continues, and what is finished is kept.
# usage: bash scripts/demo.sh [flags of rlcb benchmark, e.g. --duration 0.1 --output-dir ./benchmarks/mine]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
exec .venv/bin/python -m rlcb benchmark --suite config/suites/quick.yaml --output-dir ./benchmarks/demo "$@"
