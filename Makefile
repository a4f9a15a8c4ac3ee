# `make demo` and `make test` set everything up by themselves; `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
UV     := uv==0.13.8
TARGET ?= engine diagnose pipeline lr_finder grading journal checks book
SHARED ?= -n 3
CLASS  ?= build/demo-class

.DEFAULT_GOAL := help

help: ## This list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(VENV)/.installed ## Make .venv with everything from requirements.lock

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11. Try: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(UV)'
	$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python \
	  --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	mkdir -p $(VENV)/etc/jupyter/jupyter_server_config.d  # an editable install brings no data files
	cp autograde/classroom/jupyter/*.json $(VENV)/etc/jupyter/jupyter_server_config.d/
	@touch $@

demo: setup ## The whole road on real data: numbers, release, a graded class
	$(BIN)/python -m autograde.demo $(CLASS)

test: setup ## The tests, on three processes; one part: make test ARGS="tests/data -x"
	@$(BIN)/python tools/system.py
	@$(BIN)/python -m compileall -q -x /example/ autograde course tests
	$(BIN)/python -m pytest $(SHARED) $(ARGS)

thorough: setup ## All of what `make test` takes samples of; takes hours
	THOROUGH=1 $(BIN)/python -m pytest $(SHARED) -o faulthandler_timeout=7200 $(ARGS)

lab: setup ## JupyterLab on a student's own copies; another folder: make lab DIR=my-notebooks
	$(BIN)/course lab $(DIR)

notebooks: setup ## notebooks/*.ipynb from notebooks/source/*.py; runs them all with solutions
	$(BIN)/python -m autograde.authoring
	$(BIN)/python -m autograde.run_through

book: setup ## The whole course as an offline site, into build/book/
	$(BIN)/python -m book

readme: setup ## The tables of README and docs/, made by the commands
	$(BIN)/python tools/readme.py
	$(BIN)/python tools/road.py

bench: setup ## Benchmarks; one of them: make bench TARGET=engine
	for target in $(TARGET); do $(BIN)/python -m tests.bench.$$target || exit 1; done

gpu: setup ## What waits for a GPU: its tests, claims and benchmarks, on one page
	$(BIN)/python -m tests.bench.gpu

lint: setup ## ruff, as the house formats
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

lock: ## Compile requirements.lock and environment.yml again from pyproject.toml
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet --output-file requirements.lock
	$(BIN)/python tools/environment.py

clean: ## Remove what was made (not .venv)
	rm -rf build .pytest_cache .ruff_cache .hypothesis *.egg-info

.PHONY: help setup demo test thorough lab notebooks book readme bench gpu lint lock clean
