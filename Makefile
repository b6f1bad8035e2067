# `make demo` and `make test` start from nothing: they create the virtual environment
# in .venv, install into it what is missing, and run. The tests need a compiler, for
# torch-scatter and torch-sparse; all else needs none. `make help` lists the rest.

PYTHON ?= python3
WORKERS ?= 2
JOBS ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

TORCH := torch==2.13.0
SPARSE := torch-scatter torch-sparse
DEMO_EXTRAS := sklearn,plot
EXTRAS := test,$(DEMO_EXTRAS),docs,lint

VENV := .venv
# Modules instead of scripts: scripts hold the absolute path of their environment.
PY := $(VENV)/bin/python
PIP := $(PY) -m pip

# A stamp is written by the last line of its recipe, so that an interrupted set-up is
# taken up again. The package is installed by its path, so its stamp knows the path.
STAMPS := $(VENV)/.stamps
VENV_STAMP := $(STAMPS)/venv
TORCH_STAMP := $(STAMPS)/$(TORCH)
SPARSE_STAMP := $(STAMPS)/sparse-$(TORCH)
PLACE := $(shell pwd | cksum | cut -d ' ' -f 1)
DEMO_STAMP := $(STAMPS)/demo-$(PLACE)
TOOLS_STAMP := $(STAMPS)/tools-$(PLACE)
PACKAGE_STAMP := $(STAMPS)/package-$(PLACE)

.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all lint format docs clean distclean

help:  ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile

setup: $(PACKAGE_STAMP)  ## Install everything into .venv

demo: $(DEMO_STAMP)  ## Compare a learned graph with other models on two tables
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2} $(PY) examples/demo.py

test: setup  ## Run the tests and doctests but the slow ones, with coverage
	$(PYTEST) -m 'not slow' --cov --cov-report=term \
		--doctest-modules $(TESTED)

test-all: setup  ## Run all tests and doctests, with coverage
	$(PYTEST) --cov --cov-report=term --doctest-modules $(TESTED)

TESTED := test torch_geometric_gsl paper/reproduction/baselines

PYTEST = OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} MPLBACKEND=Agg \
	$(PY) -m pytest -n $(WORKERS)

lint: $(TOOLS_STAMP)  ## Check style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(TOOLS_STAMP)  ## Apply the style
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

docs: $(TOOLS_STAMP)  ## Build the documentation into docs/_build/html
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} \
	$(PY) -m sphinx -W --keep-going $(SPHINXOPTS) -b html -d docs/_build/doctrees docs docs/_build/html

clean:  ## Remove what tests and builds leave behind
	rm -rf build dist *.egg-info docs/_build docs/auto_gallery docs/generated
	rm -rf .coverage .coverage.* htmlcov coverage.xml
	rm -rf .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -path './$(VENV)' -prune -o -type d -name __pycache__ -exec rm -rf {} +

distclean: clean  ## Remove the virtual environment as well
	rm -rf $(VENV)

$(VENV_STAMP):
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 10)' 2>/dev/null \
		|| { echo "PYTHON=$(PYTHON) is not Python 3.10 or newer" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	mkdir -p $(STAMPS)
	touch $@

$(TORCH_STAMP): $(VENV_STAMP)
	$(PIP) install $(TORCH)
	touch $@

# These two ship as source only, and their set-up imports torch. pip caches the wheels
# it builds by Python version but not by torch's, so one that does not load is rebuilt.
$(SPARSE_STAMP): $(TORCH_STAMP)
	$(PIP) install torch-geometric ninja wheel setuptools
	@echo 'Building $(SPARSE) on $(JOBS) cores: about nine minutes on two.'
	$(BUILD) $(SPARSE)
	$(LOADS) || $(BUILD) --force-reinstall --no-deps --no-cache-dir $(SPARSE)
	$(LOADS)
	touch $@

BUILD = PATH="$(CURDIR)/$(VENV)/bin:$$PATH" MAX_JOBS=$(JOBS) \
	$(PIP) install --no-build-isolation
LOADS = $(PY) -c 'import torch_scatter, torch_sparse'

$(DEMO_STAMP): $(TORCH_STAMP) setup.py
	rm -f $(STAMPS)/demo-*
	$(PIP) install -e '.[$(DEMO_EXTRAS)]'
	touch $@

# All but what is compiled, and with it what the demo needs.
$(TOOLS_STAMP): $(TORCH_STAMP) setup.py paper/pyproject.toml
	rm -f $(STAMPS)/tools-* $(STAMPS)/demo-*
	$(PIP) install -e '.[$(EXTRAS)]' -e ./paper
	touch $(DEMO_STAMP) $@

$(PACKAGE_STAMP): $(SPARSE_STAMP) $(TOOLS_STAMP)
	rm -f $(STAMPS)/package-*
	touch $@
