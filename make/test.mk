# The parts of `make test` and `make lint`.

PYTHONS := python tests examples docs make
# An example that must not compile names its error, which rustdoc compares where unstable features are open.
UNSTABLE_RUSTDOC := RUSTDOC=$(CURDIR)/make/rustdoc
# Some images forbid Python to keep what it compiles: each worker would rewrite all tests anew. And the threads that
# OpenBLAS starts when NumPy is imported spin for a while: a tenth of a second in each child.
QUICK := PYTHONDONTWRITEBYTECODE= OPENBLAS_NUM_THREADS=1
.PHONY: tests-of-a-wheel test-rust test-python lint-rust lint-python lint-commits lint-gpu style

CORE := --features arrays,half,num-complex,float8,$(CUDARC)
IN_PERTURB := --manifest-path perturb/Cargo.toml --target-dir target/perturb

core-tests:
	cargo test --quiet --no-run $(CORE)
	cargo test --quiet --no-run $(IN_PERTURB)

test-rust:  ## Run the core's tests, which need no Python
	$(UNSTABLE_RUSTDOC) cargo test --quiet $(CORE)
	cargo test --quiet $(IN_PERTURB)

test-python: $(VENV)/.extensions-$(PROFILE) $(VENV)/.tools $(FAKES)/.built $(PERTURB)  ## Run the Python tests on the simulated device
	$(QUICK) $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile

# What depends on the interpreter: the C structures, the exchange API, the C interface, and the package itself.
tests-of-a-wheel:  ## List the tests that each Python and wheel has at every push
	@echo $(addprefix tests/python/test_, dlpack_abi.py exchange_tables.py c_interface.py package.py)

# The examples of the crate that need an interpreter are compiled, and do not run.
lint-rust: $(BIN)/python
	cargo fmt --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo fmt --check --manifest-path perturb/Cargo.toml
	cargo clippy --quiet --all-targets $(IN_PERTURB) -- -D warnings
	$(PYO3_CARGO) clippy --quiet --all-targets --features wheel -- -D warnings
	$(PYO3_CARGO) clippy --quiet -- -D warnings
	$(PYO3_CARGO) clippy --quiet --features dlpack -- -D warnings
	$(PYO3_CARGO) clippy --quiet --all-targets --features arrays -- -D warnings
	$(PYO3_CARGO) clippy --quiet --all-targets --features $(CUDARC),python,half,num-complex,float8 -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(PYO3_CARGO) doc --quiet --no-deps --features $(CUDARC),python,half,num-complex,float8
	$(PYO3_CARGO) test --quiet --features $(CUDARC),python,half,num-complex,float8 --doc -- py::rust src/lib.rs

lint-python: $(IMPORTABLE) $(VENV)/.tools
	$(BIN)/ruff format --check $(PYTHONS)
	$(BIN)/ruff check $(PYTHONS)
	$(BIN)/mypy
	$(BIN)/mypy --follow-imports silent --disallow-any-expr tests/typing/public.py
	$(BIN)/python docs/generate.py --check
	$(BIN)/python -m mypy.stubtest cai_bridge._core --ignore-disjoint-bases

style: $(BIN)/python  ## List comments and sentences that a reader may not follow; FILES="..." lists those of some
	$(BIN)/python make/style.py $(FILES)

lint-commits: $(BIN)/python
	$(BIN)/python make/commits.py

lint-gpu: $(BIN)/python
	$(BIN)/python -m tests.gpu.since
