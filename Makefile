# Targets for people and for CI. Tools are pinned here and installed into .bin; nothing else is needed but Go.

export CGO_ENABLED = 0
BIN := $(CURDIR)/.bin

BUF_VERSION           := v1.75.0
GOLANGCI_VERSION      := v2.15.0
PROTOC_GEN_GO_VERSION := v1.36.12
PROTOC_GEN_GRPC       := v1.6.0
GATEWAY_VERSION       := v2.33.0

# What is slow runs small in `make test` and has a target of its own, which CI calls.
KILLS     ?= 200
# What the live tables of the killed server may take; 0 = half of the machine's. 1MiB is far less than the models' tables take.
# BALLAST is how many keys one more table has: 3,000,000 do not fit into 64MiB. The run fails when nothing was evicted.
MEMORY ?= 0
BALLAST ?= 0
SCHEDULES ?= 200
HISTORIES ?= 200
FUZZ_TIME ?= 60s
# How many groups of real servers are broken, for how long each, and the seed of the first; 0 = a new one.
RUNS ?= 5
SECONDS ?= 60
SEED ?= 0
# How long the soak runs.
MINUTES ?= 60
SEEDS     ?= 20000

# Written by people; the rest is generated.
GO_FILES = find . -name '*.go' -not -path './.*' -not -name '*.pb.go' -not -name '*.pb.gw.go'
# A checksum of the protos and of what is generated from them.
PROTO_SUM = cat $$(find proto node/gateway -name '*.proto' -o -name '*.pb.go' -o -name '*.pb.gw.go' -o -name '*.swagger.json' | LC_ALL=C sort) | cksum

.PHONY: build cluster proto proto-check check test lint fmt-check bench demo test-histories test-kill test-crash test-group test-chaos test-soak test-race sim fuzz tools clean

## build: the one binary, in bin/weir
build:
	go build -trimpath -o bin/weir ./cmd/weir

## demo: live counts over a stream of page views
demo: build
	bin/weir demo

## cluster: three nodes of one group on this machine, for trying things
cluster: build
	./deploy/local/cluster.sh

## check: what must pass before a commit; under five minutes
check: fmt-check proto-check lint test

## test: every package's tests
test:
	go test ./...

## test-histories: drive a shard's state through HISTORIES random histories, and compare every cut with a model
test-histories:
	go test -count=1 -timeout 30m ./dataflow/state -run TestRandomHistoriesGiveTheModelsCuts -histories $(HISTORIES)

## test-group: break groups of nodes in one process, and compare with a model
test-group:
	go test -count=1 -timeout 60m ./internal/grouptest -schedules $(SCHEDULES) -at-once 3

test-race:
	CGO_ENABLED=1 go test -race -short ./...

fmt-check:
	@out=$$(gofmt -l $$($(GO_FILES))); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }

lint: tools-lint
	go vet ./...
	$(BIN)/golangci-lint run ./...

## proto: regenerate the Go beside the protos, and the OpenAPI description
proto: tools-proto
	cd proto && PATH="$(BIN):$$PATH" && buf format -w && buf generate && buf generate --template buf.gen.openapi.yaml

## proto-check: protos are well-formed and what is generated is up to date; where it was not, it is now
proto-check: tools-proto
	cd proto && $(BIN)/buf lint
	@before=$$($(PROTO_SUM)); $(MAKE) --no-print-directory proto && test "$$before" = "$$($(PROTO_SUM))" \
		|| { echo "what is generated from the protos was out of date: look at it and commit it"; exit 1; }

## bench: figures; see docs/benchmarks.md
bench: build
	bin/weir bench all

## test-kill: SIGKILL a real server again and again, and compare with a model
test-kill:
	go test -count=1 -timeout 40m ./internal/killtest -kills $(KILLS) -memory $(MEMORY) -ballast $(BALLAST) -v

## test-crash: crash at every durable operation of a scripted life
test-crash:
	go test -count=1 -timeout 30m ./internal/crashtest -every 1 -v

## test-chaos: break RUNS groups of real servers for SECONDS each, from SEED on; docs/reliability.md
test-chaos:
	go test -count=1 -timeout 10h ./internal/chaostest -run TestAGroupLosesNothingWhateverBreaks -runs $(RUNS) -seconds $(SECONDS) -seed $(SEED) -v

## test-soak: a group of three servers lives for MINUTES, and must not need more and more
test-soak:
	go test -count=1 -timeout 48h ./internal/chaostest -run TestAGroupNeedsNoMoreWithTime -minutes $(MINUTES) -seed $(SEED) -v

## sim: SEEDS lives of a simulated group, and that seeded defects are found; docs/reliability.md
sim:
	go test -count=1 -timeout 40m ./internal/sim -run 'TestSim$$|TestSeedsReplay|TestMutants' -seeds $(SEEDS) -v

## fuzz: every fuzz target for FUZZ_TIME
fuzz:
	./internal/fuzzall.sh $(FUZZ_TIME)

## tools: what the targets use, each at its version. The stamp beside a tool names the version that it has.
tools: tools-proto tools-lint

.PHONY: tools-proto tools-lint
tools-lint: $(BIN)/golangci-lint.$(GOLANGCI_VERSION)
tools-proto: $(BIN)/buf.$(BUF_VERSION) $(BIN)/protoc-gen-go.$(PROTOC_GEN_GO_VERSION) $(BIN)/protoc-gen-go-grpc.$(PROTOC_GEN_GRPC) \
	$(BIN)/protoc-gen-grpc-gateway.$(GATEWAY_VERSION) $(BIN)/protoc-gen-openapiv2.$(GATEWAY_VERSION)

INSTALL = rm -f $(basename $(basename $(basename $@))).v* && GOBIN=$(BIN) go install
$(BIN)/golangci-lint.$(GOLANGCI_VERSION):
	$(INSTALL) github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION) && touch $@
$(BIN)/buf.$(BUF_VERSION):
	$(INSTALL) github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION) && touch $@
$(BIN)/protoc-gen-go.$(PROTOC_GEN_GO_VERSION):
	$(INSTALL) google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION) && touch $@
$(BIN)/protoc-gen-go-grpc.$(PROTOC_GEN_GRPC):
	$(INSTALL) google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GRPC) && touch $@
$(BIN)/protoc-gen-grpc-gateway.$(GATEWAY_VERSION):
	$(INSTALL) github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway@$(GATEWAY_VERSION) && touch $@
$(BIN)/protoc-gen-openapiv2.$(GATEWAY_VERSION):
	$(INSTALL) github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv2@$(GATEWAY_VERSION) && touch $@

clean:
	rm -rf bin .bin
