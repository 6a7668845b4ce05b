# `make` lists what there is. ARGS goes to go test: make test ARGS='-run TestX -v'

SHELL      := /bin/bash
.SHELLFLAGS := -euo pipefail -c

GOLANGCI_LINT = github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK   = golang.org/x/vuln/cmd/govulncheck@v1.9.0
VALE          = github.com/errata-ai/vale/v3/cmd/vale@v3.17.1

ARGS       ?=
PKG        ?= ./...
FUZZTIME   ?= 10s
# Most tests wait for a server, so more of them run than there are cores.
PARALLEL   ?= -parallel 4

# Lint vets, and nobody debugs a test's binary: this is a third of the time to build one. The suites and the
# tests themselves are compiled without inlining, a sixth of what is left. The linter wants all packages
# compiled as well, and finds them in the cache if it says the same.
GCFLAGS     = -gcflags=github.com/holdfast-go/holdfast/internal/test/...=-l -gcflags=github.com/holdfast-go/holdfast/..._test=-l
BUILD      ?= -vet=off -ldflags=-w $(GCFLAGS)

# The compiler, the linker and the tests spend a tenth to a fifth of their time on garbage.
GOTEST     = GOGC=400 go test -count=1

# Every module of the repository: the main one and those nested in it.
MODULES     = $(patsubst %/go.mod,%,$(shell find . -name go.mod -not -path './.*' | sort))
# Those of go.work, which are built and tested in one go. Each other has a go.work of its own.
WORKSPACE   = $(shell awk '/^\t\./ { print $$1 }' go.work)
EVERY       = $(if $(filter ./...,$(PKG)),$(addsuffix /...,$(WORKSPACE)),$(PKG))
# Those that take longest begin first: else one of them ends alone.
TESTED      = $(filter $(LONGEST),$(LISTED)) $(filter-out $(LONGEST),$(LISTED))
LONGEST     = $(addprefix github.com/holdfast-go/holdfast/,idempotency idempotency/staged sqllock sqllock/rowlock sqllock/fairlock reaper cmd/holdfast)
# What PKG says, without the packages that have no test. The faults and the models have targets of their own.
LISTED      = $(shell go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(EVERY) $(if $(filter ./...,$(PKG)),| grep -vE "/internal/test/(faults|model)$$"))
# One launcher starts the servers, for every target. A server that a variable names
# is used as it is, so what testservers runs can run make again.
TESTSERVERS = bin/testservers
# ENGINES=postgres,sqlite runs on these engines only; SQLite needs no server.
ENGINES    ?=
WITHSERVERS = $(TESTSERVERS) $(if $(ENGINES),-engines '$(ENGINES)') --

.DEFAULT_GOAL := help

LIST = awk -v only='$(1)' -F ':.*\#\# ' '/^[a-z-]+:.*\#\# / && (only == "" || index(" " only " ", " " $$1 " ")) { printf "  make %-13s %s\n", $$1, $$2 }' \
  $(firstword $(MAKEFILE_LIST))

.PHONY: help
help: ## The targets that a change needs
	@$(call LIST,test lint fmt model example verify)
	@echo "  make help-all      Every target"
	@echo
	@echo "  ARGS goes to go test (make test ARGS='-run TestX -v'), PKG says which packages (PKG=./sqllock)."
	@echo "  ENGINES=postgres,sqlite runs on these engines only."
	@echo "  Servers: HOLDFAST_TEST_{POSTGRES,MYSQL,MARIADB}_DSN, else Docker, else local binaries, else apt-get."
	@echo "  HOLDFAST_TEST_REQUIRE=postgres,mysql,mariadb,sqlite makes a missing engine a failure;"
	@echo "  HOLDFAST_TEST_DOCKER=0 forbids Docker, HOLDFAST_TEST_INSTALL=0 forbids apt-get."

.PHONY: help-all
help-all: ## Every target
	@$(call LIST)

# With PKG only its tests run.
.PHONY: test
test: $(TESTSERVERS) ## Run every test but faults and models, on every engine that can be had
	@$(WITHSERVERS) $(MAKE) --no-print-directory test-run $(if $(filter ./...,$(PKG)),modules-test)

