# What `make nightly` runs, beside what a push does, and what a developer runs by hand.

# A new seed each time, said first, so that the run can be repeated: make nightly NIGHT=...
NIGHT := $(shell date +%s)
NIGHTLY := test-serial test-shuffled test-no-habits test-clients soak soak-perturb soak-races fuzz docs asan loom mutants-py-layer mutants-layer mutants-python mutants
PROGRAMS ?= 100000
MANNERS ?= told handles unsaid
.PHONY: golden soak soak-perturb soak-races counts growth flat loom asan tsan fuzz fuzz-minimise mutants mutants-python mutants-py-layer mutants-layer msrv
.PHONY: test-serial test-shuffled test-no-habits test-clients link

# pytest freezes what is there before each test, so that collections are quick.
test-serial: $(VENV)/.extensions-$(PROFILE) $(VENV)/.tools $(FAKES)/.built  ## Run the Python tests in one process, with collections of everything
	$(BIN)/python -m pytest -q --unfrozen --every --timeout 600

test-shuffled: $(VENV)/.extensions-$(PROFILE) $(VENV)/.tools $(FAKES)/.built  ## Run the Python tests in an order drawn from SEED=0
	$(QUICK) $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --every --shuffle $(SEED)

test-no-habits: $(VENV)/.extensions-$(PROFILE) $(VENV)/.tools $(FAKES)/.built  ## Run the Python tests with the table of known libraries emptied
	$(QUICK) $(BIN)/python -m pytest -q -n $(JOBS) --dist loadfile --no-habits

# Libraries that run on CPUs, and are too large for every push.
CLIENTS := $(addprefix tests/python/libraries/test_, jax.py jax_streams.py warp.py warp_program.py) \
	$(addprefix tests/python/test_, hosts_decoded.py gradients.py compiled_jax.py compiled_torch.py \
	compiled_schema.py dask.py ray.py)

test-clients: $(VENV)/.extensions-$(PROFILE) $(VENV)/.tools $(FAKES)/.built  ## Run the Python tests of Dask, JAX, MAX, Paddle, pyarrow, PyTorch, Ray and Warp with the real libraries, on CPUs
	$(BIN)/python -m pip install --quiet --group clients
	$(BIN)/python -m pytest -q $(CLIENTS)
	MYPYPATH=python $(BIN)/mypy --config-file /dev/null --strict --follow-imports silent tests/typing/clients.py

soak: $(IMPORTABLE) $(VENV)/.tools  ## Run PROGRAMS=100000 random programs on the simulated device, from SEED=0, and a few over stand-ins
	$(BIN)/python -m tests.soak --programs $(PROGRAMS) --seed $(SEED)
	for manner in $(MANNERS); do \
		$(BIN)/python -m tests.soak --place simulated --manner $$manner --programs $$(( $(PROGRAMS) / 30 )) --seed $(SEED) || exit 1; \
	done

golden: $(IMPORTABLE) $(VENV)/.tools  ## Compare all that happens in 4000 random programs with what is committed; WRITE=1 writes it
	$(BIN)/python -m tests.golden $(if $(WRITE),--write)

soak-perturb: $(IMPORTABLE) $(VENV)/.tools $(PERTURB)  ## Run 10000 random programs under perturb, over a driver in software, from SEED=0
	$(BIN)/python -m tests.soak_perturb --seed $(SEED)

soak-races: $(IMPORTABLE) $(VENV)/.tools $(PERTURB)  ## Run 10000 random programs under races, over a driver in software, from SEED=0
	$(BIN)/python -m tests.soak_races --seed $(SEED)

counts: $(FAKES)/.built $(COUNTED)/.built $(VENV)/.tools  ## Count each conversion's instructions and calls, against the committed table; WRITE=1 writes it
	$(BIN)/python make/pgo.py missing $(COUNTED)/said
	$(BIN)/python -m tests.counts $(FAKES) $(COUNTED) --seed $(SEED) $(if $(WRITE),--write)

