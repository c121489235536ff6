# Everything a contributor types. `make help` lists it.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# PKG and RUN choose the tests of make test: make test PKG=./scheduler/... RUN=TestName
PKG ?= work
RUN ?= .
# RACE=0 runs the tests without the race detector.
RACE ?= 1
# TIMEOUT bounds one package's tests.
TIMEOUT ?= 30m
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
VERSION_FLAGS := -X github.com/orreryhq/orrery/libs/telemetry.version=$(VERSION) -X github.com/orreryhq/orrery/cli/internal/app.version=$(VERSION)

# The modules of the workspace are the folders with a go.mod, except the tools.
MODULES := $(filter-out tools,$(patsubst %/go.mod,%,$(wildcard */go.mod)))
# Nested modules stand outside the workspace too.
FORMATTED := $(MODULES) tools
# The benchmark families of e2e/bench.
FAMILIES := place launch certificates trace port template content api events operate groups fleet idle survive rest adopt cli ui

TOOLS := bin/.tools
TEST_FLAGS := -timeout $(TIMEOUT) $(if $(filter 1,$(RACE)),-race)
OWN := ^github\.com/orreryhq/orrery/

# What `make check` and CI run, in this order.
CHECKS := check-format check-vet check-staticcheck check-deadcode check-architecture check-prose check-modules check-references check-cli check-dashboard test e2e e2e-oidc

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9%-]+:.*## / { printf "  %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  bench-FAMILY         one family of benchmarks: $(FAMILIES)"

.PHONY: check
check: ## every check and scenario that needs no containers or machines; prints the time of each step
	@for step in $(CHECKS); do \
		echo "== $$step"; \
		SECONDS=0; \
		$(MAKE) --no-print-directory $$step; \
		echo "== $$step: $$SECONDS s"; \
	done

# summed runs go test. When it fails, it prints the failures again at the end, below
# the stacks of a test that hung.
define summed
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; echo "go test $(1)"; \
	go test $(1) 2>&1 | tee "$$log" || { \
		echo "== what failed:"; \
		awk '/^ *--- FAIL|^panic:|^running tests:|^WARNING: DATA RACE/ {left = 12} left-- > 0 && !/^(ok|\?) /; /^FAIL\t/' "$$log" | cut -c -400 | tail -n 200; \
		exit 1; }
endef

.PHONY: test
test: ## the tests, with the race detector (PKG=./scheduler/... RUN=TestName RACE=0)
	$(call summed,$(TEST_FLAGS) -run '$(RUN)' $(PKG))

.PHONY: race
race: ## all tests with the race detector and without cached results
	go test -race -count=1 -timeout $(TIMEOUT) work

.PHONY: model
model: ## explore the ownership protocol in large fleets, and print the traces
	go test -count=1 -timeout $(TIMEOUT) -v ./e2e/model -large

.PHONY: e2e
e2e: export ORRERY_E2E = processes
e2e: ## the end-to-end scenarios against separate processes (RUN=TestName)
	$(call summed,-count=1 -timeout $(TIMEOUT) -run '$(RUN)' ./e2e/...)

.PHONY: e2e-oidc
e2e-oidc: export ORRERY_E2E = oidc
e2e-oidc: ## logins at a real OpenID Connect provider, which is compiled from its modules
	go test -count=1 -timeout $(TIMEOUT) ./e2e/oidc

.PHONY: e2e-compose
e2e-compose: ## the end-to-end scenarios on a container engine, with the images of make images
	ORRERY_E2E=compose go test -count=1 -timeout 30m ./e2e/compose

# CI runs these scenarios of make e2e-vm. They take at most five minutes.
VM_SELECTION := ^(TestAGuestHasControlGroupsOfVersion2|TestStandaloneAsAService|TestTheWallClockStepsByHours)$$

.PHONY: e2e-vm e2e-vm-selection
e2e-vm: ## the scenarios on emulated machines: services, limits, reboots, power cuts (RUN=TestName)
	ORRERY_E2E=vm go test -count=1 -timeout 3h -v -run '$(RUN)' ./e2e/vm

e2e-vm-selection: RUN = $(VM_SELECTION)
e2e-vm-selection: e2e-vm ## those of them that CI runs

# SEEDS is how many seeds make faults runs, from SEED on.
SEED ?= 1
SEEDS ?= 50

.PHONY: faults
faults: ## random faults against real processes (SEEDS=50 from SEED=1)
	go run ./e2e/faults -seed $(SEED) -count $(SEEDS)

.PHONY: bench $(addprefix bench-,$(FAMILIES))
bench: ## all benchmarks, as one table
	go run ./e2e/bench

$(addprefix bench-,$(FAMILIES)): bench-%:
	go run ./e2e/bench -run $*

.PHONY: lint
lint: check-format check-vet check-staticcheck check-deadcode check-architecture check-prose ## the checks that run no tests

.PHONY: fmt
fmt: $(TOOLS) ## format every Go file with gofumpt
	bin/gofumpt -w $(FORMATTED)

.PHONY: references
references: $(TOOLS) ## generate docs/reference and the Go client in sdk from their sources
	bin/references
	bin/sdkgen
	go run ./cli/cmd/clidocs -pages docs/reference/cli

.PHONY: man
man: ## the manual pages of the command line in bin/man
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) go run ./cli/cmd/clidocs -man bin/man

