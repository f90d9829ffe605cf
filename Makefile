# make train | test | check | learn | bench | docs. Each sets up what it needs; running it again is quick.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ALGO   ?= ppo
ENV    ?= CartPole-v1
ARGS   ?=
PIP    := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: setup train test check format lint types learn bench docs clean
.DEFAULT_GOAL := setup

$(VENV)/.core: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "Adding the development tools (once)"
	@$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.core
	@$(PIP) --editable '.[bench]'
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	@$(PIP) --editable '.[docs]'
	@touch $@

setup: $(VENV)/.core

train: $(VENV)/.core
	@$(BIN)/pytorchrl train $(ALGO) $(ENV) $(ARGS)

test: $(VENV)/.dev
	@$(BIN)/python -m pytest --cov --cov-report=term:skip-covered --cov-fail-under=$(COVERAGE_FLOOR) $(ARGS)

# The part of CI that is not the tests.
static: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

check: static test

format: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

# The slow learning tests, several seeds each; CI skips them.
learn: $(VENV)/.dev
	@$(BIN)/python -m pytest -m slow $(ARGS)

bench: $(VENV)/.bench
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/.docs
	@$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .coverage site

# Branch coverage may only rise.
COVERAGE_FLOOR := 95
