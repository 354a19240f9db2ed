# What is built: the wheel, the examples that are extensions, stand-ins, and the environment's tools.

PACKAGE := $(VENV)/package-$(PROFILE)
SOURCES := $(shell find src python -name '*.rs' -o -name '*.py' -o -name '*.pyi') Cargo.toml Cargo.lock pyproject.toml
# After `make dev` what needs the package uses that build, else the wheel.
IMPORTABLE := $(if $(wildcard $(VENV)/.dev),dev,$(VENV)/.installed-$(PROFILE))
.PHONY: builds core-tests extensions fakes wheel clean

$(BIN)/python:
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "cai_bridge needs Python 3.11 or later"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'

# One wheel for each profile, installed twice: into the virtual environment for the tests, and alone into
# a folder, so that an interpreter which has GPU libraries can import it beside them.
# The paths of the machine that builds it are left out: those of the standard library are its own where the toolchain
# has its sources, as `make tsan` needs.
CARGO_FOLDER = $(or $(CARGO_HOME),$(HOME)/.cargo)
RUST_FOLDER := $(shell rustc --print sysroot 2>/dev/null)
REMAPPED = --remap-path-prefix=$(CARGO_FOLDER)=/cargo --remap-path-prefix=$(RUST_FOLDER)=/rust \
	--remap-path-prefix=$(CURDIR)=/cai_bridge
# How the release profile is built: as it ships, the same without the profile of make/pgo (pgo.mk), or for whole suites
# by hand without what makes it slow.
AS_release = CARGO_TARGET_DIR=$(CURDIR)/target CARGO_BUILD_TARGET=$(HOST)
AS_plain = $(AS_release)
SHAPED_release = $(SHAPED)
SHAPES := make/pgo.py $(wildcard make/pgo/*)
AS_test-wheel := CARGO_TARGET_DIR=$(CURDIR)/target/test-wheel CARGO_PROFILE_RELEASE_LTO=off \
	CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_INCREMENTAL=true

# The library that `cai-bridge perturb` preloads (perturb.mk).
PERTURB := python/cai_bridge/_perturb.so

$(VENV)/.wheel-%: $(BIN)/python $(SOURCES) $(SHAPES) $(PERTURB)
	rm -rf $(VENV)/wheel-$* $(VENV)/package-$*
	RUSTFLAGS="$$RUSTFLAGS $(REMAPPED) $(SHAPED_$*)" $(AS_$*) $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(VENV)/wheel-$* .
	$(BIN)/python make/check_wheel.py $(VENV)/wheel-$*/*.whl
	$(BIN)/python -m pip install --quiet --no-deps --target $(VENV)/package-$* $(VENV)/wheel-$*/*.whl
	@touch $@

# Not beside the tools: pip would be at work twice in one place.
$(VENV)/.installed-%: $(VENV)/.wheel-% | $(VENV)/.tools
	@rm -f $(VENV)/.dev $(VENV)/.installed-* $(VENV)/.extensions-*
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps $(VENV)/wheel-$*/*.whl
	@touch $@

# The examples that are extensions of their own, and the tests' extension, installed where the package is. With the
# wheel's flags, in its folder, they are built on what it was built on, and the crate for all of them once.
EXTENSIONS := examples/rust_extension examples/memory_class tests/extension
EXTENSION_SOURCES := $(shell find $(EXTENSIONS) -name '*.rs' -o -name '*.ptx' -o -name '*.toml')

$(VENV)/.extensions-%: $(VENV)/.installed-% $(EXTENSION_SOURCES)
	rm -rf $(VENV)/extensions
	RUSTFLAGS="$$RUSTFLAGS $(REMAPPED) $(SHAPED_$*)" $(AS_$*) $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(VENV)/extensions $(EXTENSIONS:%=./%)
	$(BIN)/python -m pip install --quiet --force-reinstall --no-deps $(VENV)/extensions/*.whl
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(VENV)/package-$* $(VENV)/extensions/*.whl
	@touch $@

extensions: $(VENV)/.extensions-$(PROFILE)  ## Build the Rust extensions of the examples and tests, as wheels, and install them

$(VENV)/.tools: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --group test --group lint
	@touch $@

$(VENV)/.docs: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --group docs
	@touch $@

# A driver of stubs, and stand-ins for the libraries.
FAKES := $(VENV)/fakes
FAKE_SOURCES := $(shell find tests/fake_driver tests/fake_libraries -name '*.rs' -o -name 'Cargo.*')

$(FAKES)/.built: $(BIN)/python $(FAKE_SOURCES)
	mkdir -p $(FAKES)
	cargo build --quiet --release --manifest-path tests/fake_driver/Cargo.toml --target-dir target/fakes
	$(PYO3_CARGO) build --quiet --release --manifest-path tests/fake_libraries/Cargo.toml --target-dir target/fakes
	cp target/fakes/release/libcuda.so $(FAKES)/libcuda.so.1
	cp target/fakes/release/libfake_libraries.so $(FAKES)/fake_libraries.abi3.so
	@touch $@

fakes: $(FAKES)/.built  ## Build the driver of stubs that the real CUDA door is tested over

# A bridge that kept its symbols, for `make counts`: the code that ships. Cargo's profile stays as it is, since the names
# of functions hang on it, and the profile of make/pgo on these.
COUNTED := $(VENV)/counted
EXTENSION_CARGO = $(PYO3_CARGO) rustc --quiet --release --lib --crate-type cdylib --features wheel --target $(HOST)
WITH_SYMBOLS := -Cstrip=none -Cdebuginfo=1 -Cllvm-args=-pgo-warn-missing-function

$(COUNTED)/.built: export RUSTFLAGS += $(REMAPPED) $(SHAPED)
$(COUNTED)/.built: $(BIN)/python $(SOURCES) $(SHAPES)
	rm -rf $(COUNTED) && mkdir -p $(COUNTED) && cp -R python/cai_bridge $(COUNTED)/
	$(EXTENSION_CARGO) --target-dir target/counted -- $(WITH_SYMBOLS) 2> $(COUNTED)/said || { cat $(COUNTED)/said; exit 1; }
	cp target/counted/$(HOST)/release/libcai_bridge.so $(COUNTED)/cai_bridge/_core.abi3.so
	$(BIN)/python -m compileall -q $(COUNTED)  # a first import, which compiles, counts otherwise
	@touch $@

# What `make test` builds, side by side: linkers and pip keep one core busy at most.
TESTS_NEED := $(VENV)/.extensions-$(PROFILE) core-tests $(VENV)/.tools $(FAKES)/.built $(PERTURB)

builds: $(TESTS_NEED) $(COUNTED)/.built  ## Build all that the tests and counts need

wheel: $(VENV)/.wheel-$(if $(filter 0,$(PGO)),plain,release)  ## Build a wheel into dist/; PGO=0: without the profile of make/pgo
	mkdir -p dist && cp $(VENV)/wheel-$(if $(filter 0,$(PGO)),plain,release)/*.whl dist/

clean:  ## Remove what the other targets made
	rm -rf $(VENV) dist site target python/cai_bridge/*.so

.PHONY: help-all
help-all:  ## Show every target
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sort | sed 's/:.*##/\t/' | expand -t 18
