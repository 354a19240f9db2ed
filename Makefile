# Every target makes its own virtual environment in .venv and needs only Rust and Python >= 3.11.

PYTHON ?= python3
PROGRAMS ?= 100000
SEED ?= 0
SOAK_SECONDS ?= 180
SECONDS ?= 300
MANNERS ?= told handles unsaid
# Where the libraries of soak-gpu get their memory: pools, async or segments.
MEMORY ?= pools
VENV := .venv
BIN := $(VENV)/bin
PACKAGE := $(VENV)/package
SOURCES := $(shell find src python -name '*.rs' -o -name '*.py' -o -name '*.pyi') Cargo.toml Cargo.lock pyproject.toml

.DEFAULT_GOAL := help
.PHONY: help dev demo test test-rust test-python soak gpu soak-gpu bench docs lint format wheel wheels clean
.PHONY: extensions header public-api msrv loom asan tsan fuzz fuzz-minimise flat mutants mutants-python counts fakes

help:  ## Show what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "cai_bridge needs Python 3.11 or later"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

# One wheel, installed twice: into the virtual environment for the tests, and alone into a folder, so
# that an interpreter which has GPU libraries can import it beside them.
$(VENV)/.wheel: $(BIN)/python $(SOURCES)
	rm -rf $(VENV)/wheel $(PACKAGE)
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(VENV)/wheel .
	$(BIN)/python -m pip install --quiet --no-deps --target $(PACKAGE) $(VENV)/wheel/*.whl
	@touch $@

$(VENV)/.installed: $(VENV)/.wheel
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps $(VENV)/wheel/*.whl
	@touch $@

dev: $(VENV)/.tools  ## Build the extension for trying changes, where .venv/bin/python imports it; seconds after a change
	@rm -f $(VENV)/.installed
	$(BIN)/python make/dev.py

# The examples that are extensions of their own, installed where the package is.
EXTENSIONS := examples/rust_extension examples/memory_class
EXTENSION_SOURCES := $(shell find $(EXTENSIONS) -name '*.rs' -o -name '*.toml')

$(VENV)/.extensions: $(VENV)/.installed $(EXTENSION_SOURCES)
	rm -rf $(VENV)/extensions
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(VENV)/extensions $(EXTENSIONS:%=./%)
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps $(VENV)/extensions/*.whl
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(PACKAGE) $(VENV)/extensions/*.whl
	@touch $@

$(VENV)/.tools: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --group test --group lint
	@touch $@

$(VENV)/.docs: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

# A driver of stubs and stand-ins for the libraries, beside a bridge that kept its symbols.
FAKES := $(VENV)/fakes
COUNTED := $(VENV)/counted
FAKE_SOURCES := $(shell find tests/fake_driver tests/fake_libraries -name '*.rs' -o -name 'Cargo.*')

$(FAKES)/.built: $(BIN)/python $(FAKE_SOURCES)
	mkdir -p $(FAKES)
	cargo build --quiet --release --manifest-path tests/fake_driver/Cargo.toml --target-dir target/fakes
	PYO3_BUILD_EXTENSION_MODULE=1 PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo build --quiet --release \
		--manifest-path tests/fake_libraries/Cargo.toml --target-dir target/fakes
	cp target/fakes/release/libcuda.so $(FAKES)/libcuda.so.1
	cp target/fakes/release/libfake_libraries.so $(FAKES)/fake_libraries.abi3.so
	@touch $@

demo: $(VENV)/.installed  ## Run the bridge both ways, on a GPU where there is one, else simulated
	PYTHONPATH=$(PACKAGE) $(PYTHON) examples/01_quickstart.py

test: test-rust test-python  ## Run every test that needs no GPU

# An example that must not compile names its error, which rustdoc compares where unstable features are open.
test-rust:  ## Run the core's tests, which need no Python
	cargo test --quiet --no-default-features
	cargo test --quiet --no-default-features --features cudarc --test cudarc
	RUSTC_BOOTSTRAP=1 cargo test --quiet --no-default-features --features cudarc --doc --target-dir target/api

MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1.0/p' Cargo.toml)

msrv:  ## Check each set of features with the oldest Rust that Cargo.toml promises; needs `rustup toolchain install`
	for features in "" cudarc python cudarc,python wheel wheel,cudarc; do \
		cargo +$(MSRV) check --quiet --locked --target-dir target/msrv --no-default-features --features "$$features" || exit 1; \
	done
	for example in $(EXTENSIONS); do \
		cargo +$(MSRV) check --quiet --locked --target-dir target/msrv --manifest-path $$example/Cargo.toml || exit 1; \
	done

extensions: $(VENV)/.extensions  ## Build the examples that are Rust extensions, as wheels, and install them

# The examples of the crate that need an interpreter are compiled, and do not run.
test-python: $(VENV)/.extensions $(VENV)/.tools $(FAKES)/.built  ## Run the Python tests on the simulated device
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python cargo test --quiet --no-default-features --features cudarc,python --doc \
		--target-dir target/api -- py::rust src/lib.rs
	$(BIN)/python -m pytest -q

soak: $(VENV)/.installed $(VENV)/.tools  ## Run PROGRAMS=100000 random programs on the simulated device, from SEED=0, and a few over stand-ins
	$(BIN)/python -m tests.soak --programs $(PROGRAMS) --seed $(SEED)
	for manner in $(MANNERS); do \
		$(BIN)/python -m tests.soak_gpu --simulated --manner $$manner --programs $$(( $(PROGRAMS) / 30 )) --seed $(SEED) || exit 1; \
	done

gpu: $(VENV)/.extensions  ## Run the GPU tests; PYTHON=... is the interpreter with torch, CuPy, JAX, Numba
	PYTHONPATH=$(PACKAGE) XLA_PYTHON_CLIENT_PREALLOCATE=false $(PYTHON) -m pytest -q tests/gpu

soak-gpu: $(VENV)/.extensions  ## Run random programs over PYTHON=...'s libraries, SOAK_SECONDS=180 of each of MANNERS
	status=0; for manner in $(MANNERS); do \
		PYTHONPATH=$(PACKAGE) XLA_PYTHON_CLIENT_PREALLOCATE=false $(PYTHON) -m tests.soak_gpu \
			--manner $$manner --memory $(MEMORY) --seconds $(SOAK_SECONDS) --seed $(SEED) || status=1; \
	done; exit $$status

bench: $(VENV)/.installed  ## Print the table of times, with the libraries that PYTHON=... has; MACHINE=... draws it
	PYTHONPATH=$(PACKAGE) $(PYTHON) tests/bench/bench.py --json $(VENV)/bench.json
	$(if $(MACHINE),$(BIN)/python docs/draw_speed.py "$(MACHINE)" $$(date +%F) $(VENV)/bench.json)

$(COUNTED)/.built: export CARGO_PROFILE_RELEASE_STRIP = none
$(COUNTED)/.built: export CARGO_PROFILE_RELEASE_DEBUG = 1
$(COUNTED)/.built: $(BIN)/python $(SOURCES)
	PYO3_BUILD_EXTENSION_MODULE=1 PYO3_PYTHON=$(BIN)/python \
		cargo build --quiet --release --lib --target-dir target/counted
	rm -rf $(COUNTED) && mkdir -p $(COUNTED) && cp -R python/cai_bridge $(COUNTED)/
	cp target/counted/release/libcai_bridge.so $(COUNTED)/cai_bridge/_core.abi3.so
	$(BIN)/python -m compileall -q $(COUNTED)  # a first import, which compiles, counts otherwise
	@touch $@

fakes: $(FAKES)/.built  ## Build the driver of stubs that the real CUDA door is tested over

counts: $(FAKES)/.built $(COUNTED)/.built $(VENV)/.tools  ## Count each conversion's instructions and calls, against the committed table; WRITE=1 writes it
	$(BIN)/python -m tests.counts $(FAKES) $(COUNTED) $(if $(WRITE),--write)

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/.installed $(VENV)/.docs  ## Build the manual into site/, strictly: each link and anchor holds, nothing is fetched
	$(BIN)/python -m mkdocs build --quiet
	$(BIN)/python docs/check_site.py site

lint: $(VENV)/.installed $(VENV)/.tools  ## Check formatting, lints, types and stubs
	cargo fmt --check
	cargo fmt --check --manifest-path fuzz/Cargo.toml
	cargo clippy --quiet --all-targets -- -D warnings
	cargo clippy --quiet --all-targets --no-default-features -- -D warnings
	cargo clippy --quiet --all-targets --no-default-features --features cudarc,python -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --quiet --no-deps --no-default-features --features cudarc,python
	$(BIN)/ruff format --check python tests examples docs make
	$(BIN)/ruff check python tests examples docs make
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest cai_bridge._core --ignore-disjoint-bases

format:  ## Format the sources
	cargo fmt
	$(BIN)/ruff format python tests examples docs make
	$(BIN)/ruff check --fix python tests examples docs make

loom:  ## Model check the owner: every interleaving of its calls
	RUSTFLAGS="--cfg loom" cargo test --quiet --no-default-features --lib --target-dir target/loom

# Stable Rust has the sanitizers behind -Z, which RUSTC_BOOTSTRAP opens.
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
SANITIZED = --no-default-features --tests --target $(HOST)
# What takes foreign structures in, hands them out, and lets go of them.
ASAN_TESTS := $(addprefix tests/python/test_, awkward_moments.py cai_dict.py dlpack_export.py \
	endings.py exchange_tables.py forks.py lifetimes.py refusals.py refused_objects.py threads.py)
# CPython knows nothing of the sanitizer, so its runtime is loaded first: GCC's, whose interface is the
# same. Its own leaks are left out, and its allocator, which would hide what is behind an object. The
# reports are on stderr, which pytest is not to take.
UNDER_ASAN = LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc PYTHONPATH=$(VENV)/asan

asan: export RUSTC_BOOTSTRAP = 1
asan: export RUSTFLAGS = -Zsanitizer=address
asan: export LSAN_OPTIONS = suppressions=tests/endurance/lsan.supp:print_suppressions=0
asan: $(VENV)/.tools  ## Run the core's tests, and the Python tests of foreign memory, under AddressSanitizer
	cargo test --quiet $(SANITIZED) --target-dir target/asan
	PYO3_BUILD_EXTENSION_MODULE=1 PYO3_PYTHON=$(BIN)/python \
		cargo build --quiet --lib --target $(HOST) --target-dir target/asan
	rm -rf $(VENV)/asan && mkdir -p $(VENV)/asan && cp -R python/cai_bridge $(VENV)/asan/
	cp target/asan/$(HOST)/debug/libcai_bridge.so $(VENV)/asan/cai_bridge/_core.abi3.so
	$(UNDER_ASAN) $(BIN)/python -m pytest -q --capture=sys $(ASAN_TESTS)

# The standard library has to be built with it, too: without that its locks look like races.
tsan: export RUSTC_BOOTSTRAP = 1
tsan: export RUSTFLAGS = -Zsanitizer=thread
tsan:  ## Run the core's tests under ThreadSanitizer; needs `rustup component add rust-src`
	cargo test --quiet $(SANITIZED) -Zbuild-std --target-dir target/tsan

# libFuzzer's own flags for the compiler, as cargo-fuzz has them. What it finds new is kept in target/fuzz,
# and what fails there too, as $(FUZZ)/TARGET-crash-...: mended, that goes into fuzz/corpus/TARGET.
FUZZ = target/fuzz
FUZZ_TARGETS := $(notdir $(wildcard fuzz/corpus/*))
FUZZER = $(FUZZ)/$(HOST)/release/fuzz
SANCOV = -Cpasses=sancov-module $(addprefix -Cllvm-args=-sanitizer-coverage-, level=4 \
	inline-8bit-counters pc-table trace-compares)
# One share more than there are targets: the last is that of the Python objects.
SHARE = $$(( $(SECONDS) / $(words $(FUZZ_TARGETS) python) ))

$(FUZZ)/.built: export RUSTC_BOOTSTRAP = 1
$(FUZZ)/.built: export RUSTFLAGS = --cfg fuzzing -Zsanitizer=address $(SANCOV)
$(FUZZ)/.built: $(SOURCES) $(shell find fuzz/src fuzz/bodies -name '*.rs') fuzz/Cargo.toml fuzz/Cargo.lock
	cargo build --quiet --release --locked --manifest-path fuzz/Cargo.toml --target $(HOST) --target-dir $(FUZZ)
	@touch $@

fuzz: $(FUZZ)/.built $(VENV)/.installed $(VENV)/.tools  ## Fuzz for SECONDS=300 in all: the core by coverage, the bridge by hostile objects from SEED=0
	for target in $(FUZZ_TARGETS); do \
		mkdir -p $(FUZZ)/found/$$target && TARGET=$$target $(FUZZER) $(FUZZ)/found/$$target fuzz/corpus/$$target \
			-max_len=600 -max_total_time=$(SHARE) -artifact_prefix=$(FUZZ)/$$target- || exit 1; \
	done
	$(BIN)/python -m tests.fuzz --seconds $(SHARE) --seed $(SEED)

fuzz-minimise: $(FUZZ)/.built  ## Add to the committed corpora what reaches more, as few inputs as that takes
	for target in $(FUZZ_TARGETS); do \
		TARGET=$$target $(FUZZER) -set_cover_merge=1 -use_counters=0 fuzz/corpus/$$target $(FUZZ)/found/$$target || exit 1; \
	done

flat: $(VENV)/.installed  ## Show that a million rounds of each conversion do not make a process grow
	$(BIN)/python tests/endurance/flat.py

$(VENV)/cargo/bin/cargo-mutants:
	cargo install --quiet --locked --root $(VENV)/cargo cargo-mutants

mutants: $(VENV)/cargo/bin/cargo-mutants  ## Change the core's code, and show that its tests notice
	$(VENV)/cargo/bin/cargo-mutants mutants --output target

mutants-python: $(VENV)/.installed $(VENV)/.tools  ## Change the Python that judges for SECONDS=300, drawn by SEED=0, and show that its tests notice
	$(BIN)/python -m tests.mutants --seconds $(SECONDS) --seed $(SEED)

# cbindgen is the developer's to install.
header:  ## Write include/cai_bridge.h from src/py/c.rs
	cbindgen --quiet --config cbindgen.toml --output include/cai_bridge.h src/py/c.rs

public-api: export RUSTC_BOOTSTRAP = 1
public-api: $(BIN)/python  ## Write docs/public-api.txt, the list of what the crate promises
	cargo rustdoc --quiet --lib --no-default-features --features cudarc,python --target-dir target/api \
		-- -Z unstable-options --output-format json --document-hidden-items
	$(BIN)/python docs/list_public_api.py target/api/doc/cai_bridge.json > docs/public-api.txt

wheel: $(VENV)/.installed  ## Build a wheel into dist/
	mkdir -p dist && cp $(VENV)/wheel/*.whl dist/

# Zig links against the C library of manylinux_2_28, so no container is needed. The stable-ABI wheel serves
# every CPython from 3.11 on; free-threaded CPython has an ABI of its own. Each target is rustup's to add.
WHEEL_MACHINES ?= x86_64 aarch64
WHEEL_PYTHONS ?= 3.11 3.14t
RELEASE := $(VENV)/release
FRESH := $(VENV)/fresh

$(RELEASE)/.tools: pyproject.toml
	$(PYTHON) -m venv --clear $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(RELEASE)/bin/python -m pip install --quiet --group wheels
	@touch $@

wheels: export PATH := $(CURDIR)/$(RELEASE)/bin:$(PATH)
wheels: $(RELEASE)/.tools  ## Build the release into dist/: wheels of WHEEL_MACHINES and WHEEL_PYTHONS, sdist; check it, and try this machine's
	rm -rf dist
	for machine in $(WHEEL_MACHINES); do for python in $(WHEEL_PYTHONS); do \
		maturin build --quiet --release --locked --zig --target $$machine-unknown-linux-gnu \
			--compatibility manylinux_2_28 --interpreter python$$python --out dist || exit 1; \
	done; done
	maturin sdist --out dist
	twine check --strict dist/*
	$(PYTHON) -m venv --clear $(FRESH)
	$(FRESH)/bin/python -m pip install --quiet --no-index dist/*-abi3-*_$(firstword $(subst -, ,$(HOST))).whl
	$(FRESH)/bin/python examples/01_quickstart.py
	$(FRESH)/bin/python docs/programs/start.py
	$(FRESH)/bin/cai-bridge doctor

clean:  ## Remove what the other targets made
	rm -rf $(VENV) dist site target
