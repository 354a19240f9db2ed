# Every target makes its own virtual environment in .venv and needs only Rust and Python >= 3.11.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGE := $(VENV)/package
SOURCES := $(shell find src python -name '*.rs' -o -name '*.py' -o -name '*.pyi') Cargo.toml Cargo.lock pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help demo test test-rust test-python gpu bench lint format wheel clean

help:  ## Show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "cai_bridge needs Python 3.11 or later"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

# One wheel, installed twice: into the virtual environment for the tests, and alone into a folder, so
# that an interpreter which has GPU libraries can import it beside them.
$(VENV)/.installed: $(BIN)/python $(SOURCES)
	rm -rf $(VENV)/wheel $(PACKAGE)
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(VENV)/wheel .
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps $(VENV)/wheel/*.whl
	$(BIN)/python -m pip install --quiet --no-deps --target $(PACKAGE) $(VENV)/wheel/*.whl
	@touch $@

$(VENV)/.tools: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --group test --group lint
	@touch $@

demo: $(VENV)/.installed  ## Run the bridge both ways, on a GPU where there is one, else simulated
	PYTHONPATH=$(PACKAGE) $(PYTHON) examples/01_quickstart.py

test: test-rust test-python  ## Run every test that needs no GPU

test-rust:  ## Run the core's tests, which need no Python
	cargo test --quiet --no-default-features

test-python: $(VENV)/.installed $(VENV)/.tools  ## Run the Python tests on the simulated device
	$(BIN)/python -m pytest -q

gpu: $(VENV)/.installed  ## Run the GPU tests; PYTHON=... is the interpreter with torch, CuPy, JAX, Numba
	PYTHONPATH=$(PACKAGE) XLA_PYTHON_CLIENT_PREALLOCATE=false $(PYTHON) -m pytest -q tests/gpu

bench: $(VENV)/.installed  ## Print the table of times, with the libraries that PYTHON=... has
	PYTHONPATH=$(PACKAGE) $(PYTHON) tests/bench/bench.py

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

wheel: $(VENV)/.installed  ## Build a wheel into dist/
	mkdir -p dist && cp $(VENV)/wheel/*.whl dist/

clean:  ## Remove what the other targets made
	rm -rf $(VENV) dist target
