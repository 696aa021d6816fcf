# Nothing is needed beforehand but Python 3.11 or later and make.
PYTHON ?= python3
BIN := .venv/bin
ORDERS ?= 200
ROUNDS ?= 20
RESTORES ?= 2
# Four processes on two cores keep them busy, and each more collects all tests again. Each process gets whole files.
PROCESSES ?= 4
PYTEST_OPTIONS := --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder
PYTHON_FLOOR ?= 85
# Container images set it. Then each worker process that a test starts compiles all it imports: three times the work.
unexport PYTHONDONTWRITEBYTECODE
SQL_FLOOR ?= 97
# Twice quiet is errors only: a package index that lacks a package is no news when the next one has it.
# Python compiles a module when it first imports it; most are never imported, and compiling all takes as long as the rest.
PIP_INSTALL := -m pip install --quiet --quiet --disable-pip-version-check --no-compile
# With the versions that were tested: a library's next release must not turn a test red.
INSTALL := $(BIN)/python $(PIP_INSTALL) --constraint constraints.txt
EDITABLE := --config-settings editable_mode=compat --editable
EXTRAS := console,embedded,migrate,telemetry,tsql,worker
SPARK_EXTRAS := spark,containers

.PHONY: demo check test costs nightly coverage conformance test-containers lint docs bench bench-against concepts constraints instructions capacity simulation chaos soak clean

.venv: .venv/.installed
.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("pybroker needs Python 3.11 or later; run make with PYTHON=/path/to/one") if sys.version_info < (3, 11) else 0'
	@echo "Installing pybroker into .venv"
	@$(PYTHON) -m venv .venv
	@$(INSTALL) --upgrade "pip>=25.1" setuptools
	@$(INSTALL) $(EDITABLE) ".[$(EXTRAS)]" --group test
	@touch $@

# Apart from the rest, as it is ten times as large, and the demo needs none of it.
.venv/.spark: .venv/.installed
	@echo "Installing Spark and a Java runtime into .venv"
	@$(INSTALL) $(EDITABLE) ".[$(SPARK_EXTRAS)]"
	@touch $@

.venv/.linters: .venv/.spark
	@echo "Installing the linters into .venv"
	@$(INSTALL) --group lint
	@touch $@

# BENCH="--peer-sql DIR" and the like: see python -m tests.bench --help.
.venv/.bench: .venv/.installed
	@echo "Installing what the benchmark draws with, and the queues that it measures beside ours, into .venv"
	@$(INSTALL) --group bench
	@touch $@

# The newest of everything; `make test` says whether we work with it.
constraints:
	@rm -rf build/newest && $(PYTHON) -m venv build/newest
	@build/newest/bin/python $(PIP_INSTALL) --upgrade "pip>=25.1"
	@build/newest/bin/python $(PIP_INSTALL) ".[all]" --group test --group lint --group bench --group docs
	@sed -i '1!d' constraints.txt
	@build/newest/bin/python -m pip freeze --exclude pybroker >> constraints.txt

demo: .venv
	@$(BIN)/pybroker demo --orders $(ORDERS)

# For each save: what one database promises, and all that needs no server.
check: lint
	PYBROKER_TEST_TIER=check PYBROKER_TEST_VERSIONS=18 $(BIN)/python -m pytest $(PYTEST_OPTIONS) tests/unit tests/sql

# On PostgreSQL 18, without containers; in CI on 15, 16 and 18, with them.
test: .venv .venv/.spark
	PYBROKER_TEST_TIER=$(if $(CI),ci,test) $(BIN)/python -m pytest $(PYTEST_OPTIONS) -m "not nightly$(if $(CI),, and not containers)"

# What the tests cost, by folder and file, in processor seconds; writes the table in docs/testing.md.
costs: test
	@$(BIN)/python -m tests.costs $(if $(CI),ci,test)

