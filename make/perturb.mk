# The library that `cai-bridge perturb` preloads: a crate of its own, whose library lies in the package.

.PHONY: perturb

$(PERTURB): $(shell find perturb/src -name '*.rs') perturb/Cargo.toml
	RUSTFLAGS="$$RUSTFLAGS $(REMAPPED)" cargo build --quiet --release --manifest-path perturb/Cargo.toml --target-dir target/perturb
	cp target/perturb/release/libcai_bridge_perturb.so $@.new && mv $@.new $@

perturb: $(PERTURB)  ## Build the library that `cai-bridge perturb` preloads, into the package
