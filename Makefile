# Every target sets up what it needs on first use and says in one line what it is about to do.
VENV_PYTHON := .venv/bin/python
IMPALA_DURATION := $(if $(DURATION),$(DURATION),0.5)
DURATION ?= 1
LOGS ?= ./benchmarks
EPISODES ?= 100
LEVELS ?= train
CHECKPOINT ?=
SEEDS ?= 1 2 3
GAMES ?= coinrun
ALGORITHMS ?= ppo
OUTPUT ?= ./benchmarks/suite
HOST ?= localhost
PORT ?=
ARGS ?=

TARGETS := help install test check \
  train train-timed train-parallel train-parallel-timed \
  train-impala train-impala-timed train-impala-parallel train-impala-parallel-timed \
  train-a2c train-a2c-timed train-a2c-parallel train-a2c-parallel-timed \
  train-a3c train-a3c-timed train-a3c-parallel train-a3c-parallel-timed \
  evaluate evaluate-ppo evaluate-impala evaluate-a2c evaluate-a3c \
  compare benchmark cluster-demo tensorboard docs docs-serve clean
.DEFAULT_GOAL := help
.PHONY: $(TARGETS)
$(filter-out help install test cluster-demo docs docs-serve clean,$(TARGETS)): install

, := ,
# say WHAT; for_steps WHO,DIRECTORY,COMMAND; for_hours WHO,DIRECTORY,COMMAND,HOURS; evaluate WHAT,COMMAND
say = @printf '%s\n' '$(1)$(if $(ARGS), ($(subst ','\'',$(ARGS))))'
define for_steps
$(call say,Training $(1) on CoinRun for the steps of its configuration into $(2))
@$(VENV_PYTHON) $(3) $(ARGS)
endef
has_unit = $(filter %h %m %s,$(1))
timed = $(1)$(if $(call has_unit,$(1)),,h)
define for_hours
$(call say,Training $(1) on CoinRun for $(if $(call has_unit,$(4)),$(4),$(if $(filter 1,$(4)),1 hour,$(4) hours)) into $(2)_$(call timed,$(4)))
@$(VENV_PYTHON) $(3) --duration $(4) --output-dir $(2)_$(call timed,$(4)) $(ARGS)
endef
define evaluate
$(call say,Evaluating $(if $(CHECKPOINT),$(CHECKPOINT),the newest checkpoint$(1)): $(EPISODES) episodes on these levels: $(LEVELS))
@$(VENV_PYTHON) $(2) $(if $(CHECKPOINT),--checkpoint $(CHECKPOINT)) --num-episodes $(EPISODES) --levels $(LEVELS) $(ARGS)
endef

help:  ## show the targets
	@grep -E '^[a-z0-9 -]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "%-40s %s\n", $$1, $$2}'

install:  ## make .venv and install everything into it
	@bash scripts/setup.sh

test:  ## linter, type checker and tests
	$(call say,Running linter$(,) type checker and tests)
	@bash scripts/test.sh $(ARGS)

check:  ## is everything here that training needs?
	$(call say,Checking the installation)
	@$(VENV_PYTHON) quick_test.py

train:  ## sequential PPO on CoinRun for total_timesteps
	$(call for_steps,PPO sequentially,./benchmarks/sequential,train_ppo_sequential.py)

train-timed:  ## sequential PPO on CoinRun for DURATION hours (1), in benchmarks/sequential_1h
	$(call for_hours,PPO sequentially,./benchmarks/sequential,train_timed.py,$(DURATION))

train-parallel train-parallel-timed:  ## parallel PPO on CoinRun for DURATION hours (1), in benchmarks/parallel_1h
	$(call for_hours,PPO in parallel,./benchmarks/parallel,train_parallel_timed.py,$(DURATION))

train-impala:  ## sequential IMPALA on CoinRun for total_timesteps
	$(call for_steps,IMPALA sequentially,./benchmarks/impala_sequential,train_impala_sequential.py)

train-impala-timed:  ## sequential IMPALA on CoinRun for DURATION hours (0.5)
	$(call for_hours,IMPALA sequentially,./benchmarks/impala_sequential,train_impala_sequential_timed.py,$(IMPALA_DURATION))

train-impala-parallel:  ## IMPALA with actors and learners on CoinRun for total_timesteps
	$(call for_steps,IMPALA in parallel,./benchmarks/impala_parallel,train_impala_parallel.py)

train-impala-parallel-timed:  ## IMPALA with actors and learners on CoinRun for DURATION hours (0.5)
	$(call for_hours,IMPALA in parallel,./benchmarks/impala_parallel,train_impala_parallel_timed.py,$(IMPALA_DURATION))