# For hours: faults at random, load, whole models. Each of them can be typed by itself. Some mistakes still survive.
nightly: .venv/.linters .venv/.bench
	CI=true PYBROKER_TEST_AT_RANDOM=yes PYBROKER_MODEL_EXAMPLES=100 $(MAKE) test
	CI=true PYBROKER_TEST_AT_RANDOM=yes $(BIN)/python -m pytest $(PYTEST_OPTIONS) -m nightly
	$(MAKE) instructions
	$(MAKE) chaos ROUNDS=20 MESSAGES=100000 RESTORES=2
	$(MAKE) soak MESSAGES=1000000
	$(MAKE) simulation SEEDS=5000
	$(BIN)/python -m tests.specs --nightly
	$(BIN)/python -m tests.fuzz --inputs 1000000
	$(BIN)/python -m tests.bench.diagnosis
	$(BIN)/pybroker throughput --json
	-$(BIN)/python -m tests.mutation

# Branches of Python, and SQL functions, that no test has run. The floors are a little below what was measured.
coverage: .venv/.linters
	rm -rf build/coverage && mkdir -p build/coverage/sql
	PYBROKER_TEST_SQL_CALLS=$(CURDIR)/build/coverage/sql $(BIN)/coverage run -m pytest $(PYTEST_OPTIONS) -m "not containers and not nightly"
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=$(PYTHON_FLOOR)
	$(BIN)/python -m tests.sql_calls --floor $(SQL_FLOOR) build/coverage/sql

conformance: .venv .venv/.spark
	@$(BIN)/python -m tests.conformance $(PYTEST_OPTIONS)

test-containers: .venv .venv/.spark
	$(BIN)/python -m pytest -m containers

lint: .venv/.linters
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tests.public_types
	$(BIN)/lint-imports
	$(BIN)/python -m tests.sync_twin --check
	$(BIN)/python -m tests.sql_checks
	$(BIN)/python -m tests.prose
	$(BIN)/codespell

.venv/.docs: .venv/.linters
	@echo "Installing what the documentation is built with into .venv"
	@$(INSTALL) --group docs
	@touch $@

# What CI needs, by one resolution instead of four.
.venv/.ci: pyproject.toml constraints.txt
	@echo "Installing pybroker, Spark, the linters and what the documentation is built with into .venv"
	@$(PYTHON) -m venv .venv
	@$(INSTALL) --upgrade "pip>=25.1" setuptools
	@$(INSTALL) $(EDITABLE) ".[$(EXTRAS),$(SPARK_EXTRAS)]" --group test --group lint --group docs
	@touch .venv/.installed .venv/.spark .venv/.linters .venv/.docs $@

# A link that leads nowhere fails it.
docs: .venv/.docs
	@$(BIN)/python -m tests.docs_site

# REVISION="e6d75f0 ../another-checkout" CONCEPTS="--page docs/performance.md"
concepts: .venv/.linters
	@$(BIN)/python -m tests.concepts $(REVISION) $(CONCEPTS)

# REVISION=e6d75f0 AGAINST="--rounds 5 -- --scenario ours"
bench-against: .venv/.bench
	$(BIN)/python -m tests.bench.against $(REVISION) $(AGAINST)

bench: .venv/.bench
	$(BIN)/python -m tests.bench $(BENCH)

# Counted, so a busy machine doesn't matter; needs valgrind. INSTRUCTIONS="--call SEND --json".
instructions: .venv
	@$(BIN)/python -m tests.bench.instructions $(INSTRUCTIONS)

# RESULTS=build/bench/result.json RATE=20000 SIZE=1000 DIALOGS=200 BATCH=100 CROSSES=yes
capacity: .venv
	@$(BIN)/python -m tests.bench.capacity $(if $(RATE),--rate $(RATE)) $(if $(RESULTS),--results $(RESULTS)) $(if $(SIZE),--size $(SIZE)) \
	  $(if $(DIALOGS),--dialogs $(DIALOGS)) $(if $(BATCH),--batch $(BATCH)) $(if $(CROSSES),--crosses)

# SEED=42: that one again. SEEDS=1000: so many from there on, in two processes.
simulation: .venv
	@$(BIN)/python -m tests.simulation --seed $(or $(SEED),1) --seeds $(or $(SEEDS),1) --processes $(if $(SEEDS),2,1)

chaos: .venv
	@$(BIN)/python -m tests.chaos --rounds $(ROUNDS) --restores $(RESTORES) $(if $(MESSAGES),--messages $(MESSAGES)) $(if $(SEED),--seed $(SEED))

soak: .venv
	@$(BIN)/python -m tests.chaos.soak $(if $(MESSAGES),--messages $(MESSAGES))

clean:
	rm -rf .venv
