# Every recipe is one line that calls a tool of .venv; `make setup` makes that and every other target asks for it.

MAKEFLAGS += --no-print-directory
BIN := .venv/bin
PY := $(BIN)/python

# What can be given: make sim SEEDS=1000, make test TESTS=tests/store, make setup PYTHON=python3.13
TESTS ?= tests
JOBS ?= 2
ISSUE ?= spine
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help setup check format lint types imports tidy fix test demo sim chaos powercut differential intake fuzz bench bench-peers churn cases readme docs references lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make .venv from the pinned requirements (nothing to do: nothing done)
	@tools/setup.sh

check: format lint types imports tidy ## Format, lint, types, imports, house rules and the core's tests: under a minute or so

format: setup
	$(BIN)/ruff format --check .

lint: setup
	$(BIN)/ruff check .

types: setup
	$(BIN)/basedpyright
	$(BIN)/mypy

imports: setup
	$(BIN)/lint-imports --no-logo

tidy: setup
	$(BIN)/pytest -q -n $(JOBS) -m "not slow and not sim" tests/house tests/core

fix: setup ## Repair what the tools can repair
	$(BIN)/ruff check --fix-only --exit-zero .
	$(BIN)/ruff format .
	$(PY) -m tools.references

test: setup ## Run every test (TESTS=tests/store for some, JOBS=4 for more at once)
	$(BIN)/pytest -n $(JOBS) $(TESTS)

demo: setup ## Feed a file of orders, kill engine and worker while charges are in flight, see nothing lost
	@$(PY) -m examples.orders_demo

sim: setup ## Play seeds of the simulation: SEEDS=1000, SEED=17 for one, PLANT=name for a planted bug, PLANTS=1 for all
	@$(PY) -m outlast.sim $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) $(if $(PLANT),--plant $(PLANT)) $(if $(PLANTS),--plants) --jobs $(JOBS)

chaos: setup ## Kill real processes: CYCLES=200, STORE=postgres, PLANT=name
	@$(PY) -m tests.end_to_end.chaos $(if $(CYCLES),--cycles $(CYCLES)) $(if $(STORE),--store $(STORE)) $(if $(PLANT),--plant $(PLANT))

powercut: setup ## Cut the power under SQLite: CUTS=300, SYNCHRONOUS=NORMAL to see the harness find losses
	@$(PY) -m tests.end_to_end.powercut $(if $(CUTS),--cuts $(CUTS)) $(if $(SYNCHRONOUS),--synchronous $(SYNCHRONOUS))

differential: setup ## Do the same on all stores and compare: LISTS=1000, SEED=7
	@$(PY) -m tests.store.differential $(if $(LISTS),--lists $(LISTS)) $(if $(SEED),--seed $(SEED))

intake: setup ## Kill programs that enqueue in transactions, and engines that take it up: KILLS=200, PLACE=postgres
	@$(PY) -m tests.end_to_end.intake_kills $(if $(KILLS),--kills $(KILLS)) $(if $(PLACE),--place $(PLACE)) $(if $(PLANT),--plant $(PLANT))

fuzz: setup ## Ask every address of the OpenAPI document what nobody would think of: REQUESTS=100000, SEED=7
	@$(PY) -m tests.gateway.fuzz $(if $(REQUESTS),--requests $(REQUESTS)) $(if $(SEED),--seed $(SEED))

bench: setup ## Measure against the raw store: STORE=postgres beside raw COPY, ONLY=tasks SIZE=small for a part
	@$(PY) -m benchmarks $(if $(STORE),--store $(STORE)) $(if $(ONLY),--only $(ONLY)) $(if $(SIZE),--size $(SIZE))

bench-peers: setup ## Measure beside other engines, which it installs apart: PEERS=restate,pgqueuer,absurd,dbos SIZE=small
	@$(PY) -m benchmarks.peers $(if $(PEERS),--peers $(PEERS)) $(if $(SIZE),--size $(SIZE))

churn: setup ## Watch the sizes of tables under a steady rate: STORE=postgres MINUTES=60 RATE=60, PLANT=kept
	@$(PY) -m benchmarks.churn $(if $(STORE),--store $(STORE)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(RATE),--rate $(RATE)) $(if $(PLANT),--plant $(PLANT))

cases: setup ## List the acceptance cases: ISSUE=spine, RUN=1 runs their tests, PROVE=1 plants their bugs
	@$(PY) -m tools.cases --scope $(ISSUE) $(if $(RUN),--run) $(if $(PROVE),--prove)

readme: setup ## Run every block of README.md in a fresh environment, and take a newcomer's first minute
	@$(PY) -m tools.readme README.md --measure

docs: setup ## Build the pages under docs/ into docs/_build
	@tools/docs.sh

references: setup ## Write the reference pages that are made from the code
	@$(PY) -m tools.references

lock: setup ## Write requirements/*.txt anew from pyproject.toml (UPGRADE=1 takes the newest)
	@$(PY) -m tools.lock $(if $(UPGRADE),--upgrade)

clean: ## Remove what was made
	rm -rf .venv .cache build dist docs/_build .demo .pytest_cache .hypothesis .mypy_cache .ruff_cache .import_linter_cache .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
