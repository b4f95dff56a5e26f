# The usual commands; each is a script or a go command that can be run by itself. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
export FUZZTIME ?= 20000x
BENCHTIME ?= 1s
FAULTS ?= 300
STRIDE ?= 1
SEEDS ?= 500
BASE ?= HEAD

.PHONY: help build test race cover bench bench-table bench-compare fuzz examples mcp lint fmt generate generate-check breaking house vuln \
	chaos kills chaos-cluster mutants takeover bench-cluster damage attacks web image-smoke image deploy targets docker check ci clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the static binary ./agentd
	scripts/build agentd

test: ## run the tests
	go test ./...

race: ## run the tests with the race detector, which leaves out SQLite (C that was translated to Go)
	go test -race -gcflags='modernc.org/...=-race=false' -timeout 30m ./...

cover: ## measure what the tests cover; writes .cache/cover.html
	@mkdir -p .cache
	go test -coverpkg=./... -coverprofile=.cache/cover.out ./...
	go tool cover -func=.cache/cover.out | tail -n 1
	go tool cover -html=.cache/cover.out -o .cache/cover.html

bench: ## run the benchmarks, BENCHTIME each
	go test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./...

bench-table: ## measure agentd beside a proxy and ADK's server; ARGS are flags of bench/cmd/table
	scripts/bench $(ARGS)

bench-compare: ## measure the build of the commit BASE and this one in one run
	scripts/bench --base $(BASE) $(ARGS)

fuzz: ## fuzz each target with FUZZTIME inputs
	scripts/fuzz

examples: ## run every example
	scripts/examples

chaos: ## run a thousand turns, kill a daemon at each record, then break one FAULTS times; prints what was lost
	@mkdir -p .cache
	go test -count=1 -race -run 'TestStress$$' ./internal/test/e2e/turns -stress-turns=1000 -timeout 15m
	@$(MAKE) --no-print-directory kills

kills: ## kill a daemon at each STRIDE-th record, then break one FAULTS times; prints what was lost
	@mkdir -p .cache
	go test -count=1 -run 'TestKillPoints$$|TestKillGoal$$' ./internal/test/chaos -chaos.stride=$(STRIDE) -timeout 15m
	go test -count=1 -run 'TestChaos$$' -v ./internal/test/chaos -chaos.faults=$(FAULTS) -timeout 24h | tee .cache/chaos.log
	@grep '^faults=' .cache/chaos.log

chaos-cluster: ## break replicas over one PostgreSQL, the database and the links between them FAULTS times; prints what was lost
	@mkdir -p .cache
	go test -count=1 -run 'TestCluster$$' -v ./internal/test/chaos -chaos.clusterfaults=$(FAULTS) -timeout 24h | tee .cache/chaos-cluster.log
	@grep '^cluster faults=' .cache/chaos-cluster.log
	go test -count=1 -run 'TestHistories$$' -v ./internal/test/chaos -chaos.historyfaults=$(FAULTS) -timeout 24h

mutants: ## break what keeps replicas apart, in copies of the source; fails if the tests do not find it
	go test -count=1 -run 'TestMutants$$' -v ./internal/test/chaos -chaos.mutants -timeout 30m

bench-cluster: ## measure replicas over one PostgreSQL: appends of one and of three, the hop between them, a drain, rest
	@mkdir -p .cache
	go test -count=1 -run 'TestClusterFigures$$' -v ./cmd/agentd -cluster.figures -timeout 30m | tee .cache/bench-cluster.log
	@grep '^figures ' .cache/bench-cluster.log

takeover: ## measure how long a turn stands still whose owner is killed, stopped or cut off
	@mkdir -p .cache
	go test -count=1 -run 'TestTakeover$$' -v ./internal/test/chaos -chaos.takeover -timeout 15m | tee .cache/takeover.log
	@grep '^takeover ' .cache/takeover.log

damage: ## flip bits in SEEDS databases that are down, and open them
	go test -count=1 -run 'TestDamagedFiles$$' -v ./session/store/sqlite -sqlite.damageseeds=$(SEEDS) -timeout 1h
	go test -count=1 -run 'TestDamagedDatabase$$' -v ./internal/daemon -daemon.damageseeds=$(SEEDS) -timeout 1h

attacks: ## run hostile clients against a daemon under a memory limit, beside a stranger; prints what was measured
	go test -count=1 -run 'TestHostile$$' -v ./internal/test/attacks -attacks.share=1 -attacks.factor=10 -timeout 10m
	go test -count=1 -run 'TestAttacks$$' -v ./internal/test/attacks -attacks.share=1 -timeout 30m

web: ## build and test the TypeScript client, in Node.js and in Chromium
	scripts/web

mcp: ## have agentd talk to the official clients and servers of MCP
	scripts/mcp

lint: ## run the linters
	scripts/lint

fmt: ## format the code
	. scripts/tools && linter && "$$TOOLBIN/golangci-lint" fmt

generate: ## regenerate gen/ and ts/src/gen/ from proto/
	scripts/generate

generate-check: ## fail if they are not what proto/ gives
	scripts/generate --check

breaking: ## fail if proto/ breaks deployed clients
	scripts/breaking

house: ## check the rules about files
	scripts/house

vuln: ## look for known vulnerabilities
	scripts/vuln

image-smoke: ## run the binary as the image would, without Docker
	scripts/image-smoke

image: ## build the image without Docker, twice; into .cache/image
	scripts/image-twice

deploy: ## check deploy/ against the binary
	scripts/deploy

targets: ## vet the client and the command for each platform of a release
	scripts/targets

docker: ## build the image agentd:VERSION with Docker
	read -r version commit <<<"$$(scripts/version)"; docker build --build-arg VERSION="$$version" --build-arg COMMIT="$$commit" --tag "agentd:$$version" .

check: generate-check breaking house lint race ## what to run before a commit

ci: ## everything that CI runs
	.ci/run

clean: ## remove what was built
	rm -rf .cache agentd ts/node_modules ts/dist ts/dist-test