.PHONY: test-run
test-run:
	@set -- $(TESTED); echo "building and running $$# packages of tests: with an empty cache, the first build takes minutes"; \
	$(GOTEST) "$$@" -timeout 30m $(BUILD) $(PARALLEL) $(ARGS)

.PHONY: modules-test
modules-test: ## The tests of the modules that go.work does not have, but for bench
	@for module in $(filter-out $(WORKSPACE) ./bench,$(MODULES)); do \
	  (cd "$$module" && $(GOTEST) $(BUILD) $(PARALLEL) ./... $(ARGS)); \
	done

# The detector sees the memory that goroutines of one process share. It is not for
# packages that have no goroutines, that test processes or the servers' settings, or
# whose model is no Go. It is slow, and wants one package at a time. A test that it
# shows nothing says dbtest.NotUnderRace. SQLite, which is C made into Go, is not looked at.
# Those without goroutines: of the adapters, holdfastsql; the loops of cron, the tables of limits and inbox,
# the triggers of fence, and what judges or lists for other tests.
RACE_LEFT_OUT = /cmd/holdfast(/internal/similar)?$$|/examples/|/migrations|/doctor|/optimistic|/audit|/internal/(canonical|dialect|dsn|token|trace)|/internal/test/(admission|bounds|campaign|cluster|docs|faults|model|mutants.*|polyglot|repo|roads|scaleout|site)$$|/adapters/holdfastsql|/holdfastslog|/holdfasttest/|/idempotency/(cron|inbox|operators)$$|/limits$$|/sqllock/fence$$

.PHONY: race
race: $(TESTSERVERS) ## The same under the race detector, on ENGINES: two have the memory of every server's driver
	@$(WITHSERVERS) env $(GOTEST) $$(printf '%s\n' $(TESTED) | grep -vE '$(RACE_LEFT_OUT)') -race -gcflags='modernc.org/...=-race=false' \
	  -p 1 -timeout 30m $(BUILD) $(PARALLEL) $(ARGS)

# What needs more than a role has: the operator's work, the owner's (triggers, DDL), and tables under
# other names, for which a test prints no grants.
ROLES_OTHERS = PrefixAndSchema|DDLInTheFunction|BadGuard|VersionIsEnforced|RowTablesAreChecked|AfterRestoreClone|Enforce.*|Procedure.*|NoLostUpdateOverRows|TablesAreMissing|GuardedRowIsPassedOver
ROLES_OPERATORS = SimilarScopes|WhoExecutedGoes|TwinErasure|EraseStagedOwner|EraseOwner|EraseManyPages|HashedKeys|LostLeaseMakesNone|VoidLasts|OutliveTheirRow|ForceRelease|^Together$$|DeadLetter$$|DeathIsBlamedOnItsMessage|HeldUpKeyHidesNone|^Cleared$$
ROLES = $(WITHSERVERS) env $(GOTEST) $(BUILD) $(PARALLEL) $(ARGS) -skip '//($(ROLES_OTHERS)$(1))|///($(ROLES_OTHERS))|////($(ROLES_OTHERS)$(if $(1),|^Again$$))' -run '^Test($(2))$$/^($(or $(4),SQL))$$$(if $(5),/$(5))' $(3)

.PHONY: roles
roles: $(TESTSERVERS) ## The suites of each role, with exactly the grants that migrate grants prints
	@HOLDFAST_TEST_ROLE=app $(call ROLES,|$(ROLES_OPERATORS),Records|Leases|RowLocks|Tickets|Register|Rows|Outbox,./idempotency ./sqllock ./sqllock/rowlock ./sqllock/fairlock ./optimistic/register ./optimistic ./idempotency/outbox)
	@HOLDFAST_TEST_ROLE=app,operator $(call ROLES,,Records|Staged|Limits,./idempotency ./idempotency/staged ./limits)
	@HOLDFAST_TEST_ROLE=app,operator $(call ROLES,,Tickets|Outbox,./sqllock/fairlock ./idempotency/outbox,,($(ROLES_OPERATORS)))
	@HOLDFAST_TEST_ROLE=app,operator $(call ROLES,,Leases,./sqllock,,./^InTx$$)
	@HOLDFAST_TEST_ROLE=app,reader $(call ROLES,,Sweep,./reaper)

