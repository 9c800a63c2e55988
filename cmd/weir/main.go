// Command weir is Weir's one binary: the server, the demo, and every client verb. One file per verb; each is thin over
// package clients/go (server and demo open a node).
package main

import (
	"context"
	"os"
)

// version is set by the release build: -ldflags '-X main.version=…'.
var version = "dev"

func main() {
	os.Exit(run(context.Background(), osEnv(), os.Args[1:]))
}
