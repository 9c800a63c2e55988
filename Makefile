# Targets for people and for CI. Tools are pinned here and installed into .bin; nothing else is needed but Go.

export CGO_ENABLED = 0
BIN := $(CURDIR)/.bin

BUF_VERSION           := v1.75.0
GOLANGCI_VERSION      := v2.15.0
PROTOC_GEN_GO_VERSION := v1.36.12
PROTOC_GEN_GRPC       := v1.6.0
GATEWAY_VERSION       := v2.33.0

# Packages whose suites are slow; each has a target of its own and CI calls it.
KILLS     ?= 200
FUZZ_TIME ?= 60s

.PHONY: build proto proto-check check test lint fmt-check bench demo test-kill test-crash test-race fuzz tools clean

## build: the one binary, in bin/weir
build:
	go build -trimpath -o bin/weir ./cmd/weir

## demo: live counts over a stream of page views
demo: build
	bin/weir demo

## check: what must pass before a commit; under five minutes
check: fmt-check proto-check lint test

## test: every package's tests
test:
	go test ./...

test-race:
	CGO_ENABLED=1 go test -race -short ./...

fmt-check:
	@out=$$(gofmt -l $$(git ls-files '*.go' | grep -v '\.pb\.go$$\|\.pb\.gw\.go$$')); test -z "$$out" || { echo "gofmt would change:"; echo "$$out"; exit 1; }

lint: $(BIN)/golangci-lint
	go vet ./...
	$(BIN)/golangci-lint run ./...

## proto: regenerate the Go beside the protos, and the OpenAPI description
proto: tools-proto
	cd proto && PATH="$(BIN):$$PATH" && buf format -w && buf generate && buf generate --template buf.gen.openapi.yaml

## proto-check: protos are well-formed and what is generated is up to date
proto-check: tools-proto
	cd proto && $(BIN)/buf lint
	$(MAKE) proto
	git diff --exit-code -- proto node/gateway/weir.swagger.json

## bench: figures; see docs/benchmarks.md
bench: build
	bin/weir bench all

## test-kill: SIGKILL a real server again and again, and compare with a model
test-kill:
	go test -count=1 -timeout 40m ./internal/killtest -kills $(KILLS) -v

## test-crash: crash at every durable operation of a scripted life
test-crash:
	go test -count=1 -timeout 30m ./internal/crashtest -every 1 -v

## fuzz: every fuzz target for FUZZ_TIME
fuzz:
	./internal/fuzzall.sh $(FUZZ_TIME)

tools: tools-proto $(BIN)/golangci-lint

.PHONY: tools-proto
tools-proto: $(BIN)/buf $(BIN)/protoc-gen-go $(BIN)/protoc-gen-go-grpc $(BIN)/protoc-gen-grpc-gateway $(BIN)/protoc-gen-openapiv2

$(BIN)/buf:
	GOBIN=$(BIN) go install github.com/bufbuild/buf/cmd/buf@$(BUF_VERSION)
$(BIN)/protoc-gen-go:
	GOBIN=$(BIN) go install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GEN_GO_VERSION)
$(BIN)/protoc-gen-go-grpc:
	GOBIN=$(BIN) go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GEN_GRPC)
$(BIN)/protoc-gen-grpc-gateway:
	GOBIN=$(BIN) go install github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-grpc-gateway@$(GATEWAY_VERSION)
$(BIN)/protoc-gen-openapiv2:
	GOBIN=$(BIN) go install github.com/grpc-ecosystem/grpc-gateway/v2/protoc-gen-openapiv2@$(GATEWAY_VERSION)
$(BIN)/golangci-lint:
	GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

clean:
	rm -rf bin .bin
