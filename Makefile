# Every target sets up what it needs on first use.
PYTHON := .venv/bin/python
SETUP := bash scripts/setup.sh
DURATION ?= 1.0
LOGS ?= ./benchmarks
EPISODES ?= 100
LEVELS ?= train
CHECKPOINT ?=
SEEDS ?= 1 2 3
GAMES ?= coinrun
OUTPUT ?= ./benchmarks/suite
ARGS ?=
EVALUATION = $(if $(CHECKPOINT),--checkpoint $(CHECKPOINT)) --num-episodes $(EPISODES) --levels $(LEVELS) $(ARGS)

.PHONY: help install test check train train-timed train-parallel train-parallel-timed evaluate evaluate-ppo evaluate-impala compare benchmark tensorboard clean

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

benchmark:  ## suite: PPO in both modes × SEEDS (1 2 3) × GAMES (coinrun), DURATION hours each, evaluation, report in OUTPUT
	@$(SETUP)
	@$(PYTHON) -m rlcb benchmark --duration $(DURATION) --seeds $(SEEDS) --games $(GAMES) --output-dir $(OUTPUT) $(ARGS)

evaluate:  ## EPISODES (100) episodes of the newest checkpoint, or of CHECKPOINT, on LEVELS (train, unseen or both)
	@$(SETUP)
	@$(PYTHON) evaluate.py $(EVALUATION)

evaluate-ppo:  ## the same for the newest checkpoint of PPO
	@$(SETUP)
	@$(PYTHON) evaluate_universal.py --algorithm ppo $(EVALUATION)

evaluate-impala:  ## the same for the newest checkpoint of IMPALA
	@$(SETUP)
	@$(PYTHON) evaluate_universal.py --algorithm impala $(EVALUATION)

compare:  ## the newest sequential and parallel runs under LOGS (./benchmarks) side by side
	@$(SETUP)
	@$(PYTHON) compare_results.py --newest $(LOGS) --output $(LOGS)/comparison.png $(ARGS)

tensorboard:  ## TensorBoard on this machine only, for all runs under LOGS (./benchmarks)
	@$(SETUP)
	@$(PYTHON) -m tensorboard.main --logdir $(LOGS) --host localhost

clean:  ## remove .venv and caches; runs are kept
	rm -rf .venv .venv-sb3 .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
