//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

func TestOutputThatNobodyReadsEndsTheWait(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	ctx, stop := whileRead(t.Context(), w)
	defer stop()
	select {
	case <-ctx.Done():
		t.Fatalf("the context ended while the pipe was read: %v", context.Cause(ctx))
	case <-time.After(3 * readerPoll * time.Millisecond):
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, errNobodyReads) {
		t.Errorf("cause: %v", cause)
	}
}

func TestOutputThatIsNoPipeIsNotWatched(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if ctx, stop := whileRead(t.Context(), f); ctx != t.Context() {
		t.Error("a file is watched")
		stop()
	}
	if ctx, stop := whileRead(t.Context(), new(bytes.Buffer)); ctx != t.Context() {
		t.Error("a buffer is watched")
		stop()
	}
}
