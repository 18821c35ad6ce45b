PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SITE := build/site

# Of what constraints.txt names, some has no version for Python 3.10: there pip takes the newest that it finds.
PINS = $(shell $(PYTHON) -c 'import sys; print("--constraint constraints.txt" * (sys.version_info >= (3, 11)))')

MINUTES := 10
SEED := 0
MUTANTS := 20

.PHONY: help install demo docs tutorials slides notebooks test test-slow soak mutants lint format clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed: make PYTHON=python3.12 ...")'
	@echo "Making a virtual environment in $(VENV) and installing the package: a few minutes, once."
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(PINS) --editable '.[test]'
	@touch $@

install: $(INSTALLED)  ## a fresh virtual environment in .venv with the package and its tools

demo: install  ## fit the bundled corpus; topics, scores and pictures (in runs/demo)
	$(BIN)/prme demo --out runs/demo

docs: install  ## the documentation site, which opens without a server or network
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env docs $(SITE)
	@echo "Open $(SITE)/index.html in a browser."

tutorials: docs  ## the tutorials as linked pages of the site
	@echo "The tutorials start at $(SITE)/tutorials/index.html."

slides: install  ## slides from the tutorials, a file each that needs no network (ONLY=01 for one)
	$(BIN)/python tutorials/slides.py $(ONLY)

notebooks: install  ## run the tutorials at full size and store what they print (ONLY=01 for one)
	$(BIN)/python tutorials/execute.py $(ONLY)

test: install  ## the tests that take seconds
	$(BIN)/python -m pytest -m "not slow" --numprocesses=auto

test-slow: install  ## the tests that take minutes
	$(BIN)/python -m pytest -m slow --numprocesses=auto

soak: install  ## try to break it, for MINUTES=10 from SEED=0; a report in build/soak.json
	$(BIN)/python -m tests.robustness --minutes $(MINUTES) --seed $(SEED) --report build/soak.json

mutants: install  ## put faults into the code (MUTANTS=20 a folder) and see whether the fast tests notice; build/mutants.json
	$(BIN)/python -m tests.mutation --random $(MUTANTS) --seed $(SEED) --report build/mutants.json

lint: install  ## ruff (lint and format), mypy, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: install  ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the virtual environment and caches
	rm -rf $(VENV) build dist docs/api docs/generated docs/tutorials/*.ipynb *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
