# `make help` says what there is. Each target prints the commands that it runs.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The modules of this repository, each tested and linted in its own folder.
MODULES := $(patsubst %/go.mod,%,$(wildcard ./go.mod examples/billing/go.mod bench/go.mod))

# The tests start servers, of which Go's test cache knows nothing, hence -count=1.
TESTFLAGS ?= -race -count=1 -timeout=10m

# The targets below install Mosquitto first, so a live test that skips is a mistake. `SETTLE_LIVE= make test` allows it.
SETTLE_LIVE ?= require
export SETTLE_LIVE

# The names that programs compile against, where this repository stands beside them. Until there is a testkit, they are compiled only.
CONTRACT ?= $(wildcard ../shared/contract/check)
CONTRACTFLAGS ?= $(if $(wildcard testkit/*.go),,-build)

# Where `make demo` runs: on a server in its own process, on a Mosquitto that is started for it, or at a URL.
SERVER = embedded

# The linter keeps the paths of findings in its cache, and a cache that two checkouts share reports the paths of the other one.
export GOLANGCI_LINT_CACHE := $(CURDIR)/.cache/golangci-lint

# Runs $(1) in the folder of each module.
in_modules = for module in $(MODULES); do echo "+ cd $$module && $(1)"; (cd "$$module" && $(1)); done

.PHONY: help
help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Half a minute of the billing service, cut off three times, with the account at the end; SERVER=mqtt://… on a real server
	@$(if $(filter mosquitto,$(SERVER)),scripts/need-mosquitto.sh)
	go -C examples/billing run ./demo -server '$(SERVER)'

.PHONY: test
test: need-mosquitto ## All tests, with the race detector; installs Mosquitto where it is missing
	@$(call in_modules,go test $(TESTFLAGS) ./...)

.PHONY: live
live: need-mosquitto ## Only the tests against real servers, which they start and kill themselves
	@$(call in_modules,go test $(TESTFLAGS) -run Live ./...)

.PHONY: fuzz
fuzz: ## A minute of fuzzing of the frame parser and of the in-process server; FUZZTIME=10m for each target is better
	scripts/fuzz.sh

.PHONY: hostile
hostile: ## All that a hostile server or client can say; `make test` sends a fifth of it, with the race detector
	go test -count=1 -v ./internal/hostile

.PHONY: chaos
chaos: need-mosquitto ## A minute of killed consumers, cut connections and restarted servers, and an account of 200,000 messages; SEED=n, DURATION=
	go run -race ./internal/chaos/run -seed '$(or $(SEED),1)' -duration '$(or $(DURATION),1m)'

.PHONY: chaos-long
chaos-long: ## The same for an hour, from a fresh seed
	@$(MAKE) chaos SEED='$(or $(SEED),0)' DURATION=1h

.PHONY: simulate
simulate: ## A minute of simulated faults from fresh seeds, on all cores; DURATION=10m is longer, SEED=n runs the schedule of one seed again
	SETTLE_SIMULATE=$(or $(DURATION),1m) SETTLE_SIMULATE_SEED=$(SEED) go test -count=1 -timeout=0 -v -run '^TestSimulate$$' .

.PHONY: mutants
mutants: ## Put seven faults into the core, one at a time: the tests have to catch each; MUTANTS=-full runs the whole suite against them
	go run ./internal/mutant/check $(MUTANTS)

.PHONY: bench
bench: need-mosquitto ## Speed beside paho and a loop written by hand, on a Mosquitto of its own; keep the machine quiet
	go -C bench run . -least 2.5

.PHONY: lint
lint: ## golangci-lint, of the version that tools/go.mod pins (its first build takes minutes)
	@lint=$$(GOWORK=off go tool -modfile=tools/go.mod -n golangci-lint); $(call in_modules,"$$lint" run ./...)

.PHONY: check
check: fmt vet tidy lint contract test ## All that CI asks for

.PHONY: fmt
fmt: ## Fail where gofmt would change something
	@echo "+ gofmt -l ."; unformatted=$$(gofmt -l .); [[ -z $$unformatted ]] || { echo "gofmt -w these:"; echo "$$unformatted"; exit 1; }

.PHONY: vet
vet: ## go vet
	@$(call in_modules,go vet ./...)

.PHONY: tidy
tidy: ## Fail where go mod tidy would change something
	@$(foreach module,$(MODULES) tools,echo "+ go -C $(module) mod tidy -diff"; GOWORK=off go -C $(module) mod tidy -diff;)

.PHONY: contract
contract: ## Compile the programs of users beside this repository, if they are there
ifeq ($(CONTRACT),)
	@echo "contract: not beside this repository, so not checked"
else
	$(CONTRACT) $(CONTRACTFLAGS) .
endif

.PHONY: need-mosquitto
need-mosquitto:
	@scripts/need-mosquitto.sh
