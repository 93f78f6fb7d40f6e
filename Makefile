# Release 0.2, as a project of its own. Needs git, make and Python 3.11 or newer; uv as in the root's Makefile.

JOBS ?= $(shell expr `getconf _NPROCESSORS_ONLN` + 1)
ARGS ?=
UV ?= $(shell uv --version >/dev/null 2>&1 && echo uv || echo ../.uv/bin/uv)
UV_PYTHON_PREFERENCE ?= only-system
UV_PYTHON_DOWNLOADS ?= never
export UV_PYTHON_PREFERENCE UV_PYTHON_DOWNLOADS
unexport PYTHONDONTWRITEBYTECODE VIRTUAL_ENV
PYTEST = pytest -n $(JOBS) --dist loadgroup
QUICK = -m "not rest and not slow"
OR_NONE = || [ $$? = 5 ] # pytest's exit code where no test is selected

.DEFAULT_GOAL := help
.PHONY: check generate reference help test doors doors-old rest rest-old open slow lint fmt conformance inspector claude opencode

help: ## this list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1|/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "make %-12s %s\n", $$1, $$2 }'

test: ## the quick tests, doors included (ARGS="-k name" selects some)
	$(UV) run $(PYTEST) $(QUICK) $(ARGS)

doors: ## the quick doors alone
	$(UV) run $(PYTEST) $(QUICK) tests/doors $(ARGS)

doors-old: ## the quick doors against release 0.1, in the root's environment
	$(UV) run --project .. $(PYTEST) $(QUICK) tests/doors $(ARGS)

rest: ## what `make test` leaves to CI
	$(UV) run $(PYTEST) -m "rest and not slow" $(ARGS) $(OR_NONE)

rest-old: ## the doors that `make doors-old` leaves out
	$(UV) run --project .. $(PYTEST) -m "rest and not slow" tests/doors $(ARGS) $(OR_NONE)

open: ## run the doors of files that open.txt lists whole, too: which of them pass already?
	OPEN=1 $(UV) run $(PYTEST) $(QUICK) tests/doors $(ARGS)

slow: ## the slow tests, one after the other
	$(UV) run pytest -m slow --timeout 1800 $(ARGS) $(OR_NONE)

check: lint test rest ## all but the slow tests

lint: ## format, rules, types, declared dependencies
	$(UV) run ruff format --check
	$(UV) run ruff check
	$(UV) run mypy
	$(UV) run deptry domain projections adapters

fmt: ## format the code and fix what the linter can fix
	$(UV) run ruff check --fix-only --quiet
	$(UV) run ruff format

generate: ## write the library's classes from the operations
	$(UV) run python tools/write_library.py
	$(UV) run ruff check --fix-only --quiet adapters/python
	$(UV) run ruff format --quiet adapters/python

reference: ## write docs/reference.md from the operations
	$(UV) run python tools/write_reference.py

conformance: ## the official MCP suite against holdlog over HTTP, from npm
	@$(UV) run --group conformance python -m tests.conformance.suite

inspector: ## the official MCP Inspector over stdio, strict, in both eras, from npm
	@$(UV) run --group conformance python -m tests.conformance.inspector

claude: ## the real Claude Code, from npm, as `holdlog init` sets it up, with a scripted model
	@$(UV) run --group conformance python -m tests.conformance.claude_code

opencode: ## the real OpenCode, from npm, as `holdlog init` sets it up, with a scripted model
	@$(UV) run --group conformance python -m tests.conformance.opencode
