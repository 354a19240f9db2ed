# Every target makes its own virtual environment in .venv and needs only Rust and Python >= 3.11.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src python -name '*.rs' -o -name '*.py' -o -name '*.pyi') Cargo.toml Cargo.lock pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help demo test test-rust test-python gpu bench lint format wheel clean

help:  ## Show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "cai_bridge needs Python 3.11 or later"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

# The package alone: all that the demo needs.
$(VENV)/.installed: $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps .
	@touch $@

$(VENV)/.tools: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --group test --group lint
	@touch $@

demo: $(VENV)/.installed  ## Run the bridge both ways, on a GPU where there is one, else simulated
	$(BIN)/python examples/01_quickstart.py

test: test-rust test-python  ## Run every test that needs no GPU

test-rust:  ## Run the core's tests, with and without the Python layer
	cargo test --quiet --no-default-features

test-python: $(VENV)/.installed $(VENV)/.tools  ## Run the Python tests on the simulated device
	$(BIN)/python -m pytest -q

# Uses the interpreter that has the GPU libraries: the package is put beside them for this run only.
gpu:  ## Run the GPU tests (PYTHON=... the interpreter with torch, CuPy, JAX, Numba)
	$(PYTHON) -m pip install --quiet --upgrade --no-deps --target $(VENV)-gpu .
	PYTHONPATH=$(VENV)-gpu XLA_PYTHON_CLIENT_PREALLOCATE=false $(PYTHON) -m pytest -q tests/gpu

bench: $(VENV)/.installed $(VENV)/.tools  ## Print the table of times, with what this machine has
	$(BIN)/python tests/bench/bench.py

lint: $(VENV)/.installed $(VENV)/.tools  ## Check formatting, lints, types and stubs
	cargo fmt --check
	cargo clippy --quiet --all-targets -- -D warnings
	cargo clippy --quiet --all-targets --no-default-features -- -D warnings
	$(BIN)/ruff format --check python tests examples
	$(BIN)/ruff check python tests examples
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest cai_bridge --ignore-disjoint-bases

format:  ## Format the sources
	cargo fmt
	$(BIN)/ruff format python tests examples
	$(BIN)/ruff check --fix python tests examples

wheel: $(BIN)/python  ## Build a wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:  ## Remove what the other targets made
	rm -rf $(VENV) $(VENV)-gpu dist target
