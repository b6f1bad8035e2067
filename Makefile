# `make demo` and `make test` start from nothing: they install what is missing into
# .venv. The tests need a compiler, for torch-scatter and torch-sparse; all else none.
PYTHON ?= python3
TORCH := torch==2.13.0
VENV := .venv
# Modules instead of scripts: scripts hold the absolute path of their environment.
PY := $(VENV)/bin/python
PIP := $(PY) -m pip
# A stamp is written last, so that an interrupted set-up is taken up again. The package
# is installed by its path, which its stamps know.
STAMP := $(VENV)/.stamps
PLACE := $(shell pwd | cksum | cut -d ' ' -f 1)

.NOTPARALLEL:
.PHONY: demo setup test test-all lint docs

demo: $(STAMP)/demo-$(PLACE)  ## Compare a learned graph with other models on two tables
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2} $(PY) examples/demo.py

setup: $(STAMP)/sparse-$(TORCH) $(STAMP)/tools-$(PLACE)  ## Install everything into .venv

test: setup  ## Run the tests and doctests but the slow ones
	$(PYTEST) -m 'not slow'

test-all: setup  ## Run all tests and doctests, with coverage, which takes a fifth more
	$(PYTEST) --cov --cov-report=term

PYTEST = OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} MPLBACKEND=Agg $(PY) -m pytest \
	-n 2 --doctest-modules \
	test torch_geometric_gsl paper/reproduction/baselines \
	paper/reproduction/datasets paper/reproduction/self_supervision

lint: $(STAMP)/tools-$(PLACE)  ## Check style and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

docs: $(STAMP)/tools-$(PLACE)  ## Build the manual and the studies into docs/_build/html
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(PY) -m sphinx -W --keep-going $(SPHINXOPTS) \
		-b html -d docs/_build/doctrees docs docs/_build/html
	$(PY) -m sphinx -W -q -b html -d docs/_build/studies paper/docs docs/_build/html/studies

$(STAMP)/$(TORCH):
	@$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 10)' 2>/dev/null \
		|| { echo "PYTHON=$(PYTHON) is not Python 3.10 or newer" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install $(TORCH)
	mkdir -p $(STAMP) && touch $@

# These two ship as source only, and their set-up imports torch. pip caches the wheels
# it builds by Python version but not by torch's, so one that does not load is rebuilt.
# Extensions are built one on each core, without symbols, which are stripped anyway.
CORES := $(shell getconf _NPROCESSORS_ONLN || echo 2)
BUILD = CFLAGS=-g0 DIST_EXTRA_CONFIG=$(CURDIR)/$(VENV)/build.cfg \
	$(PIP) install --no-build-isolation
LOADS = $(PY) -c 'import torch_scatter, torch_sparse'

$(STAMP)/sparse-$(TORCH): $(STAMP)/$(TORCH)
	$(PIP) install torch-geometric wheel setuptools
	@echo 'Building torch-scatter and torch-sparse, which takes minutes.'
	printf '[build_ext]\nparallel = $(CORES)\n' > $(VENV)/build.cfg
	$(BUILD) torch-scatter torch-sparse
	$(LOADS) || $(BUILD) --force-reinstall --no-deps --no-cache-dir torch-scatter torch-sparse
	$(LOADS) && touch $@

$(STAMP)/demo-$(PLACE): $(STAMP)/$(TORCH) pyproject.toml
	rm -f $(STAMP)/demo-* && $(PIP) install -e '.[sklearn,plot]' && touch $@

# All but what is compiled, and with it what the demo needs.
$(STAMP)/tools-$(PLACE): $(STAMP)/$(TORCH) pyproject.toml paper/pyproject.toml
	rm -f $(STAMP)/demo-* $(STAMP)/tools-*
	$(PIP) install -e '.[test,sklearn,plot,docs,lint]' -e ./paper
	touch $(STAMP)/demo-$(PLACE) $@
