# Every target sets up what it needs on first use.
PYTHON := .venv/bin/python
SETUP := bash scripts/setup.sh
DURATION ?= 1.0
LOGS ?= ./benchmarks
ARGS ?=

.PHONY: help install test check train train-timed train-parallel train-parallel-timed tensorboard clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-22s %s\n", $$1, $$2}'

install:  ## make .venv and install everything into it
	@$(SETUP)

test:  ## linter, type checker and tests
	@bash scripts/test.sh $(ARGS)

check:  ## is everything here that training needs?
	@$(SETUP)
	@$(PYTHON) quick_test.py

train:  ## sequential PPO on CoinRun for total_timesteps
	@$(SETUP)
	@$(PYTHON) train_ppo_sequential.py $(ARGS)

train-timed:  ## sequential PPO on CoinRun for DURATION hours (1)
	@$(SETUP)
	@$(PYTHON) train_timed.py --duration $(DURATION) --output-dir ./benchmarks/sequential_timed $(ARGS)

train-parallel:  ## parallel PPO on CoinRun for total_timesteps
	@$(SETUP)
	@$(PYTHON) train_ppo_parallel.py $(ARGS)

train-parallel-timed:  ## parallel PPO on CoinRun for DURATION hours (1)
	@$(SETUP)
	@$(PYTHON) train_parallel_timed.py --duration $(DURATION) --output-dir ./benchmarks/parallel_timed $(ARGS)

tensorboard:  ## TensorBoard on this machine only, for all runs under LOGS (./benchmarks)
	@$(SETUP)
	@$(PYTHON) -m tensorboard.main --logdir $(LOGS) --host localhost

clean:  ## remove .venv and caches; runs are kept
	rm -rf .venv .venv-sb3 .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
