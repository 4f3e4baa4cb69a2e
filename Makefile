# Every target sets up what it needs on first use.
PYTHON := .venv/bin/python
IMPALA_DURATION := $(if $(DURATION),$(DURATION),0.5)
DURATION ?= 1.0
LOGS ?= ./benchmarks
EPISODES ?= 100
LEVELS ?= train
CHECKPOINT ?=
SEEDS ?= 1 2 3
GAMES ?= coinrun
ALGORITHMS ?= ppo
OUTPUT ?= ./benchmarks/suite
ARGS ?=
EVALUATION = $(if $(CHECKPOINT),--checkpoint $(CHECKPOINT)) --num-episodes $(EPISODES) --levels $(LEVELS) $(ARGS)

TARGETS := help install test check train train-timed train-parallel train-parallel-timed train-impala train-impala-timed train-impala-parallel train-impala-parallel-timed train-a2c train-a2c-timed train-a2c-parallel train-a2c-parallel-timed train-a3c train-a3c-timed evaluate evaluate-ppo evaluate-impala compare benchmark cluster-demo tensorboard clean
.DEFAULT_GOAL := help
.PHONY: $(TARGETS)
$(filter-out help install test cluster-demo clean,$(TARGETS)): install

help:  ## show the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-28s %s\n", $$1, $$2}'

install:  ## make .venv and install everything into it
	@bash scripts/setup.sh

test:  ## linter, type checker and tests
	@bash scripts/test.sh $(ARGS)

check:  ## is everything here that training needs?
	@$(PYTHON) quick_test.py

train:  ## sequential PPO on CoinRun for total_timesteps
	@$(PYTHON) train_ppo_sequential.py $(ARGS)

train-timed:  ## sequential PPO on CoinRun for DURATION hours (1)
	@$(PYTHON) train_timed.py --duration $(DURATION) --output-dir ./benchmarks/sequential_timed $(ARGS)

train-parallel:  ## parallel PPO on CoinRun for total_timesteps
	@$(PYTHON) train_ppo_parallel.py $(ARGS)

train-parallel-timed:  ## parallel PPO on CoinRun for DURATION hours (1)
	@$(PYTHON) train_parallel_timed.py --duration $(DURATION) --output-dir ./benchmarks/parallel_timed $(ARGS)

train-impala:  ## sequential IMPALA on CoinRun for total_timesteps
	@$(PYTHON) train_impala_sequential.py $(ARGS)

train-impala-timed:  ## sequential IMPALA on CoinRun for DURATION hours (0.5)
	@$(PYTHON) train_impala_sequential_timed.py --duration $(IMPALA_DURATION) --output-dir ./benchmarks/impala_sequential_timed $(ARGS)

train-impala-parallel:  ## IMPALA with actors and learners on CoinRun for total_timesteps
	@$(PYTHON) train_impala_parallel.py $(ARGS)

train-impala-parallel-timed:  ## IMPALA with actors and learners on CoinRun for DURATION hours (0.5)
	@$(PYTHON) train_impala_parallel_timed.py --duration $(IMPALA_DURATION) --output-dir ./benchmarks/impala_parallel_timed $(ARGS)

train-a2c:  ## sequential A2C on CoinRun for total_timesteps
	@$(PYTHON) -m rlcb train a2c --mode sequential $(ARGS)

train-a2c-timed:  ## sequential A2C on CoinRun for DURATION hours (1)
	@$(PYTHON) -m rlcb train a2c --mode sequential --duration $(DURATION) --output-dir ./benchmarks/a2c_sequential_timed $(ARGS)

train-a2c-parallel:  ## A2C on parallel workers on CoinRun for total_timesteps
	@$(PYTHON) -m rlcb train a2c --mode parallel $(ARGS)

train-a2c-parallel-timed:  ## A2C on parallel workers on CoinRun for DURATION hours (1)
	@$(PYTHON) -m rlcb train a2c --mode parallel --duration $(DURATION) --output-dir ./benchmarks/a2c_parallel_timed $(ARGS)

train-a3c:  ## A3C on asynchronous workers on CoinRun for total_timesteps
	@$(PYTHON) -m rlcb train a3c --mode parallel $(ARGS)

train-a3c-timed:  ## A3C on asynchronous workers on CoinRun for DURATION hours (1)
	@$(PYTHON) -m rlcb train a3c --mode parallel --duration $(DURATION) --output-dir ./benchmarks/a3c_parallel_timed $(ARGS)

benchmark:  ## suite: ALGORITHMS (ppo) in their modes × SEEDS (1 2 3) × GAMES (coinrun), DURATION hours each, evaluation, report in OUTPUT
	@$(PYTHON) -m rlcb benchmark --duration $(DURATION) --algorithms $(ALGORITHMS) --seeds $(SEEDS) --games $(GAMES) --output-dir $(OUTPUT) $(ARGS)

evaluate:  ## EPISODES (100) episodes of the newest checkpoint, or of CHECKPOINT, on LEVELS (train, unseen or both)
	@$(PYTHON) evaluate.py $(EVALUATION)

evaluate-ppo:  ## the same for the newest checkpoint of PPO
	@$(PYTHON) evaluate_universal.py --algorithm ppo $(EVALUATION)

evaluate-impala:  ## the same for the newest checkpoint of IMPALA
	@$(PYTHON) evaluate_universal.py --algorithm impala $(EVALUATION)

compare:  ## the newest sequential and parallel runs under LOGS (./benchmarks) side by side
	@$(PYTHON) compare_results.py --newest $(LOGS) --output $(LOGS)/comparison.png $(ARGS)

cluster-demo:  ## three Ray nodes on this machine: PPO and IMPALA with a node lost in the middle, beside local runs
	@bash scripts/cluster_demo.sh $(ARGS)

tensorboard:  ## TensorBoard on this machine only, for all runs under LOGS (./benchmarks)
	@$(PYTHON) -m tensorboard.main --logdir $(LOGS) --host localhost

clean:  ## remove .venv and caches; runs are kept
	rm -rf .venv .venv-sb3 .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
