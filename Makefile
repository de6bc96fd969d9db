# `make demo` needs Python 3.11+ with pip and make; it installs onerow in .venv, and nothing for developers.
# `make test` needs node with npm too; it sets up everything else in .venv and .cache.
# Pass more to the tool with ARGS: make test ARGS="-k claim -x"

PYTHON ?= python3
ARGS ?=
# Tests wait more than they compute, so that twice as many as there are cores is about right.
JOBS ?= 4
BIN := .venv/bin
# The project with its tools, and each application that is there, all editable.
PARTS = -e '.[dev]' $(patsubst %/pyproject.toml,-e ./%,$(wildcard apps/*/pyproject.toml))
# A pip outside of .venv can fill it, which saves its set-up; Debian's Python may have only the one or the other.
PIP = $(if $(shell $(PYTHON) -m pip --version 2>/dev/null),$(PYTHON) -m pip --python $(BIN)/python,$(BIN)/python -m pip)
# Downloads for the next clone too: not every package server lets pip's own cache keep them.
PACKAGES := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/onerow/packages
DOWNLOADED = -q -c constraints.txt --no-index --find-links $(PACKAGES)
# pip downloads, because it knows the machine's package servers; uv installs in a tenth of pip's time.
INSTALL = $(PIP) install $(DOWNLOADED) uv && $(BIN)/uv pip install --offline --python $(BIN)/python $(DOWNLOADED) $(PARTS)

# Without bytecode files each of the tests' some thousand processes would compile every module anew.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_ROOT_USER_ACTION = ignore

.DEFAULT_GOAL := help
.PHONY: help setup servers test collect lint check format coverage wheel demo studio publisher tagger transcriber encoder bench
.PHONY: soak mutants pins clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.ready ## .venv with the project (editable) and its tools

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "onerow needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@$(PYTHON) -m venv $(if $(shell $(PYTHON) -m pip --version 2>/dev/null),--without-pip) .venv

.venv/.ready: pyproject.toml constraints.txt $(wildcard apps/*/pyproject.toml) | .venv/bin/python
	@echo "installing onerow and the tools for its tests into .venv"
	@{ $(INSTALL); } >/dev/null 2>&1 || { \
	    $(PIP) download -q -c constraints.txt -d $(PACKAGES) $(subst -e,,$(PARTS)) hatchling editables && $(INSTALL); }
	@touch $@ .venv/.installed

# onerow without the tools for its tests, for the demo and for what the demo recommends.
.venv/.installed: pyproject.toml constraints.txt | .venv/bin/python
	@echo "installing onerow into .venv"
	@$(PIP) install -q -c constraints.txt -e .
	@touch $@

servers: setup ## fetch what the test servers need into .cache (PostgreSQL and SQS come with .venv)
	@$(BIN)/python -m tests.servers.fetch

test: servers ## set up, then every test that isn't slow: ARGS=--random tries new examples
	$(BIN)/python -m tests.runner -n $(JOBS) --dist loadgroup --durations=20 --durations-min=20 $(ARGS)

collect: servers ## import every test, so that the processes of `make test` find the bytecode
	@found=$$($(BIN)/python -m pytest --collect-only -q -n0 2>&1) || { echo "$$found"; exit 1; }

# The fast tests of the code that needs no server: tracing makes them about twice as slow, and would change the timing of
# the rest. Code in other processes is not counted.
coverage: servers ## which lines of core, pipelines and cli the fast tests run
	$(BIN)/python -m pytest -n $(JOBS) tests/core tests/cli --cov=onerow.core --cov=onerow.pipelines --cov=onerow.ports --cov=onerow.cli --cov-report=term:skip-covered $(ARGS)

wheel: setup ## build the wheel, install it elsewhere, run it and check its types
	$(BIN)/python -m tools.check_wheel $(PACKAGES)

lint: setup ## format, lint, words, types and layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/python -m tools.plain_words
	$(BIN)/mypy
	$(BIN)/mypy --platform darwin src
	$(BIN)/pyright -p tests/types --pythonpath $(BIN)/python
	$(BIN)/lint-imports

check: lint test ## lint and test

format: setup ## let ruff tidy up
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

demo: .venv/.installed ## see it work
	@$(BIN)/onerow demo $(ARGS)

studio: setup ## a film from a topic to a file: ARGS='--topic "Clouds"'
	STUDIO_HOME=build/studio $(BIN)/studio make $(ARGS)

publisher: setup ## see the news publisher work, with a MongoDB that it fetches
	$(BIN)/python -m apps.news_publisher.demo

tagger: setup ## see the AI tagger work, offline
	$(BIN)/python -m apps.ai_tagger.demo

transcriber: setup ## see the transcriber work, offline: speech to text, subtitles and a summary
	$(BIN)/python -m apps.transcriber.demo $(ARGS)

encoder: setup ## see the video encoder work, offline: ends with a page that plays
	$(BIN)/python -m apps.video_encoder.demo

bench: servers ## measure, compared with minimal baselines: ARGS='--only drain --store URL'
	$(BIN)/python -m bench $(ARGS)

soak: servers ## the slow tests, with more examples
	HYPOTHESIS_PROFILE=soak ONEROW_TEST_MONGO_MEMBERS=3 $(BIN)/python -m pytest -m slow --timeout=1800 $(ARGS)

mutants: servers ## break the engine on purpose and see the tests notice: ARGS='-k slot'
	$(BIN)/python -m tests.mutants $(ARGS)

pins: setup ## renew constraints.txt
	$(BIN)/uv lock -q --upgrade
	$(BIN)/uv export -q --extra dev --no-hashes --no-emit-project --no-annotate --format requirements-txt -o constraints.txt
	sed -i.old '/^ *#/d' constraints.txt && rm constraints.txt.old

clean: ## remove .venv, .cache and everything built
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
