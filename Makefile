# `make help` lists what there is. Nothing is needed but python3 (3.11 or later, with venv), make and git.

PYTHON  ?= python3
VENV    ?= .venv
PROGRAM ?= layer_norm_residual
BUDGET  ?= 20
PEERS   ?= .venv-peers
PEERS_OPTIONS ?=
STUDY_OPTIONS ?=
MINUTES ?= 10
RECORDS ?= datasets/measurements/cpu.npz
JOBS    ?= 2

BIN     := $(VENV)/bin
CHECKED := autofuse cost_models search datasets experiments tests
PYTEST  := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
# an editable install with extras is done once per state of pyproject.toml
TEST    := $(VENV)/.installed-test
TUNE    := $(VENV)/.installed-tune
CUDA    := $(VENV)/.installed-cuda

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup tune test quick test-all test-hosts test-optimised lint types layers format bench quality rules peers first-call before-after fidelity gpu gpu-counts dataset cost-model cost-model-eval clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Variables: PYTHON=$(PYTHON) VENV=$(VENV) PROGRAM=$(PROGRAM) BUDGET=$(BUDGET) (seconds per policy, make tune) JOBS=$(JOBS) (tests at a time)"

setup: $(TEST) ## make .venv with everything that development needs

tune: $(TUNE) ## tune a program, print the policies side by side, reload the plan in a new process and check it
	@mkdir -p plans
	$(BIN)/autofuse compare datasets/workloads/$(PROGRAM).py --size full --budget $(BUDGET) --save plans
	$(BIN)/autofuse run plans/$(PROGRAM)-measured.json --check

test: lint layers ## all checks and the quick tests: what must pass before a change is proposed
	@$(MAKE) --no-print-directory --jobs=2 types quick

quick: $(TEST)
	$(PYTEST) -m "not slow and not gpu"

test-all: lint types layers $(TEST) test-hosts test-optimised ## all checks and all tests: exhaustive, other hosts, python -O
	$(PYTEST)

test-hosts: $(TEST) ## the quick tests on made-up machines: small caches, vectors of 256 bits, one core
	$(foreach host,small-caches avx2 one-core,$(PYTEST) -m "not slow and not gpu" --host=$(host) &&) true

test-optimised: $(TEST) ## the quick tests under python -O: no assert may do work
	PYTHONOPTIMIZE=1 $(PYTEST) -m "not slow and not gpu"

lint: $(TEST) ## ruff: errors, style, formatting
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)

types: $(TEST) ## basedpyright, strict
	$(BIN)/basedpyright --pythonpath $(BIN)/python

layers: $(TEST) ## imports run downward only
	$(BIN)/lint-imports

format: $(TEST) ## rewrite the code as ruff formats it
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

bench: $(TUNE) ## the CPU study: every program under every policy against NumPy (about an hour)
	$(BIN)/python experiments/cpu_first/run.py

quality: $(TUNE) ## how near to the best does the search come? (hours; STUDY_OPTIONS="--quick" takes a minute)
	$(BIN)/python experiments/search_quality/run.py $(STUDY_OPTIONS)

rules: $(TUNE) ## rules of other compilers against search (hours; STUDY_OPTIONS="--quick" takes minutes)
	$(BIN)/python experiments/rules_vs_search/run.py $(STUDY_OPTIONS)

peers: $(PEERS)/.installed ## autofuse beside NumPy, JAX, torch.compile and Numba (two hours; PEERS_OPTIONS="--quick" takes minutes)
	$(PEERS)/bin/python experiments/peers/run.py $(PEERS_OPTIONS)

first-call: $(PEERS)/.installed ## the first call of each program in a fresh process, beside JAX and torch.compile (half an hour)
	$(PEERS)/bin/python experiments/first_call/run.py $(STUDY_OPTIONS)

before-after: $(TUNE) ## bits, plans, calls and loads beside another checkout (an hour; BEFORE=its folder, STUDY_OPTIONS="--quick")
	$(BIN)/python experiments/before_after/run.py --before $(BEFORE) $(STUDY_OPTIONS)

fidelity: $(PEERS)/.installed ## do the rule policies fuse what the real XLA:CPU and Inductor fuse? (a quarter of an hour)
	$(PEERS)/bin/python experiments/rule_fidelity/run.py

gpu: $(if $(GPU_PYTHON),,$(TUNE) $(CUDA)) ## what this machine's GPU does, for MINUTES (carries on); GPU_PYTHON=a Python that has all it needs
	$(or $(GPU_PYTHON),$(BIN)/python) experiments/gpu/run.py --minutes $(MINUTES) $(STUDY_OPTIONS)

gpu-counts: $(TEST) ## what kernels ask of a GPU, counted on the host without one (a few minutes)
	$(BIN)/python experiments/gpu_counts/run.py $(STUDY_OPTIONS)

dataset: $(TUNE) ## measure the kernels that cost models are trained on (over an hour; carries on)
	$(BIN)/python experiments/dataset/run.py $(STUDY_OPTIONS)

cost-model: $(TUNE) ## train the learned cost model on RECORDS, into cost_models/trained
	$(BIN)/python experiments/cost_model_eval/train.py $(RECORDS) $(STUDY_OPTIONS)

cost-model-eval: $(TUNE) ## cost models compared on RECORDS, without the machine they come from (STUDY_OPTIONS="--quick")
	$(BIN)/python experiments/cost_model_eval/run.py $(RECORDS) $(STUDY_OPTIONS)

clean: ## remove the environments, caches and build results; plans/ stays
	rm -rf $(VENV) $(PEERS) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "autofuse needs Python 3.11 or later; say make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.installed-%: pyproject.toml | $(VENV)/bin/python
	PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --editable '.[$*]'
	@touch $@

# The peers live apart from development: torch is large, and its CPU build, where the package index has one, is enough.
$(PEERS)/.installed: pyproject.toml
	@test -x $(PEERS)/bin/python || $(MAKE) --no-print-directory VENV=$(PEERS) $(PEERS)/bin/python
	$(PEERS)/bin/python -m pip install --quiet "torch==$$(sed -n 's/.*"torch==\([0-9.]*\)".*/\1/p' pyproject.toml)+cpu" || \
		echo "no CPU build of torch in this package index; the next line takes the usual one"
	PYTHONWARNINGS=ignore $(PEERS)/bin/python -m pip install --quiet --editable '.[tune,peers]'
	@touch $@
