# Needs git, make and Python 3.11 or newer. uv is taken from PATH, or fetched into .uv/ when it is missing there.

PYTHON ?= python3
# One more than there are processors: tests wait for a third of their time.
JOBS ?= $(shell expr `getconf _NPROCESSORS_ONLN` + 1)
ARGS ?=

ifeq ($(origin UV), undefined)
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo .uv/bin/uv)
endif
UV_FILE := $(filter .uv/bin/uv,$(UV))

# The machine's own Python, never a downloaded one.
UV_PYTHON_PREFERENCE ?= only-system
UV_PYTHON_DOWNLOADS ?= never
export UV_PYTHON_PREFERENCE UV_PYTHON_DOWNLOADS
# Tests start hundreds of processes, which would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
# uv would warn in each call that it uses another environment.
unexport VIRTUAL_ENV
PYTEST = pytest -n $(JOBS) --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help demo test rest slow breaks lowest check lint fmt generate reference picture docs dist packages team bench benefit conformance inspector claude opencode

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1|/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "make %-12s %s\n", $$1, $$2 }'

demo: $(UV_FILE) ## two agents that share a file and a budget, in ten seconds
	@$(UV) run --no-dev holdlog demo $(ARGS)

test: $(UV_FILE) ## the quick tests (ARGS="-k name" selects some, JOBS=0 runs them in one process)
	$(UV) run $(PYTEST) -m "not rest and not slow" $(ARGS)

rest: $(UV_FILE) ## the tests that `make test` leaves to CI
	$(UV) run $(PYTEST) -m "rest and not slow" $(ARGS)

slow: $(UV_FILE) ## the slow tests, one after the other
	$(UV) run pytest -m slow --timeout 1800 $(ARGS)

breaks: $(UV_FILE) ## break the code in thirty places, one after the other; a test must fail for each (ARGS="--only NAME")
	@$(UV) run python tests/breaks.py $(ARGS)

lowest: $(UV_FILE) ## the quick tests with the lowest versions that pyproject.toml allows
	$(UV) venv --quiet --clear build/lowest
	$(UV) pip install --quiet --python build/lowest --resolution lowest-direct --group dev --editable '.[all]'
	PATH="$(CURDIR)/build/lowest/bin:$$PATH" python -m $(PYTEST) -m "not rest and not slow" $(ARGS)

check: ## all that CI runs: lint, the quick tests, then the rest
	@$(MAKE) lint
	@$(MAKE) test
	@$(MAKE) rest

lint: $(UV_FILE) ## format, rules, types, declared dependencies, workflows
	$(UV) run ruff format --check
	$(UV) run ruff check
	$(UV) run mypy
	$(UV) run mypy --explicit-package-bases examples
	$(UV) run deptry domain projections adapters
	$(UV) run zizmor --offline --quiet .github

fmt: $(UV_FILE) ## format the code and fix what the linter can fix
	$(UV) run ruff check --fix-only --quiet
	$(UV) run ruff format

generate: $(UV_FILE) ## write the library's classes from the operations
	$(UV) run python tools/write_library.py
	$(UV) run ruff check --fix-only --quiet adapters/python
	$(UV) run ruff format --quiet adapters/python

reference: $(UV_FILE) ## write docs/reference.md from the operations
	$(UV) run python tools/write_reference.py

picture: $(UV_FILE) ## write docs/demo.svg from a run of the demo
	$(UV) run python tools/write_picture.py

docs: $(UV_FILE) ## the documentation site in build/site; fails on a broken link
	$(UV) run --only-group docs python tools/write_site.py

dist: $(UV_FILE) ## build sdist and wheel into dist/, check both, and run the wheel in a fresh environment
	rm -rf dist
	$(UV) build --quiet
	$(UV) run --isolated --locked --only-group release twine check --strict dist/*.tar.gz dist/*.whl
	$(UV) run --isolated --no-project --with dist/*.whl holdlog --version
	$(UV) run --isolated --no-project --with dist/*.whl holdlog demo

bench: $(UV_FILE) ## measure against raw SQLite and agenthold (ARGS=values; --help lists the others)
	$(UV) run python -m bench $(ARGS)

benefit: $(UV_FILE) ## four scripted agents do thirty tasks with and without holdlog: what is lost, and how long it takes
	@$(UV) run python -m bench.benefit $(ARGS)

packages: $(UV_FILE) ## build plugins, a registry entry and links for hosts into build/packages
	@$(UV) run python deploy/packages.py

team: $(UV_FILE) ## four agents, two servers over HTTP, PostgreSQL and NATS on this machine, in about a minute
	@$(UV) run python -m examples.team

conformance: $(UV_FILE) ## the official MCP suite against holdlog over HTTP, from npm
	@$(UV) run --group conformance python -m tests.conformance.suite

inspector: $(UV_FILE) ## the official MCP Inspector over stdio, strict, in both eras, from npm
	@$(UV) run --group conformance python -m tests.conformance.inspector

claude: $(UV_FILE) ## the real Claude Code, from npm, as `holdlog init` sets it up, with a scripted model
	@$(UV) run --group conformance python -m tests.conformance.claude_code

opencode: $(UV_FILE) ## the real OpenCode, from npm, as `holdlog init` sets it up, with a scripted model
	@$(UV) run --group conformance python -m tests.conformance.opencode

.uv/bin/uv:
	@rm -rf .uv
	@$(PYTHON) -m venv .uv >/dev/null 2>&1 || { rm -rf .uv; \
	  echo "$(PYTHON) -m venv does not work here: install Python 3.11+ with venv (Debian, Ubuntu: apt install python3-venv) or uv" >&2; exit 1; }
	@.uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
