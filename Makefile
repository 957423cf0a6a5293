# `make reproduce` and `make test` do all the set-up; nothing else is needed on a fresh machine.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
OUT    ?= report
FILES  ?=
JOBS   ?= 2

.PHONY: reproduce docs test check lint setup mutants clean

reproduce: $(READY)  ## every paper at scale `quick`, and results/ beside it, then OUT/index.html
	$(BIN)/rankscope reproduce --out $(OUT)

docs: $(READY)  ## the documentation site, in build/site; a warning is an error
	$(BIN)/python -m mkdocs build --strict --quiet

test: check  ## the whole suite, after linting and type checks

check: lint
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

mutants: $(BIN)/mutmut  ## changes to the code that no test notices; FILES=src/rankscope/lab/claim.py tries one file or folder
	rm -rf mutants
	$(BIN)/mutmut run --max-children $(JOBS) $(patsubst %,'%.*',$(subst /,.,$(patsubst src/%,%,$(FILES:.py=))))
	@$(BIN)/mutmut results | grep -v 'not checked' || true
	@$(BIN)/mutmut export-cicd-stats
	@$(BIN)/python -c 'import json; of = json.load(open("mutants/mutmut-cicd-stats.json")); \
	  dead = of["killed"] + of["timeout"] + of["segfault"]; \
	  tried = dead + of["survived"] + of["no_tests"] + of["suspicious"]; \
	  print(f"{dead} of {tried} mutants killed, {dead / tried:.1%}; asked 85%"); raise SystemExit(dead < 0.85 * tried)'

$(BIN)/mutmut: $(READY)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --editable ".[mutants]"
	@touch $@

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Rankscope needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet --editable ".[dev]"
	@# the rated sentences, so that the tests on them are not skipped; without a network they are
	@$(BIN)/python -c 'from rankscope.studies.real.fetch import fetch_sentences; fetch_sentences()'
	@touch $@

clean:
	rm -rf $(VENV) $(OUT) mutants
