# `make` lists what there is. ARGS goes to go test: make test ARGS='-run TestX -v'

SHELL      := /bin/bash
.SHELLFLAGS := -euo pipefail -c

GOLANGCI_LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOTESTSUM     = gotest.tools/gotestsum@v1.13.0
GOVULNCHECK   = golang.org/x/vuln/cmd/govulncheck@v1.9.0

ARGS       ?=
PKG        ?= ./...
FUZZTIME   ?= 10s
# Most tests wait for a server, so more of them run than there are cores.
PARALLEL   ?= -parallel 6

# RERUN=1 runs a test that failed once more, by itself, and names it: on a slow
# and shared machine one of thousands may fail by its timing. A race is final.
ifdef RERUN
GOTEST = go run $(GOTESTSUM) --format standard-quiet --rerun-fails=1 --rerun-fails-max-failures=60 \
  --rerun-fails-abort-on-data-race --packages "$(1)" --
else
GOTEST = go test $(1)
endif

# Every module of the repository: the main one and those nested in it.
MODULES     = $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './.*' | sort))
TESTSERVERS = bin/testservers
# ENGINES=postgres,mysql starts these servers only; SQLite needs none.
ENGINES    ?=
WITHSERVERS = $(TESTSERVERS) $(if $(ENGINES),-engines '$(ENGINES)') --

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  ARGS goes to go test (make test ARGS='-run TestX -v'), PKG says which packages (PKG=./sqllock)."
	@echo "  ENGINES=postgres,mysql starts these servers only (test, race)."
	@echo "  Servers: HOLDFAST_TEST_{POSTGRES,MYSQL,MARIADB}_DSN, else Docker, else local binaries, else apt-get."
	@echo "  HOLDFAST_TEST_REQUIRE=postgres,mysql,mariadb,sqlite makes a missing engine a failure;"
	@echo "  HOLDFAST_TEST_DOCKER=0 forbids Docker, HOLDFAST_TEST_INSTALL=0 forbids apt-get."

.PHONY: test
test: $(TESTSERVERS) tools-test ## Run every test, on every engine that can be had
	$(WITHSERVERS) $(MAKE) --no-print-directory engines-test

# What make test runs beside the servers. The libraries of examples/orm each
# have a way of their own with each engine.
.PHONY: engines-test
engines-test:
	$(call GOTEST,$(PKG)) -count=1 -timeout 20m $(PARALLEL) $(ARGS)
	cd examples/orm && $(call GOTEST,./...) -count=1 $(PARALLEL) $(ARGS)

# What the drivers do in their other modes, processes that are stopped and cut
# off in time, and measurements have no memory of ours in common, sqlx has that of
# database/sql, and some tests of SQLite's one writer are too slow under the
# detector, which wants one package at a time: make test and make faults run them.
# The model is no Go, nor is the browser.
RACE_SKIP  ?= SQLX|TestBrowser|TestPage|Interpolated|SimpleProtocol|PgxExec|TestLease[^s]|TestSQL/Locks/FourReapers|TestPgx/Locks/FourReapers|TestHandOverBetween|TestDay|TestMany|TestSQLModes|TestClaimHandOver|TestClaimsPoolOfOne|TestClaimsLostReplies|TestClaims[SP][^/]*/Thousand|TestLeases[^/]*/sqlite/Guard/Renewal|TestLeases[^/]*/sqlite/Close/InFlight

.PHONY: race
race: $(TESTSERVERS) ## The same under the race detector, without the drivers' other modes
	$(WITHSERVERS) $(call GOTEST,$(filter-out %/internal/model,$(shell go list $(PKG)))) -race -p 1 -count=1 -timeout 20m $(PARALLEL) -skip '$(RACE_SKIP)' $(ARGS)

# How long a campaign lasts on each engine (all at once), and its seed.
DURATION   ?= 20s
SEED       ?= 0

.PHONY: faults
faults: $(TESTSERVERS) ## The fault suite, then campaigns on every engine (DURATION=30m SEED=7; ARGS=-short)
	HOLDFAST_TEST_REQUIRE="$$(sed 's/,*sqlite//' <<<"$${HOLDFAST_TEST_REQUIRE-}")" \
	  $(TESTSERVERS) -- $(MAKE) --no-print-directory engines-faults # SQLite has no connection to cut

