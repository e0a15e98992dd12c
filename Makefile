# One word per habit; `make` alone lists them.
#
#   PYTHON       the Python 3.11 to build .venv with (default: python3.11, else python3 if it is 3.11)
#   TORCH_INDEX  package index that torch alone is installed from, e.g. PyTorch's own for CPU wheels (default: pip's)
#   WORKERS      test processes side by side (default: 2; 0 = none but the one that reports)
#   PYTEST_ARGS  more arguments for pytest, e.g. PYTEST_ARGS="-x -k wildfire"

PYTHON ?= python3.11
TORCH_INDEX ?=
WORKERS ?= 2
PYTEST_ARGS ?=
VENV ?= .venv

TORCH := torch==2.13.*
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
# Whole files to a worker, so that what a file's tests share is made once.
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile
INSTALL := $(PIP) install --quiet --constraint constraints.txt
# pip and setuptools are pinned too and build the package inside .venv, so nothing unpinned takes part in an install.
# (setuptools' warning that a folder named like the package may shadow it is no news in this folder.)
HUSH := PYTHONWARNINGS=ignore:::setuptools.command.editable_wheel
INSTALL_US := $(HUSH) $(INSTALL) --no-build-isolation --editable

OMP_NUM_THREADS ?= 1
export OMP_NUM_THREADS
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONNOUSERSITE := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv quickstart test test-fast lint format bench constraints clean

help:  ## list these words
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

venv: $(VENV)/.stamp-run  ## create .venv with what training needs (not repeated while nothing changed)

quickstart: $(VENV)/.stamp-run  ## train and evaluate a small example
	$(BIN)/rl-openness train tune_configs/quickstart.yaml

test: $(VENV)/.stamp-dev  ## the whole test suite
	$(PYTEST) $(PYTEST_ARGS)

test-fast: $(VENV)/.stamp-dev  ## without the tests that start many processes
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

lint: $(VENV)/.stamp-dev  ## ruff (rules and format), mypy, who may import whom; all four run even if one fails
	@failed=""; \
	for tool in "ruff check ." "ruff format --check ." "mypy --strict rl_openness" "lint-imports --no-logo"; do \
	  echo "== $$tool"; $(BIN)/$$tool || failed="$$failed, $$tool"; \
	done; \
	if [ -n "$$failed" ]; then echo "lint failed: $${failed#, }" >&2; exit 1; fi

format: $(VENV)/.stamp-dev  ## let ruff mend and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.stamp-run  ## run every file of benchmarks/
	@set -e; for file in benchmarks/[!_]*.py; do \
	  [ -e "$$file" ] || { echo "benchmarks/ has no files yet"; break; }; \
	  echo "== $$file"; $(BIN)/python "$$file"; \
	done

constraints: $(VENV)/.stamp-base  ## renew constraints.txt with the newest releases that pyproject.toml allows
	@echo "Installing the newest allowed releases into $(VENV)-renew ..."
	@rm -rf $(VENV)-renew
	@$(BIN)/python -m venv $(VENV)-renew
	@$(VENV)-renew/bin/python -m pip install --quiet --upgrade pip setuptools
	@$(VENV)-renew/bin/python -m pip install --quiet $(if $(TORCH_INDEX),--no-deps --index-url "$(TORCH_INDEX)") "$(TORCH)"
	@$(HUSH) $(VENV)-renew/bin/python -m pip install --quiet --no-build-isolation --editable ".[dev]"
	@{ echo "# Every package that rl-openness was tested with (runtime and dev), for pip's --constraint; the Makefile uses it."; \
	   echo "# pyproject.toml holds the ranges that may be used, this file the one set that is known to work together."; \
	   echo "# Renew with \`make constraints\`, then run \`make lint test\` before committing."; \
	   $(VENV)-renew/bin/python -m pip freeze --all --exclude rl-openness \
	     | grep '^[A-Za-z0-9._-]*==' | grep -Eiv '^(nvidia-|cuda-|triton)' | sed 's/+[^+]*$$//' | LC_ALL=C sort -f; } > constraints.txt.new
	@mv constraints.txt.new constraints.txt
	@rm -rf $(VENV)-renew
	@echo "constraints.txt is new: `grep -c '==' constraints.txt` packages"

clean:  ## remove caches and build leftovers (.venv and runs/ stay)
	rm -rf $(VENV)-renew build dist *.egg-info constraints.txt.new
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find rl_openness tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# .venv in three steps, each with a stamp that remembers it: pip itself, what training needs, what tests and lint need.

CANDIDATES := $(if $(filter file,$(origin PYTHON)),python3.11 python3,"$(PYTHON)")

$(VENV)/.stamp-base: constraints.txt
	@if [ ! -x $(BIN)/python ]; then \
	  python=""; \
	  for candidate in $(CANDIDATES); do \
	    "$$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' >/dev/null 2>&1 && { python="$$candidate"; break; }; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "Python 3.11 not found (tried: $(subst ",,$(CANDIDATES))): sudo apt-get install python3.11 python3.11-venv, or give its path as PYTHON=..." >&2; exit 1; \
	  fi; \
	  if ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
	    echo "$$python has no venv module: sudo apt-get install python3.11-venv" >&2; exit 1; \
	  fi; \
	  echo "Creating $(VENV) with $$python ..."; \
	  "$$python" -m venv $(VENV); \
	fi
	@$(INSTALL) pip setuptools
	@touch $@

$(VENV)/.stamp-run: $(VENV)/.stamp-base pyproject.toml constraints.txt
	@echo "Installing torch$(if $(TORCH_INDEX), from $(TORCH_INDEX)) ..."
	@$(INSTALL) $(if $(TORCH_INDEX),--no-deps --index-url "$(TORCH_INDEX)") "$(TORCH)"
	@echo "Installing rl-openness and what it needs (a few minutes) ..."
	@$(INSTALL_US) .
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-run
	@echo "Installing what the tests and lint need ..."
	@$(INSTALL_US) ".[dev]"
	@touch $@