.PHONY: build
build: ## the binaries of all services and commands in bin/
	@mkdir -p bin
	go build -trimpath -ldflags '$(VERSION_FLAGS)' -o bin/ \
		$$(go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' work | grep -v '/orrery/e2e/\|/cmd/clidocs$$')

# DEPLOYED are the programs that operators install.
DEPLOYED := $(foreach service,apigateway scheduler enforcer templatesvc nodeagent,./$(service)/cmd/$(service)) ./standalone ./cli/cmd/orrery

.PHONY: sbom
sbom: ## a bill of materials (CycloneDX) of each program that operators install, in bin/sbom
	@mkdir -p bin/sbom
	go build -trimpath -ldflags '$(VERSION_FLAGS)' -o bin/ $(DEPLOYED)
	GOBIN=$(CURDIR)/bin go install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.10.0
	@for program in $(notdir $(DEPLOYED)); do \
		bin/cyclonedx-gomod bin -json -noserial -notimestamp -version '$(VERSION)' -output bin/sbom/$$program.cdx.json bin/$$program 2>/dev/null || { \
			echo "no bill of materials of bin/$$program: bin/cyclonedx-gomod bin bin/$$program says why"; exit 1; }; \
		echo "bin/sbom/$$program.cdx.json: $$(grep -c '"type": "library"' bin/sbom/$$program.cdx.json) modules"; \
	done

# VULNDB is the URL of a copy of the vulnerability database: https://… or file:///….
VULNDB ?= https://vuln.go.dev

.PHONY: check-vulnerabilities
check-vulnerabilities: ## known vulnerabilities that the programs reach; needs the network, or a copy of the database (VULNDB=URL)
	GOBIN=$(CURDIR)/bin go install golang.org/x/vuln/cmd/govulncheck@v1.1.4
	@for module in $(MODULES); do \
		echo "$$module:"; \
		bin/govulncheck -C $$module -db '$(VULNDB)' ./... || { \
			code=$$?; \
			if [ $$code -ne 3 ]; then echo "the check needs the vulnerability database, which it reads from $(VULNDB): run it where that answers, or pass a copy: make check-vulnerabilities VULNDB=file:///path"; fi; \
			exit $$code; }; \
	done

.PHONY: images
images: ## what docker compose up runs, without a registry: static binaries and images
	deployments/docker/build.sh

.PHONY: run
run: ## the whole system in one process, with a demo group
	go run ./standalone -demo

.PHONY: clean
clean: ## remove what the other targets made
	rm -rf bin deployments/docker/bin

# The steps of check.

.PHONY: check-format
check-format: $(TOOLS)
	@unformatted=$$(bin/gofumpt -l $(FORMATTED)); \
	if [ -n "$$unformatted" ]; then \
		echo "not formatted, run make fmt:"; echo "$$unformatted"; exit 1; \
	fi

.PHONY: check-vet
check-vet:
	go vet work
	GOWORK=off go vet -C tools ./...

.PHONY: check-staticcheck
check-staticcheck: $(TOOLS)
	bin/staticcheck work

# deadcode exits 0 whatever it finds.
.PHONY: check-deadcode
check-deadcode: $(TOOLS)
	@dead=$$(bin/deadcode -test -filter '$(OWN)' work); \
	if [ -n "$$dead" ]; then \
		echo "reached from no command and no test:"; echo "$$dead"; exit 1; \
	fi

.PHONY: check-architecture
check-architecture: $(TOOLS)
	GOWORK=off go test -C tools ./...
	bin/archtest

# PROSE is how many of 1,000 sentences may need decoding. PROSE_BASE is the last
# commit whose subject is not checked.
PROSE := 8
PROSE_BASE := e806509e70188ccaee9e0199b0a40d6046456bd6

.PHONY: check-prose
check-prose: $(TOOLS)
	bin/prose -commits $(PROSE_BASE)..HEAD
	bin/prose -limit $(PROSE)

.PHONY: check-references
check-references: $(TOOLS)
	bin/references -check
	go run ./cli/cmd/clidocs -pages docs/reference/cli -check
	bin/sdkgen -check

.PHONY: check-modules
check-modules:
	@for module in $(MODULES); do \
		echo "$$module builds alone"; \
		GOWORK=off go build -C $$module ./...; \
	done

# CLI_PLATFORMS are the systems that the command line must build for, and CLI_LIMIT is the
# largest size of its stripped binary in bytes.
CLI_PLATFORMS := linux/amd64 linux/arm64 darwin/arm64 windows/amd64
CLI_LIMIT := 26214400

.PHONY: check-cli
check-cli:
	@dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; \
	for platform in $(CLI_PLATFORMS); do \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go build -trimpath -ldflags '-s -w' -o "$$dir/orrery" ./cli/cmd/orrery; \
		size=$$(wc -c <"$$dir/orrery"); \
		echo "orrery for $$platform: $$size bytes"; \
		if [ "$$size" -gt $(CLI_LIMIT) ]; then echo "the limit is $(CLI_LIMIT) bytes"; exit 1; fi; \
	done

# check-dashboard checks the types of the dashboard's code, its texts and its pure parts. The tools
# are packages of npm, locked in dashboard/package-lock.json. CI fails without Node.
.PHONY: check-dashboard
check-dashboard:
	@if ! command -v npm >/dev/null; then \
		echo "npm is not installed: the dashboard is not checked"; \
		[ -z "$$ORRERY_CI" ]; exit; \
	fi; \
	cd dashboard && npm ci --ignore-scripts --no-audit --no-fund --silent && npm run --silent check && npm test --silent

# The tools are built once for a version of their sources.
$(TOOLS): tools/go.mod tools/go.sum $(wildcard tools/archtest/*.go tools/prose/*.go tools/references/*.go tools/sdkgen/*.go)
	@mkdir -p bin
	GOWORK=off go build -C tools -o ../bin/ tool ./archtest ./prose ./references ./sdkgen
	@touch $@
