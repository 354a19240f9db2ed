# What ships is shaped by a profile: the code that conversions run lies together, and what they never run lies apart.
# The profile is committed, so that a build is one step; `make profile` takes it anew.

PGO ?= 1
SHAPED = $(if $(filter-out 0,$(PGO)),$(shell $(PYTHON) make/pgo.py flags $(HOST)))
PROFILED := $(VENV)/profiled
.PHONY: profile

$(PROFILED)/.built: export RUSTFLAGS += $(REMAPPED) -Cprofile-generate
$(PROFILED)/.built: $(BIN)/python $(SOURCES)
	$(EXTENSION_CARGO) --target-dir target/profiled
	rm -rf $(PROFILED) && mkdir -p $(PROFILED) && cp -R python/cai_bridge $(PROFILED)/
	cp target/profiled/$(HOST)/release/libcai_bridge.so $(PROFILED)/cai_bridge/_core.abi3.so
	@touch $@

profile: $(FAKES)/.built $(PROFILED)/.built $(VENV)/.tools  ## Take the profile of make/pgo anew; needs `rustup component add llvm-tools`
	$(BIN)/python make/pgo.py train $(FAKES) $(PROFILED) $(HOST)
