# The library that `cai-bridge perturb` preloads: a crate of its own, whose library lies in the package.

.PHONY: perturb

$(PERTURB): $(shell find perturb/src -name '*.rs') perturb/Cargo.toml perturb/build.rs make/backend.py
	RUSTFLAGS="$$RUSTFLAGS $(REMAPPED)" $(PYTHON) make/backend.py

perturb: $(PERTURB)  ## Build the library that `cai-bridge perturb` preloads, into the package
