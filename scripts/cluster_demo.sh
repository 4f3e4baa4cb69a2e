#!/usr/bin/env bash
# Three Ray nodes on this machine; a short PPO and a short IMPALA run on them, a node removed in the middle of each,
# then the same runs on local processes, and all four compared. About five minutes on two cores.
# usage: bash scripts/cluster_demo.sh [OUTPUT]        default ./benchmarks/cluster_demo
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
exec .venv/bin/python scripts/cluster_demo.py "${1:-./benchmarks/cluster_demo}"
