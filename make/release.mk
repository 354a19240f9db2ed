# What is published: wheels, the sdist, and the files that are generated for it.

.PHONY: header public-api wheels

# cbindgen is the developer's to install.
header:  ## Write python/cai_bridge/include/cai_bridge.h from src/py/c/abi.rs
	cbindgen --quiet --config cbindgen.toml --output python/cai_bridge/include/cai_bridge.h src/py/c/abi.rs

public-api: export RUSTC_BOOTSTRAP = 1
public-api: $(BIN)/python  ## Write docs/public-api.txt, the list of what the crate promises
	cargo rustdoc --quiet --lib --features $(CUDARC),python --target-dir target/api \
		-- -Z unstable-options --output-format json --document-hidden-items
	$(BIN)/python docs/generate.py public-api target/api/doc/cai_bridge.json

# Zig links against the C library of manylinux_2_28, so no container is needed. The stable-ABI wheel serves
# every CPython from 3.11 on; free-threaded CPython has an ABI of its own. Each target is rustup's to add.
# Wheels of the profile's target are shaped by it, the others are plain, and the build says so. What counts references
# is other code in free-threaded CPython, which the profile does not know.
WHEEL_MACHINES ?= x86_64 aarch64
WHEEL_PYTHONS ?= 3.11 3.14t
RELEASE := $(VENV)/release
FRESH := $(VENV)/fresh
SHAPED_LINKER := CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER=$(CURDIR)/make/zigcc

$(RELEASE)/.tools: pyproject.toml
	$(PYTHON) -m venv --clear $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(RELEASE)/bin/python -m pip install --quiet --group wheels
	@touch $@

wheels: export RUSTFLAGS += $(REMAPPED)
wheels: export PATH := $(CURDIR)/$(RELEASE)/bin:$(PATH)
wheels: $(RELEASE)/.tools  ## Build the release into dist/: wheels of WHEEL_MACHINES and WHEEL_PYTHONS, sdist; check it, and try this machine's
	rm -rf dist
	for machine in $(WHEEL_MACHINES); do \
		cargo zigbuild --quiet --release --locked --manifest-path perturb/Cargo.toml --target-dir target/perturb \
			--target $$machine-unknown-linux-gnu.2.28 || exit 1; \
		cp target/perturb/$$machine-unknown-linux-gnu/release/libcai_bridge_perturb.so $(PERTURB) || exit 1; \
		$(if $(filter 0,$(PGO)),shaped=,shaped=$$($(PYTHON) make/pgo.py release $$machine-unknown-linux-gnu) || exit 1); \
		by=--zig; [ -z "$$shaped" ] || by=; \
	for python in $(WHEEL_PYTHONS); do \
		RUSTFLAGS="$$RUSTFLAGS $$shaped" $${shaped:+env $(SHAPED_LINKER)} $(PYTHON) make/absolute_links.py \
			maturin build --quiet --release --locked $$by --target $$machine-unknown-linux-gnu \
			--compatibility manylinux_2_28 --interpreter python$$python --out dist 2> $(RELEASE)/said \
			|| { cat $(RELEASE)/said; exit 1; }; \
		case $$python in *t) most=0.25;; *) most=0.05;; esac; \
		[ -z "$$shaped" ] || $(PYTHON) make/pgo.py missing $(RELEASE)/said $$most || exit 1; \
	done; done
	$(PYTHON) make/absolute_links.py maturin sdist --out dist
	twine check --strict dist/*
	$(PYTHON) make/check_wheel.py --published dist/*
	$(PYTHON) -m venv --clear $(FRESH)
	$(FRESH)/bin/python -m pip install --quiet --no-index dist/*-abi3-*_$(firstword $(subst -, ,$(HOST))).whl
	$(FRESH)/bin/python examples/01_quickstart.py
	$(FRESH)/bin/python docs/programs/start.py
	$(FRESH)/bin/cai-bridge doctor
