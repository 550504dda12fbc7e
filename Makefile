# What a person types; everything real is in CMake, scripts/ and the programs. `make help` lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

JOBS     ?= $(shell nproc)
BUILD    := build/release
SCENARIO ?= quick
REPEAT   ?= 1
SINKS    ?= wal ingest valkey rabbit direct
SET      ?=
THROUGH  ?= native
WERROR   ?= OFF
SEEDS    ?= 10000
FIRST    ?= 1
SECONDS  ?= 600
PREFIX   ?= /usr/local

DEPS  := scripts/deps --quiet
STEP  := JOBS=$(JOBS) WERROR=$(WERROR) scripts/build
SUITE := scripts/run-tests

.PHONY: help deps build compare test unit test-trixie test-compose oracle contract bench lint fmt asan tsan sim mutants fuzz install clean

help: ## this list
	@printf 'Usage: make TARGET [VARIABLE=value]\n\n'
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target text; do \
	    printf '  %-12s %s\n' "$$target" "$$text"; done
	@printf '\nVariables: JOBS=%s WERROR=OFF|ON; for compare: SCENARIO=quick REPEAT=1\n' '$(JOBS)'
	@printf '  SINKS="wal direct" (none: all) SET="load.rps=200 worker.lanes=4"\n  THROUGH=compose (in containers); for contract: SINK=wal\n  for sim: SEEDS=10000 FIRST=1; for fuzz: SECONDS=600\n'

compare: build ## run a scenario against every sink there is, and write compare.md
	@$(DEPS) $(if $(filter compose,$(THROUGH)),build,run)
	@$(BUILD)/bin/sluice run scenarios/$(SCENARIO).yaml --repeat $(REPEAT) --through $(THROUGH) \
	    $(foreach sink,$(SINKS),--sink $(sink)) $(foreach pair,$(SET),--set $(pair))

test: build ## unit tests, driver contracts, end to end, the audit's own proof
	@$(DEPS) run test
	@$(SUITE) $(BUILD)

unit: build ## unit tests and driver contracts alone
	@$(DEPS) run test
	@$(SUITE) $(BUILD) -LE 'e2e|oracle'

test-trixie: ## on Debian 13 (as root): both compilers, `make unit`, a run of each sink
	@JOBS=$(JOBS) WERROR=$(WERROR) scripts/in-debian trixie \
	    sh -c 'scripts/build clang && scripts/build release && $(SUITE) $(BUILD) -LE "^(e2e|oracle|root)$$"'

test-compose: ## compose/ on a container engine (a private one where none runs), with kills by hand
	@tests/compose/test

oracle: build ## builds broken on purpose: shows that the audit catches each
	@$(DEPS) run test
	@$(SUITE) $(BUILD) -L oracle --verbose

contract: build ## the contract suite of sink drivers; SINK=wal for one
	@$(DEPS) run test
	@names=$$(ctest --test-dir $(BUILD) -N -R '^contract_' | sed -n 's/.*: contract_//p' | tr '\n' ' '); \
	    case " $$names" in *" $(SINK)"*) ;; \
	    *) echo "make contract: there is no contract suite of a sink $(SINK): expected one of $$names" >&2; exit 2 ;; esac
	@$(SUITE) $(BUILD) -R '^contract_$(SINK)' --verbose

bench: build ## speed, each figure beside a baseline of the same run
	@$(DEPS) run bench
	@bench/run $(BUILD)

lint: ## formatting, static analysis, shell scripts
	@$(DEPS) build lint
	@$(STEP) release # some headers are made by the build
	@JOBS=$(JOBS) scripts/lint $(BUILD)

fmt: ## put every C file into the project's format
	@$(DEPS) lint
	@git ls-files -z '*.c' '*.h' | xargs -0 -r clang-format -i

asan: ## unit tests under AddressSanitizer and UBSan
	@$(DEPS) build run test
	@$(STEP) asan
	@$(SUITE) build/asan -LE 'e2e|oracle'

tsan: ## unit tests under ThreadSanitizer
	@$(DEPS) build run test
	@$(STEP) tsan
	@$(SUITE) build/tsan -LE 'e2e|oracle'

sim: build ## the log in a simulator that loses power: SEEDS=10000 of them
	@$(DEPS) test
	@$(BUILD)/test/test_wal_simulate $(FIRST) $$(($(FIRST) + $(SEEDS) - 1)) $(JOBS)

mutants: build ## the log with one guard broken at a time; a test must notice each
	@$(DEPS) test
	@JOBS=$(JOBS) lib/wal/test/mutants.sh $(BUILD)

fuzz: ## the log's decoders under libFuzzer, for SECONDS=600
	@$(DEPS) build lint test
	@cmake --preset fuzz >/dev/null && cmake --build --preset fuzz -j $(JOBS) -- --quiet
	@lib/wal/test/fuzz/run.sh build/fuzz $(SECONDS)

deps: ## install what is missing for everything here
	@scripts/deps

build: ## build/release/bin
	@$(DEPS) build
	@$(STEP) release

install: build ## install the programs and the log's library below PREFIX (and DESTDIR)
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean: ## remove build/; runs/ stays (see `sluice clean`)
	@rm -rf build