.PHONY: row-security
roles: row-security
row-security: ENGINES = postgres
row-security: $(TESTSERVERS) ## The same under the printed policies of row level security
	@HOLDFAST_TEST_ROLE=app HOLDFAST_TEST_ROW_SECURITY=1 $(call ROLES,|$(ROLES_OPERATORS)|CopiedClaims,Records|Leases|RowLocks|Tickets|Register|Rows,./idempotency ./sqllock ./sqllock/rowlock ./sqllock/fairlock ./optimistic/register ./optimistic,SQL|Pgx)
	@HOLDFAST_TEST_ROLE=app,operator HOLDFAST_TEST_ROW_SECURITY=1 $(call ROLES,|OperatorsFilter,Staged|Limits,./idempotency/staged ./limits,SQL|Pgx)
	@HOLDFAST_TEST_ROLE=app,operator HOLDFAST_TEST_ROW_SECURITY=every-owner $(call ROLES,,Outbox,./idempotency/outbox,SQL|Pgx)

.PHONY: scale
scale: $(TESTSERVERS) ## Measure rates, curves and memory of thousands: on a quiet machine (PKG=./reaper: a million rows)
	@HOLDFAST_TEST_SCALE=1 $(WITHSERVERS) go test $(if $(filter ./...,$(PKG)),./sqllock ./internal/test/faults,$(PKG)) \
	  -run AtScale -v -p 1 -count=1 -timeout 60m $(ARGS)

# How long a campaign lasts on each engine (all at once), and its seed.
DURATION   ?= 20s
SEED       ?= 0

.PHONY: faults
faults: $(TESTSERVERS) ## The fault suite, then campaigns on every engine (DURATION=30m SEED=7; ARGS=-short)
	@$(WITHSERVERS) $(MAKE) --no-print-directory faults-run campaign

.PHONY: faults-suite
faults-suite: $(TESTSERVERS) ## The fault suite alone, which needs no luck (ARGS=-short)
	@$(WITHSERVERS) $(MAKE) --no-print-directory faults-run

.PHONY: faults-run
faults-run:
	@$(GOTEST) ./internal/test/faults -timeout 30m $(BUILD) $(ARGS)

# What needs luck, or has a long form (dbtest.Nightly), with those. It runs alone: its storms kill processes.
.PHONY: nightly-tests
nightly-tests: $(TESTSERVERS)
	@HOLDFAST_TEST_NIGHTLY=1 $(WITHSERVERS) env $(GOTEST) $(BUILD) $(PARALLEL) -timeout 60m $(ARGS) \
	  $$(git grep -lE 'dbtest\.(Only)?Nightly\(|conformance\.(In)?(Modes|Handles)\(' -- '*_test.go' ':!holdfast[!t]*' | xargs -n1 dirname | sort -u | sed 's|^|./|')

.PHONY: nightly
nightly: ## What depends on luck or is long: storms, campaigns, simulations, whole models, fuzzing (TIMES=10 DURATION=10m FUZZTIME=1m PARTS=fuzz)
	@.ci/parts nightly

.PHONY: weekly
weekly: ## Clusters, roles, other languages, versions and engines, every mutant: hours, as root (PARTS='cluster roles')
	@.ci/parts weekly

# They wait for seconds, and not for events.
.PHONY: doors
doors: $(TESTSERVERS) ## The adapters to other projects under the tests of those, which come with their modules
	@HOLDFAST_TEST_NIGHTLY=1 $(WITHSERVERS) bash -euc 'for door in holdfastgocron holdfastgoose; do (cd $$door && $(GOTEST) $(BUILD) -count=1 -run TestForeign -v $(ARGS)); done'

# The campaigns alone, on servers that HOLDFAST_TEST_*_DSN name.
.PHONY: campaign
campaign:
	go test ./internal/test/campaign $(BUILD) -count=1 -timeout 12h -v -duration=$(DURATION) -seed=$(SEED) $(ARGS)