# No violation is run again in the hope that it goes away.
.PHONY: engines-faults
engines-faults:
	$(call GOTEST,./internal/faults/...) -count=1 -timeout 30m $(ARGS)
	$(MAKE) --no-print-directory campaign

# The campaigns alone, on servers that HOLDFAST_TEST_*_DSN name.
.PHONY: campaign
campaign:
	go test ./internal/campaign -count=1 -timeout 12h -v -duration=$(DURATION) -seed=$(SEED) $(ARGS)

.PHONY: cluster
cluster: $(TESTSERVERS) ## Galera and PostgreSQL clusters under fire: installs what is missing (ARGS=-short: about two minutes)
	$(TESTSERVERS) -cluster -- go test ./internal/cluster -count=1 -timeout 60m -v $(ARGS)

.PHONY: model
model: ## Check the models of the protocols: needs spin and gcc (ARGS=-bound=large for more)
	HOLDFAST_TEST_REQUIRE_MODEL=1 go test -count=1 -timeout 60m -v ./internal/model $(ARGS)

.PHONY: bench
bench: $(TESTSERVERS) ## Measure side by side with bare statements and peers (ARGS='-workload lock -rounds 9')
	cd bench && go build -o ../bin/bench .
	HOLDFAST_TEST_REQUIRE= $(TESTSERVERS) -local -- bin/bench -out bin/bench-out $(ARGS)

.PHONY: bench-check
bench-check: $(TESTSERVERS) ## No statement and no round trip more than recorded, no ratio a multiple (ARGS=-update records)
	$(TESTSERVERS) -- $(MAKE) --no-print-directory bench-check-run

.PHONY: bench-check-run
bench-check-run:
	cd bench && go test -count=1 ./... $(ARGS)

.PHONY: tools-test
tools-test: ## The tests of the nested modules that need no server
	@for module in $(filter-out . ./bench ./examples/orm,$(MODULES)); do \
	  (set -x; cd "$$module" && go test -count=1 ./... $(ARGS)); \
	done

.PHONY: lint
lint: ## golangci-lint on every module
	@config="$(CURDIR)/.golangci.yml"; status=0; for module in $(MODULES); do \
	  echo "lint $$module"; \
	  (cd "$$module" && go run $(GOLANGCI_LINT) run --config "$$config" ./...) || status=1; \
	done; exit $$status

.PHONY: fmt
fmt: ## Format every module as lint wants it
	@config="$(CURDIR)/.golangci.yml"; for module in $(MODULES); do \
	  (cd "$$module" && go run $(GOLANGCI_LINT) fmt --config "$$config" ./...); \
	done

.PHONY: vuln
vuln: ## Known vulnerabilities in what the modules call
	@for module in $(MODULES); do (cd "$$module" && go run $(GOVULNCHECK) ./...); done

.PHONY: fuzz
fuzz: ## Each fuzz test for FUZZTIME (10s)
	@for package in $$(go list $(PKG)); do \
	  for name in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
	    echo "$$package $$name"; \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $(ARGS) "$$package"; \
	  done; \
	done

.PHONY: example
example: ## The refund example, on http://127.0.0.1:8080
	go run ./examples/refund $(ARGS)

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for module in $(MODULES); do (set -x; cd "$$module" && go mod tidy -e); done # of the peers of bench, not all tests can be had

# Without a network, where the modules are in the cache.
.PHONY: deps
deps: ## The modules are those of go.sum, and go.mod says what is used
	@for module in $(MODULES); do (set -x; cd "$$module" && go mod verify); done; \
	for module in $(filter-out ./bench,$(MODULES)); do (set -x; cd "$$module" && go mod tidy -diff); done # of the peers, not all tests can be had

.PHONY: verify
verify: ## What CI runs
	$(MAKE) deps
	$(MAKE) lint
	$(MAKE) test
	$(MAKE) race
	$(MAKE) faults ARGS=-short

# Its own module knows best whether it is up to date.
.PHONY: $(TESTSERVERS)
$(TESTSERVERS):
	@cd internal/testservers && go build -o "$(CURDIR)/$@" .
