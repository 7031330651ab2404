# Two commands on a fresh machine with Python 3.11+: `make demo` and `make test`.
# Everything is installed into .venv. What pip does not have (a browser, Tarantool, lzop: tests/parts.py) comes
# from apt when `make test` runs as root on Debian; elsewhere the tests that need it skip, and say so.

PYTHON ?= python3
EXTRAS := arrow,cli,codecs,s3,server,spark,sql,tarantool,dev
BIN    := .venv/bin
READY  := .venv/.ready
PEERS  := .venv/.peers
RESULTS ?= benchmarks/results/latest.json

.DEFAULT_GOAL := help
.PHONY: help setup demo parts test test-all chaos check bench bench-report bench-gate docs clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY)  ## install the project and its tools into .venv

# Made again only when pyproject.toml changes.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Penstock needs Python 3.11 or newer; try: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS)]'
	@touch $@

# The systems that the benchmarks compare with.
$(PEERS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$(EXTRAS),bench]'
	@touch $@

demo: setup  ## live orders, a roll-up and a lake by Spark, two kill -9, and the ledger
	$(BIN)/python examples/demo

parts:  ## install what the tests need and pip does not have (on Debian, as root), or say what it is
	@$(PYTHON) tests/parts.py

# Two workers: tests wait for disks and processes more than they compute.
test: setup parts  ## every test but the slow ones
	$(BIN)/python -m pytest -m 'not slow' --numprocesses 2 --dist loadscope --no-loadscope-reorder

test-all: setup parts  ## every test
	$(BIN)/python -m pytest

# make chaos SEED=7 MINUTES=30
chaos: setup  ## faults, flips, kills and power cuts at random, by turns: SEED, MINUTES
	$(BIN)/python -m tests.chaos --seed $(or $(SEED),1) --minutes $(or $(MINUTES),1)

check: setup  ## format, lint, types, layers, tidiness
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/unit/test_layers.py tests/unit/test_tidy.py

# make bench BENCH="--quick --only write read"
bench: setup $(PEERS)  ## measure against peers; a table, and JSON in benchmarks/results/latest.json
	$(BIN)/python -m benchmarks --json $(RESULTS) $(BENCH)

bench-report: setup  ## that JSON (or RESULTS=file) into benchmarks/README.md, with a plot
	$(BIN)/python -m benchmarks.report $(RESULTS)

# make bench-gate REF=main ROWS="write read durable" TURNS=9
bench-gate: setup  ## compare with the commit REF by turns; fails when more than 10 % slower
	@test -n "$(REF)" || { echo "Which commit? make bench-gate REF=main" >&2; exit 2; }
	$(BIN)/python -m benchmarks.gate $(REF) $(if $(ROWS),--rows $(ROWS)) $(if $(TURNS),--turns $(TURNS))

docs: setup  ## check the documentation: links, and the examples in it
	$(BIN)/python -m pytest -q tests/docs
	@echo "The documentation is Markdown: start at README.md, then docs/."

clean:  ## remove .venv and caches
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