# It needs no server, and builds package runtime once.
.PHONY: simulation
simulation: ## The clients of leases, lines, idempotent and staged operations under a seeded scheduler, for DURATION in all, and then planted bugs (DURATION=10m SEED=7)
	go test ./internal/test/simulation $(BUILD) -count=1 -timeout 12h -v -run 'TestExact|TestPlanted' -duration=$(DURATION) -seed=$(SEED) $(ARGS)

.PHONY: rolling
rolling: $(TESTSERVERS) ## This version and the one before side by side on each engine, in a storm, and back; to another server (FROM=commit)
	@HOLDFAST_TEST_ROLLING=1 $(WITHSERVERS) env $(GOTEST) ./internal/test/rolling $(BUILD) -count=1 -timeout 30m -v $(ARGS)

.PHONY: cluster
cluster: $(TESTSERVERS) ## Galera, MySQL groups and PostgreSQL clusters under fire: installs what is missing (ARGS=-short: six minutes)
	$(TESTSERVERS) -cluster -- go test ./internal/test/cluster -count=1 -timeout 60m -v $(ARGS)

.PHONY: matrix
matrix: ## The suites on versions of the servers from other suites of Debian: as root, minutes for each (ARGS=trixie:postgresql-17:postgres)
	@internal/test/matrix/run $(ARGS)

.PHONY: scaleout
scaleout: ## The suites on TiDB and Vitess, and a storm over two and four shards: as root, with Docker's mysql:9.7 (ARGS=vitess)
	@internal/test/scaleout/run $(ARGS)

.PHONY: polyglot
polyglot: $(TESTSERVERS) ## Clients in Python, PHP and Java beside Go: as root, installs what is missing (ENGINES=postgres)
	@internal/test/polyglot/install
	HOLDFAST_TEST_POLYGLOT=1 $(WITHSERVERS) go test ./internal/test/polyglot/... ./examples/polyglot -count=1 -timeout 30m -v $(ARGS)

.PHONY: model
model: ## Check the models of the protocols: needs spin and gcc (ARGS=-bound=large for more)
	HOLDFAST_TEST_REQUIRE_MODEL=1 go test -count=1 -timeout 60m -v ./internal/test/model $(ARGS)

# The commit that is measured, for the report.
COMMIT      = $(shell git describe --always --dirty --abbrev=12 --exclude '*' 2>/dev/null)

# The packages that get faults, the engines, and whether in SQL, in Go or in both.
MUTANTS_PKG     ?= $(if $(filter ./...,$(PKG)),./idempotency/... ./limits ./optimistic/... ./reaper ./sqllock/... ./audit ./internal/dialect/lockstmt ./internal/stdhandle,$(PKG))
MUTANTS_ENGINES ?= $(or $(ENGINES),sqlite,postgres,mysql,mariadb)
MUTANTS_IN      ?= sql go
comma           := ,

.PHONY: mutants
mutants: $(TESTSERVERS) ## Plant small faults in SQL and Go, one at a time, and count those that no test sees: hours (PKG= ENGINES= ARGS='-sample 20' MUTANTS_IN=sql)
	@go build -o bin/mutants ./internal/test/mutants
	@$(WITHSERVERS) bash -euc 'for engine in $(subst $(comma), ,$(MUTANTS_ENGINES)); do for in in $(MUTANTS_IN); do \
	  bin/mutants -engine $$engine $$([ $$in = sql ] || echo -$$in) $(ARGS) $(shell go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(MUTANTS_PKG)); done; done'

# Others every day, where the learning is short.
.PHONY: mutants-sample
mutants-sample:
	@$(MAKE) --no-print-directory mutants ENGINES=sqlite ARGS='-sample 60 -seed $(shell date +%F) -within 10m' \
	  MUTANTS_PKG='./limits ./audit ./optimistic/register ./idempotency/staged ./internal/dialect/lockstmt ./internal/stdhandle'

