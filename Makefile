# Two commands: `make run` (a broker) and `make test`. Both need python3 >= 3.11 with venv, and the
# network for pip the first time; they install into .venv and nowhere else.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
SOURCES_OF_INSTALL := pyproject.toml setup.py $(wildcard */_kernel_c*.p?? */*/_kernel_c*.p??)
TESTS_OF_PATH := $(addprefix tests/,actors amqp broker chaos conformance core durable gm msg_store queue_backing routing server supervisors testing)
PACKAGES := $(patsubst %/__init__.py,%,$(wildcard */__init__.py))
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONSAFEPATH := 1

.PHONY: run test test-compiled slow check format bench turns clean

run: $(VENV)/.installed
	@exec $(VENV)/bin/leveret serve $(ARGS)

test: $(VENV)/.installed-dev
	$(VENV)/bin/pytest $(ARGS)

# The tests of the message's path on its compiled form, which is made first: three minutes of work.
test-compiled: $(VENV)/.installed-dev
	LEVERET_COMPILE=path $(VENV)/bin/python setup.py -q build_ext --inplace
	LEVERET_COMPILED=require $(VENV)/bin/pytest $(TESTS_OF_PATH) $(ARGS)

slow: $(VENV)/.installed-dev
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

bench: $(VENV)/.installed
	$(VENV)/bin/python benchmarks/run.py $(ARGS)

turns: $(VENV)/.installed
	$(VENV)/bin/python benchmarks/turns.py --out benchmarks/results --table docs/reference/turns.md $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f */_kernel_c.c */_kernel_c*.so */*/_kernel_c.c */*/_kernel_c*.so
	rm -rf leveret/_compiled
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "leveret: needs Python 3.11 or newer as python3 (or make PYTHON=/path/to/python3.11)" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "leveret: $(PYTHON) has no venv module (Debian, Ubuntu: apt install python3-venv)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(SOURCES_OF_INSTALL) | $(VENV)/bin/python
	@$(VENV)/bin/pip install -q -e '.[fast]' 2>/dev/null || $(VENV)/bin/pip install -q -e . || { echo "leveret: pip could not install what pyproject.toml names (network?)" >&2; exit 1; }
	@$(VENV)/bin/python -m compileall -q $(PACKAGES)
	@touch $@

$(VENV)/.installed-dev: $(SOURCES_OF_INSTALL) | $(VENV)/bin/python
	@$(VENV)/bin/pip install -q -e '.[dev]' || { echo "leveret: pip could not install what pyproject.toml names (network?)" >&2; exit 1; }
	@$(VENV)/bin/python -m compileall -q $(PACKAGES)
	@touch $(VENV)/.installed $@
