# Everything runs in .venv, which make itself builds from requirements.lock: nothing needs to be activated, and any
# target may come first. The stamp files are written last, so an interrupted set-up starts again.

# The first of these that is Python 3.11 or newer, with venv, is taken. Another one: make PYTHON=/opt/python/bin/python3
PYTHON ?= python3.13 python3.12 python3.11 python3
ARGS ?=

# The tests start hundreds of interpreters: without what Python keeps of a first import, each would compile all again.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PACKAGES := .venv/.packages-installed
HEADRACE := generated/.headrace-installed
PROTOS := $(wildcard protos/*.proto protos/*/*.proto protos/*/*/*.proto)
PIP_INSTALL := PIP_USE_PEP517=1 $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-compile --no-deps
# Two makes at once must not build one environment: the second waits, then finds it done.
ALONE := exec 9<Makefile; if command -v flock >/dev/null; then flock 9; fi

.PHONY: help demo test check bench soak protos lock clean
.DEFAULT_GOAL := help

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(HEADRACE) ## Run the whole system with two small engines and send it prompts; ARGS=--exit ends by itself
	@$(BIN)/headrace demo $(ARGS)

test: $(HEADRACE) ## Run all tests, two at a time; ARGS='tests/controlplane/policy -n 0' chooses some, one at a time
	@$(BIN)/python -m pytest -n 2 $(ARGS)

check: $(HEADRACE) ## Lint, formatting, types, import contracts, proto lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint protos

bench: $(HEADRACE) ## Measure deciding, the fleet's changes, the ledger, and all beside other routers; ARGS=policy one of them
	@set -e; $(if $(ARGS),$(BIN)/python bench/$(firstword $(ARGS)).py $(wordlist 2,$(words $(ARGS)),$(ARGS)), \
		for each in $(BENCHES); do echo "== $$each"; $(BIN)/python bench/$$each.py; done)

BENCHES := policy classifier cost fleet_changes ledger compare

protos: $(PACKAGES) ## Generate the message stubs again (make does so by itself when a proto changes)
	$(BIN)/python protos/generate.py

soak: $(HEADRACE) ## Ten minutes of sessions while nodes come back in other formats and die: no session changes its format
	@$(BIN)/python bench/soak.py $(ARGS)

lock: $(PACKAGES) ## Resolve the dependencies again; ARGS=--upgrade takes newer releases
	$(LOCK) --extra demo --group model --group dev --output-file requirements.lock $(ARGS)
	$(LOCK) --extra demo --group model --constraint requirements.lock --output-file requirements-runtime.lock

LOCK := $(BIN)/uv pip compile pyproject.toml --quiet --custom-compile-command "make lock" --universal \
	--python-version 3.11 --generate-hashes --no-annotate

clean: ## Remove what make, the tests and the builds left behind
	rm -rf .venv generated build dist .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PACKAGES): requirements.lock
	@$(ALONE); if [ $@ -nt $< ]; then exit 0; fi; set -e; \
	if [ -e $@ ] && $(BIN)/python -c pass; then \
		rm $@; \
	else \
		for python in $(PYTHON) none; do \
			if "$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then break; fi; \
		done; \
		if [ "$$python" = none ]; then \
			echo "Headrace needs Python 3.11 or newer with venv (Debian, Ubuntu: apt install python3-venv); tried: $(PYTHON)." >&2; \
			echo "Name another one: make PYTHON=/path/to/python3 $(MAKECMDGOALS)" >&2; \
			exit 1; \
		fi; \
		"$$python" -m venv --clear .venv; \
	fi; \
	echo "Installing the packages of $< into .venv: about 300 MB the first time ..."; \
	$(PIP_INSTALL) --require-hashes -r $<; \
	touch $@

$(HEADRACE): $(PACKAGES) pyproject.toml hatch_build.py protos/generate.py $(PROTOS)
	@$(ALONE); if [ $@ -nt pyproject.toml ] && [ -z "$$(find $^ -newer $@)" ]; then exit 0; fi; set -e; \
	rm -f $@; \
	$(PIP_INSTALL) --no-build-isolation --editable .; \
	touch $@