train-a2c:  ## sequential A2C on CoinRun for total_timesteps
	$(call for_steps,A2C sequentially,./benchmarks/a2c_sequential,-m rlcb train a2c --mode sequential)

train-a2c-timed:  ## sequential A2C on CoinRun for DURATION hours (1)
	$(call for_hours,A2C sequentially,./benchmarks/a2c_sequential,-m rlcb train a2c --mode sequential,$(DURATION))

train-a2c-parallel:  ## A2C on parallel workers on CoinRun for total_timesteps
	$(call for_steps,A2C in parallel,./benchmarks/a2c_parallel,-m rlcb train a2c --mode parallel)

train-a2c-parallel-timed:  ## A2C on parallel workers on CoinRun for DURATION hours (1)
	$(call for_hours,A2C in parallel,./benchmarks/a2c_parallel,-m rlcb train a2c --mode parallel,$(DURATION))

train-a3c train-a3c-parallel:  ## A3C on asynchronous workers on CoinRun for total_timesteps
	$(call for_steps,A3C in parallel,./benchmarks/a3c_parallel,-m rlcb train a3c --mode parallel)

train-a3c-timed train-a3c-parallel-timed:  ## A3C on asynchronous workers on CoinRun for DURATION hours (1)
	$(call for_hours,A3C in parallel,./benchmarks/a3c_parallel,-m rlcb train a3c --mode parallel,$(DURATION))

benchmark:  ## suite: ALGORITHMS (ppo) in their modes × SEEDS (1 2 3) × GAMES (coinrun), DURATION hours each, evaluation, report in OUTPUT
	$(call say,Benchmarking $(ALGORITHMS) on $(GAMES) with seeds $(SEEDS)$(,) hours of each run: $(DURATION)$(,) into $(OUTPUT))
	@$(VENV_PYTHON) -m rlcb benchmark --duration $(DURATION) --algorithms $(ALGORITHMS) --seeds $(SEEDS) --games $(GAMES) --output-dir $(OUTPUT) $(ARGS)

evaluate:  ## EPISODES (100) episodes of the newest checkpoint, or of CHECKPOINT, on LEVELS (train, unseen or both)
	$(call evaluate,,evaluate.py)

evaluate-ppo:  ## the same for the newest checkpoint of PPO
	$(call evaluate, of PPO,evaluate_universal.py --algorithm ppo)

evaluate-impala:  ## the same for the newest checkpoint of IMPALA
	$(call evaluate, of IMPALA,evaluate_universal.py --algorithm impala)

evaluate-a2c:  ## the same for the newest checkpoint of A2C
	$(call evaluate, of A2C,evaluate_universal.py --algorithm a2c)

evaluate-a3c:  ## the same for the newest checkpoint of A3C
	$(call evaluate, of A3C,evaluate_universal.py --algorithm a3c)

compare:  ## the newest sequential and parallel runs of one algorithm under LOGS (./benchmarks) side by side
	$(call say,Comparing the newest sequential and parallel runs of one algorithm under $(LOGS))
	@$(VENV_PYTHON) compare_results.py --newest $(LOGS) --output $(LOGS)/comparison.png $(ARGS)

cluster-demo:  ## three Ray nodes on this machine: PPO and IMPALA with a node lost in the middle, beside local runs
	$(call say,Training PPO and IMPALA on three Ray nodes of this machine$(,) about five minutes)
	@bash scripts/cluster_demo.sh $(ARGS)

tensorboard:  ## TensorBoard for all runs under LOGS (./benchmarks), at HOST (localhost: this machine only) and PORT (6006 or the next free one)
	$(call say,Starting TensorBoard for $(LOGS) at $(HOST)$(if $(PORT),:$(PORT)))
	@$(VENV_PYTHON) -m tensorboard.main --logdir $(LOGS) --host $(HOST) $(if $(PORT),--port $(PORT)) $(ARGS)

docs:  ## the documentation as a site in site/; dead links are errors
	$(call say,Building the documentation into site/)
	@bash scripts/docs.sh

docs-serve:  ## the same, served at http://127.0.0.1:8000 and built again when a page changes
	$(call say,Serving the documentation at http://127.0.0.1:8000)
	@bash scripts/docs.sh serve

clean:  ## remove .venv, the built site and caches; runs are kept
	$(call say,Removing .venv$(,) the built site and caches; runs are kept)
	rm -rf .venv .venv-docs site perf/.venvs .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
