//go:build !unix

package main

import (
	"context"
	"os"
)

// waitReaderGone cannot be known here: the next write says it.
func waitReaderGone(context.Context, *os.File) bool { return false }
