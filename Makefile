# `make demo`, `make test` and `make test-jobs` do everything on a machine with Python 3.10+ and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Empty: the versions in requirements.lock. Else this torch, and the newest of the rest that pyproject.toml allows:
# make test PYTHON=python3.10 TORCH=2.6.0 VENV=.venv-2.6
TORCH ?=
# As many test processes as cores, each with one thread: torch's own threads would compete for them.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(max(2, len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count() or 2))")

.PHONY: demo test test-jobs test-gpu test-browser site lint types docs unit explore format lock clean

# Counts only: seconds on any machine, and the same figures on each. Timed steps of this model take minutes on a slow CPU.
demo: $(VENV)/ready
	$(BIN)/python -m profiler_kit count models/convnet_v0.py
	$(BIN)/python -m profiler_kit compare --static models/convnet_v0.py models/convnet_v1.py

# Types are checked with the locked versions: older torch and numpy describe fewer types, and others.
# Each check keeps one core busy, so they run beside each other.
test: $(VENV)/ready
	$(MAKE) --jobs=$(WORKERS) lint $(if $(TORCH),,types) docs
	$(MAKE) unit

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell

types: $(VENV)/ready
	$(BIN)/mypy

docs: $(VENV)/ready
	$(BIN)/python -m scripts.docs.make_docs --check

# The documentation site, in build/site. Its pages open from the file system; for the search, serve it:
# python -m http.server --directory build/site
.PHONY: site
site: $(VENV)/ready
	PYTHONPATH=. NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# The tests start hundreds of processes, and pytest rewrites the asserts of 800 files. Both are kept as bytecode, also where
# PYTHONDONTWRITEBYTECODE is set.
unit test-jobs explore: export PYTHONDONTWRITEBYTECODE =
unit: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not gpu and not jobs"

# The rest of the tests that need no GPU: of scripts and benchmarks, and jobs of several processes. CI runs both targets.
test-jobs: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "jobs and not gpu"

# Property tests with new examples, and many more of them than in `make test`.
explore: $(VENV)/ready
	HYPOTHESIS_PROFILE=explore OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not gpu"

# On a machine with a CUDA device, with the Python that has the CUDA build of torch: make test-gpu GPU_PYTHON=python3
GPU_PYTHON ?= $(BIN)/python
test-gpu:
	$(GPU_PYTHON) -m pytest -m gpu -p no:cacheprovider

# Opens report pages in Chromium, which must be installed. The tests skip themselves where it or playwright is missing.
test-browser: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"  # the first that installs dependency groups
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group browser
	$(BIN)/python -m pytest tests/browser

format: $(VENV)/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
ifeq ($(TORCH),)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock
# pip compiles with one core. Packages contain files that no Python 3 compiles.
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
else
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"  # the first that installs dependency groups
	$(BIN)/python -m pip install --quiet torch==$(TORCH) --group dev --editable .
endif
	touch $@

# Writes requirements.lock again from pyproject.toml, in a fresh environment.
lock:
	PYTHON=$(PYTHON) scripts/lock.sh

clean:
	rm -rf .venv .venv-* build dist *.egg-info profiler_kit_out .mypy_cache .ruff_cache .pytest_cache .hypothesis
