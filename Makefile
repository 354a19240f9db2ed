# Every target makes its own virtual environment in .venv and needs only Rust and Python >= 3.11.
# `make help` shows the targets of this file; the others are in make/.

PYTHON ?= python3
# How the extension is built that tests import: test-wheel for a quick build, release for what ships.
PROFILE ?= test-wheel
# Processes of the Python tests.
JOBS ?= 2
SEED ?= 0
SECONDS ?= 300
VENV := .venv
BIN := $(VENV)/bin

# Cargo for what uses PyO3: with one environment for all, or each would build PyO3 again.
PYO3_CARGO := PYO3_PYTHON=$(CURDIR)/$(BIN)/python PYO3_BUILD_EXTENSION_MODULE=1 cargo
# The version of cudarc that the crate's own tests choose: whoever links the crate chooses it.
CUDARC := cudarc,cudarc/cuda-12000

.DEFAULT_GOAL := help
.PHONY: help demo dev test lint format docs gpu nightly

include $(sort $(wildcard make/*.mk))

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' Makefile | sed 's/:.*##/\t/' | expand -t 14
	@echo 'More are in make/*.mk: make help-all'

demo: $(VENV)/.wheel-$(PROFILE)  ## Run the bridge both ways, on a GPU where there is one, else simulated
	PYTHONPATH=$(PACKAGE) $(PYTHON) examples/01_quickstart.py

dev: $(VENV)/.tools  ## Build the extension for trying changes, where .venv/bin/python imports it; takes seconds after a change
	@rm -f $(VENV)/.installed-*
	$(BIN)/python make/dev.py
	@hooks=$$(git rev-parse --git-path hooks 2>/dev/null) && mkdir -p $$hooks && cp make/commit-msg $$hooks/ || true
	@touch $(VENV)/.dev

test:  ## Run every test that needs no GPU
	$(MAKE) --jobs=2 --output-sync=target $(TESTS_NEED)
	$(MAKE) test-rust test-python

# A tree whose GPU tests have never run has no page of their last run.
lint: lint-rust lint-python lint-commits $(if $(wildcard tests/gpu/LAST.md),lint-gpu)  ## Check formatting, lints, types, stubs, commit messages, and when the GPU tests last ran

format:  ## Format the sources
	cargo fmt
	$(BIN)/ruff format $(PYTHONS)
	$(BIN)/ruff check --fix $(PYTHONS)

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(IMPORTABLE) $(VENV)/.docs  ## Build the manual into site/, strictly: links, anchors and searches hold, nothing is fetched
	$(BIN)/python -m mkdocs build --quiet
	$(BIN)/python make/check_site.py site
	$(BIN)/python make/check_search.py site

gpu: $(VENV)/.extensions-$(PROFILE)  ## Run the GPU tests with PYTHON=..., which has torch, CuPy, JAX, Numba; writes tests/gpu/LAST.md
	PYTHONPATH=$(PACKAGE) $(PYTHON) -m tests.gpu --processes $(GPU_JOBS)

nightly:  ## Run what takes long: soaks, fuzzing, sanitizers, model checks, mutants, the suite in other orders
	@echo 'NIGHT=$(NIGHT)'
	$(MAKE) --keep-going PROFILE=release SEED=$(NIGHT) PROGRAMS=30000 SECONDS=600 $(NIGHTLY)
