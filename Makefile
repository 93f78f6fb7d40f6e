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

.DEFAULT_GOAL := help
.PHONY: help demo test rest slow lowest check lint generate fmt docs dist packages bench conformance inspector claude opencode schemathesis screenshot

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1|/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "make %-12s %s\n", $$1, $$2 }'

demo: $(UV_FILE) ## two agents, with and without holdlog, in under 30 seconds
	@$(UV) run --no-dev --extra mcp holdlog demo $(ARGS)

test: $(UV_FILE) ## the quick tests, in a few minutes (ARGS="-k name" selects some, JOBS=0 runs them in one process)
	$(UV) run pytest -n $(JOBS) --dist loadgroup -m "not check and not slow" $(ARGS)

rest: $(UV_FILE) ## the tests that `make test` leaves to `make check`
	$(UV) run pytest -n $(JOBS) --dist loadgroup -m "check and not slow" $(ARGS)

lowest: $(UV_FILE) ## the quick tests with the lowest versions that pyproject.toml allows
	$(UV) venv --quiet --clear build/lowest
	$(UV) pip install --quiet --python build/lowest --resolution lowest-direct --group dev --editable '.[all]'
	build/lowest/bin/python -m pytest -n $(JOBS) --dist loadgroup -m "not check and not slow" $(ARGS)

slow: $(UV_FILE) ## the slow tests, one after the other
	$(UV) run pytest -m slow --timeout 1800 $(ARGS)

generate: $(UV_FILE) ## the synchronous side of the library, from the asynchronous one
	$(UV) run python .ci/generate_sync.py

lint: $(UV_FILE) ## format, rules, types, generated files, declared dependencies, workflows
	$(UV) run ruff format --check
	$(UV) run ruff check
	$(UV) run mypy
	$(UV) run python .ci/generate_sync.py --check
	$(UV) run deptry domain projections adapters
	$(UV) run zizmor --offline --quiet .github

check: ## all that CI runs: lint, the quick tests, then the rest
	@$(MAKE) lint
	@$(MAKE) test
	@$(MAKE) rest

fmt: $(UV_FILE) ## format the code and fix what the linter can fix
	$(UV) run ruff check --fix-only --quiet
	$(UV) run ruff format

docs: $(UV_FILE) ## the documentation site in build/site; fails on a broken link
	$(UV) run --only-group docs python docs/site.py

dist: $(UV_FILE) ## build sdist and wheel into dist/, check both, and run the wheel in a fresh environment
	rm -rf dist
	$(UV) build --quiet
	$(UV) run --isolated --locked --only-group release twine check --strict dist/*.tar.gz dist/*.whl
	$(UV) run --isolated --no-project --with dist/*.whl holdlog --version
	$(UV) run --isolated --no-project --with "holdlog[mcp] @ $$(realpath dist/*.whl)" holdlog demo

packages: $(UV_FILE) ## build the plugins, configurations and registry entry for hosts into build/packages, and check them
	UV="$(UV)" $(UV) run python -m deploy.packages $(ARGS)

schemathesis: $(UV_FILE) ## send a server requests that its OpenAPI document allows and forbids (EXAMPLES=1000 for a long run)
	$(UV) run --group schemathesis pytest -m slow --timeout 3600 tests/processes/test_schemathesis.py $(ARGS)

bench: $(UV_FILE) ## measure speed and size against the yardsticks
	$(UV) run python -m bench $(ARGS)

conformance: $(UV_FILE) ## the official MCP suite against holdlog over HTTP (ARGS=--write writes docs/conformance.md)
	@$(UV) run --group conformance python -m tests.conformance $(ARGS)

inspector: $(UV_FILE) ## the official MCP Inspector, strict, in both eras
	@$(UV) run --group conformance python -m tests.conformance.inspector

claude: $(UV_FILE) ## the real Claude Code, from npm, with the plugin of `make packages` and a scripted model
	@$(UV) run --group conformance python -m tests.conformance.claude_code

opencode: $(UV_FILE) ## the real OpenCode, from npm, with the plugin of `holdlog init` and a scripted model
	@$(UV) run --group conformance python -m tests.conformance.opencode

screenshot: $(UV_FILE) ## take docs/page.png from a real server (needs chromium)
	$(UV) run python -m tests.surfaces.browser.screenshot

.uv/bin/uv:
	@rm -rf .uv
	@$(PYTHON) -m venv .uv >/dev/null 2>&1 || { rm -rf .uv; \
	  echo "$(PYTHON) -m venv does not work here: install Python 3.11+ with venv (Debian, Ubuntu: apt install python3-venv) or uv" >&2; exit 1; }
	@.uv/bin/pip install --quiet --disable-pip-version-check 'uv>=0.9,<1'
