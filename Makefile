# Needs Python 3.11 or newer, make and a C compiler. Everything else is installed into .venv.
# Another interpreter: make test PYTHON=/path/to/python

.DEFAULT_GOAL := help
SHELL := /bin/sh

# The first interpreter that starts, is new enough and can make a virtual environment.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo $$python; break; }; done)

# What is tested starts many processes: with compiled files kept, each is there in half the time.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest
ALWAYS := not nightly and not bench
FAST := -n $(WORKERS) --dist loadgroup -m "not serial and $(ALWAYS)"
SERIAL := -p no:xdist -m "serial and $(ALWAYS)"

# `strace` is the program's name, not a file of ours.
.PHONY: strace servers help demo test lint types coverage nightly bench reference install install-dev clean

help: ## print this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "%-18s %s\n", $$1, $$2}'

demo: install ## show a run survive a crash
	@$(BIN)/perdure demo

# Two parts: what may run side by side, then what needs the machine for itself. Both run even if the first one fails.
test: install-dev strace servers ## run the whole suite
	@$(PYTEST) $(FAST); fast=$$?; \
	$(PYTEST) $(SERIAL); serial=$$?; \
	if [ $$fast -ne 0 ] || [ $$serial -ne 0 ]; then \
		echo "make test: parallel part exit code $$fast, serial part exit code $$serial" >&2; exit 1; \
	fi

lint: install-dev ## check style, format and import rules
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo

types: install-dev ## check types, and that the public interface is typed throughout
	@$(BIN)/mypy
	@PYTHONPATH=src PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pyright --ignoreexternal --verifytypes perdure

coverage: install-dev strace servers ## run the suite, show the lines it missed, and hold the core to its share of branches
	@rm -f .coverage .coverage.* coverage.json
	@$(PYTEST) $(FAST) --cov --cov-report=; fast=$$?; \
	$(PYTEST) $(SERIAL) --cov --cov-append --cov-report=term --cov-report=json; serial=$$?; \
	$(BIN)/python scripts/coverage_floor.py coverage.json; floor=$$?; \
	[ $$fast -eq 0 ] && [ $$serial -eq 0 ] && [ $$floor -eq 0 ]

nightly: install-dev strace servers ## run the long campaigns
	@$(PYTEST) -p no:xdist -m nightly --timeout 3600 --hypothesis-profile nightly -s

bench: install ## measure speed
	@$(BIN)/perdure bench

reference: install-dev ## write the reference pages from the code
	@$(BIN)/python scripts/reference.py
	@$(BIN)/python scripts/python_reference.py
	@$(BIN)/python scripts/parity.py

clean: ## remove the environment and everything generated
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* coverage.json htmlcov build dist

# Install again only when pyproject.toml or the folder's place has changed. The developer's install is good for both.
define install_into_venv
	@set -e; \
	state=$$(pwd; cat pyproject.toml); \
	for stamp in $(1); do \
		if [ -f .venv/$$stamp ] && [ "$$(cat .venv/$$stamp)" = "$$state" ] && $(BIN)/python -c '' 2>/dev/null; then exit 0; fi; \
	done; \
	python='$(PYTHON)'; \
	if [ -z "$$python" ]; then echo "error: no Python 3.11 or newer with venv found; try: make PYTHON=/path/to/python" >&2; exit 1; fi; \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "error: $$python is not a working Python 3.11 or newer" >&2; exit 1; }; \
	echo "Installing into .venv with $$python ..."; \
	"$$python" -m venv --clear .venv; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input -e '$(2)'; \
	printf '%s\n' "$$state" > .venv/$(firstword $(1))
endef

# Some tests count and replay what a real process writes, as the kernel sees it.
strace:
	@command -v strace >/dev/null 2>&1 || { \
		if [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then \
			echo "Installing strace ..."; apt-get -qq update && apt-get -qq install -y strace >/dev/null; \
		fi; \
		command -v strace >/dev/null 2>&1 \
			|| echo "WARNING: strace is missing, so the tests that trace writes WILL FAIL: install it" >&2; \
	}

# Tests start database servers of their own: private processes that end with them. Debian would also start one of each
# for the machine; run level 1 tells it not to.
servers: install-dev
	@missing=$$($(BIN)/python -m tests.servers.programs); \
	if [ -n "$$missing" ] && [ "$$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then \
		echo "Installing $$missing ..."; \
		apt-get -qq update && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq install -y $$missing >/dev/null; \
		missing=$$($(BIN)/python -m tests.servers.programs); \
	fi; \
	[ -z "$$missing" ] || echo "WARNING: $$missing missing, so the tests on that database WILL FAIL: install it" >&2

install:
	$(call install_into_venv,installed installed-dev,.)

install-dev:
	$(call install_into_venv,installed-dev,.[dev])