growth: $(FAKES)/.built $(COUNTED)/.built $(VENV)/.tools  ## Show that nothing costs more because there is more of something
	$(BIN)/python -m tests.counts.growth $(FAKES) $(COUNTED)

flat: $(IMPORTABLE)  ## Show that a million rounds of each conversion do not make a process grow
	$(BIN)/python tests/endurance/flat.py

loom:  ## Model check the owner: every interleaving of its calls
	RUSTFLAGS="--cfg loom" cargo test --quiet --features arrays --lib --target-dir target/loom

# Stable Rust has the sanitizers behind -Z, which RUSTC_BOOTSTRAP opens.
HOST = $(shell rustc -vV | sed -n 's/^host: //p')
SANITIZED = --features arrays --tests --target $(HOST)
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
	$(PYO3_CARGO) rustc --quiet --lib --crate-type cdylib --features wheel --target $(HOST) --target-dir target/asan
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

fuzz: $(FUZZ)/.built $(IMPORTABLE) $(VENV)/.tools  ## Fuzz for SECONDS=300 in all: the core by coverage, the bridge by hostile objects from SEED=0
	for target in $(FUZZ_TARGETS); do \
		mkdir -p $(FUZZ)/found/$$target && TARGET=$$target $(FUZZER) $(FUZZ)/found/$$target fuzz/corpus/$$target \
			-max_len=600 -max_total_time=$(SHARE) -artifact_prefix=$(FUZZ)/$$target- || exit 1; \
	done
	$(BIN)/python -m tests.fuzz --seconds $(SHARE) --seed $(SEED)

fuzz-minimise: $(FUZZ)/.built  ## Add to the committed corpora what reaches more, as few inputs as that takes
	for target in $(FUZZ_TARGETS); do \
		TARGET=$$target $(FUZZER) -set_cover_merge=1 -use_counters=0 fuzz/corpus/$$target $(FUZZ)/found/$$target || exit 1; \
	done

$(VENV)/cargo/bin/cargo-mutants:
	cargo install --quiet --locked --root $(VENV)/cargo cargo-mutants

mutants: $(VENV)/cargo/bin/cargo-mutants  ## Change the core's code, and show that its tests notice
	$(VENV)/cargo/bin/cargo-mutants mutants --output target

mutants-py-layer: $(VENV)/.tools $(FAKES)/.built  ## Make mistakes in the Python layer, and show that its tests notice
	$(BIN)/python -m tests.mutants.py_layer

# Those of drawn.txt, a SHARD of them; DRAW=300 takes as many others, by SEED.
SHARD ?= 1/1

mutants-layer: $(VENV)/.tools $(FAKES)/.built  ## Make mistakes by rule all over the Rust sources, and show which Python tests notice
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.mutants.layer --shard $(SHARD) --jobs $(JOBS) $(if $(DRAW),--draw $(DRAW) --seed $(SEED))

mutants-python: $(IMPORTABLE) $(VENV)/.tools  ## Change the Python that judges for SECONDS=300, drawn by SEED=0, and show that its tests notice
	$(BIN)/python -m tests.mutants --seconds $(SECONDS) --seed $(SEED)

MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1.0/p' Cargo.toml)

msrv: $(BIN)/python  ## Check each set of features with the oldest Rust that Cargo.toml promises; needs `rustup toolchain install`
	for features in "" dlpack arrays $(CUDARC) python $(CUDARC),python wheel wheel,cudarc; do \
		$(PYO3_CARGO) +$(MSRV) check --quiet --locked --target-dir target/msrv --features "$$features" || exit 1; \
	done
	for example in $(EXTENSIONS); do \
		$(PYO3_CARGO) +$(MSRV) check --quiet --locked --target-dir target/msrv --manifest-path $$example/Cargo.toml || exit 1; \
	done

link: $(BIN)/python  ## Check that the crate builds in crates outside, beside each version and linking of cudarc
	$(BIN)/python -m tests.link