.PHONY: bench
bench: $(TESTSERVERS) ## Measure side by side with bare statements and peers (FLUSH=disk ARGS='-workload lock -rounds 9')
	cd bench && go build -ldflags '-X main.commit=$(COMMIT)' -o ../bin/bench .
	HOLDFAST_TEST_REQUIRE= $(if $(filter disk,$(FLUSH)),,TMPDIR=$(wildcard /dev/shm)) $(TESTSERVERS) -local $(if $(filter disk,$(FLUSH)),-disk) -- bin/bench -out bin/bench-out -flush $(FLUSH) $(ARGS)
# What a commit waits for: nothing, where all files are in memory (free), or a disk.
FLUSH ?= free

# Runs that make bench kept: RUNS=bin/run1/result.json,bin/run2/result.json (ARGS='-out bin/run1' keeps one there).
RUNS       ?= bin/bench-out/result.json
.PHONY: first-hour
first-hour: ## Follow each page of docs/start in a container, from nothing to its output, with the time: as root, with Docker
	@$(SITE)/install debootstrap=debootstrap
	@examples/start/newcomer
	@cd examples/start && HOLDFAST_TEST_FIRST_HOUR=holdfast-newcomer go test -run TestFirstHour -count 1 -timeout 30m -v .

.PHONY: pictures
pictures: ## Take the README's picture from the page of examples/refund
	@HOLDFAST_SCREENSHOTS='$(CURDIR)/bin/pictures' go test ./examples/refund -run TestPageScreenshots -count 1 >/dev/null
	@mkdir -p docs/img && cp bin/pictures/refund-orders.png docs/img/refund.png

.PHONY: bench-docs
bench-docs: ## Fill docs/why/performance.md and its pictures from one or several RUNS of bench
	cd bench && go build -ldflags '-X main.commit=$(COMMIT)' -o ../bin/bench .
	bin/bench -merge '$(RUNS)' -docs docs/why/performance.md >/dev/null

.PHONY: bench-check
bench-check: $(TESTSERVERS) ## No statement and no round trip more than recorded (ARGS=-update records)
	@$(TESTSERVERS) -dir bench -- env $(GOTEST) $(BUILD) ./... $(ARGS)

.PHONY: lint
lint: ## golangci-lint on every module, in one workspace: what they share is looked at once
	@work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; export GOWORK="$$work/go.work"; \
	go work init $(MODULES); \
	GOGC=400 GOFLAGS="$${GOFLAGS-} $(GCFLAGS)" go run $(GOLANGCI_LINT) run --timeout 30m $(foreach module,$(MODULES),$(module)/...)

.PHONY: fmt
fmt: ## Format every module as lint wants it
	@config="$(CURDIR)/.golangci.yml"; for module in $(MODULES); do \
	  (cd "$$module" && go run $(GOLANGCI_LINT) fmt --config "$$config" ./...); \
	done

# The site has one page for README.md, README.zh-CN.md and each page below docs/. DOCS_VERSION is the name that
# its menu of versions shows, DOCS_BASE the path it is served at, DOCS_SITE the address with a folder a version.
SITE        = docs/.vitepress
.PHONY: docs
docs: $(SITE)/node_modules/.package-lock.json ## Build the site from README.md and docs/ into bin/site: needs no network once it was built
	$(SITE)/node_modules/.bin/vitepress build docs

$(SITE)/node_modules/.package-lock.json: $(SITE)/package-lock.json
	@$(SITE)/install node=nodejs npm=npm
	cd $(SITE) && npm ci
	@touch $@

.PHONY: docs-check
docs-check: docs ## The site's links and what it loads, and every page in a browser at 360 pixels (HOLDFAST_SCREENSHOTS=dir keeps pictures)
	@$(SITE)/install chromium=chromium
	HOLDFAST_TEST_REQUIRE_SITE=1 HOLDFAST_TEST_REQUIRE_BROWSER=1 go test ./internal/test/site -count=1 $(ARGS)

# Words of our own are in docs/.vale/styles/words.txt, words to avoid in docs/.vale/styles/House.
.PHONY: docs-lint
docs-lint: bin/vale ## Spelling and plain English of the pages
	@$(SITE)/install /usr/share/hunspell/en_GB.dic=hunspell-en-gb
	bin/vale --config docs/.vale/vale.ini --output line $$(git ls-files '*.md' ':!*.zh-CN.md' ':!docs/zh' ':!CHANGELOG.md')

