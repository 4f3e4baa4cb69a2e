#!/usr/bin/env bash
# The main job: sets everything up, then trains PPO on CoinRun for three minutes and shows the summary.
# usage: bash scripts/demo.sh [flags of train_timed.py, e.g. --duration 0.5]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
exec .venv/bin/python train_timed.py --duration 0.05 --output-dir ./benchmarks/demo "$@"
