# What needs a GPU, with PYTHON=..., an interpreter that has the GPU libraries.

# Processes of the GPU tests; each has its own context and libraries.
GPU_JOBS ?= 8
SOAK_SECONDS ?= 180
# Where the libraries of soak-gpu get their memory: pools, async or segments.
MEMORY ?= pools
.PHONY: soak-gpu bench

soak-gpu: $(VENV)/.extensions-$(PROFILE)  ## Run random programs over PYTHON=...'s libraries, SOAK_SECONDS=180 of each of MANNERS
	status=0; for manner in $(MANNERS); do \
		PYTHONPATH=$(PACKAGE) XLA_PYTHON_CLIENT_PREALLOCATE=false $(PYTHON) -m tests.soak --place gpu \
			--manner $$manner --memory $(MEMORY) --seconds $(SOAK_SECONDS) --seed $(SEED) || status=1; \
	done; exit $$status

bench: $(VENV)/.wheel-release  ## Print the table of times, with the libraries that PYTHON=... has; WRITE=1 writes docs/speed.md and the README by it
	PYTHONPATH=$(VENV)/package-release $(PYTHON) tests/bench/bench.py --json $(VENV)/bench.json
	$(if $(WRITE),$(BIN)/python docs/generate.py speed $(VENV)/bench.json)