bin/vale:
	@GOBIN="$(CURDIR)/bin" go install $(VALE)

# The version that the next release has. The nested modules require it.
VERSION    ?= v0.1.0
.PHONY: release-check
release-check: ## The files of a release of the last commit, into bin/release: twice, compared, and got by a user (VERSION=v0.1.0 BASE=v0.0.9)
	internal/release/run '$(VERSION)' bin/release $(BASE)

.PHONY: compatible
compatible: ## Compare the exported API with that of the last version (before 1.0 a minor version may break it)
	@internal/release/compatible $(BASE)

# The database of vulnerabilities: the one of vuln.go.dev, or a copy of it (VULNDB=file:///srv/vulndb).
VULNDB     ?=
.PHONY: vuln
vuln: ## Known vulnerabilities in what the modules call (VULNDB=file:///srv/vulndb without a network)
	@GOBIN="$(CURDIR)/bin" go install $(GOVULNCHECK); \
	for module in $(MODULES); do \
	  status=0; (cd "$$module" && "$(CURDIR)/bin/govulncheck" $(if $(VULNDB),-db '$(VULNDB)') ./...) || status=$$?; \
	  case $$status in 0) ;; 3) echo "make vuln: $$module calls what is listed above" >&2; exit 3;; \
	  *) echo "make vuln: NOT CHECKED: $$module could not be compared with the database of vulnerabilities; a copy of it can be named: VULNDB=file:///srv/vulndb" >&2; exit 1;; esac; \
	done

.PHONY: fuzz
fuzz: ## Each fuzz test for FUZZTIME (10s)
	@for package in $$(go list $(EVERY)); do \
	  for name in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
	    echo "$$package $$name"; \
	    go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) $(ARGS) "$$package"; \
	  done; \
	done

.PHONY: example
example: ## The refund example, on http://127.0.0.1:8080
	go run ./examples/refund $(ARGS)

.PHONY: walkthrough
walkthrough: ## Run the commands of docs/img/walkthrough.svg and draw it again; a test compares it
	go test ./cmd/holdfast -run TestWalkthrough -update $(ARGS)

.PHONY: tidy
tidy: ## go mod tidy in every module
	@for module in $(filter-out ./cmd/holdfast,$(MODULES)); do (set -x; cd "$$module" && go mod tidy -e); done # of the peers of bench, not all tests can be had
	@$(TIDY_COMMAND); go mod edit -dropreplace $(SELF) "$$work/go.mod"; cp "$$work"/go.{mod,sum} cmd/holdfast

# Without a network, where the modules are in the cache.
.PHONY: deps
deps: ## The modules are those of go.sum, and go.mod says what is used
	@for module in $(MODULES); do (set -x; cd "$$module" && go mod verify); done; \
	for module in $(filter-out ./bench ./cmd/holdfast,$(MODULES)); do (set -x; cd "$$module" && go mod tidy -diff); done # of the peers, not all tests can be had
	@$(TIDY_COMMAND) -diff

# tidy knows no go.work, and go install refuses a go.mod with a replace: it gets one in a copy.
SELF         = github.com/holdfast-go/holdfast
TIDY_COMMAND = work=$$(mktemp -d); trap 'rm -rf "$$work"' EXIT; cp cmd/holdfast/go.{mod,sum} "$$work"; \
  go mod edit -replace '$(SELF)=$(CURDIR)' "$$work/go.mod"; set -x; go mod tidy -C cmd/holdfast -modfile="$$work/go.mod"

# What CI runs, here, in .ci/run and in the workflows: a test compares the three.
CHECKS = deps lint model test race faults-suite bench-check

.PHONY: verify
verify: ## What CI runs, one after the other
	@for check in $(CHECKS); do (set -x; $(MAKE) --no-print-directory "$$check") || exit; done

# Its own module knows best whether it is up to date.
.PHONY: $(TESTSERVERS)
$(TESTSERVERS):
	@cd internal/test/testservers && go build -o "$(CURDIR)/$@" .
