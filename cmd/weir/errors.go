package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/weirdb/weir/dataflow"
)

// The exit codes, the same for every verb.
const (
	exitOK       = 0
	exitRefused  = 1
	exitUsage    = 2
	exitNotFound = 3
	exitTryAgain = 4 // unreachable, overloaded, deadline
)

// usageError is a mistake in how the program was called.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(err error) error { return &usageError{err} }

func usagef(format string, args ...any) error { return usage(fmt.Errorf(format, args...)) }

// errReported says that the verb failed and has said so itself.
var errReported = errors.New("already reported")

// hinted adds to an error what the verb knows of it.
type hinted struct {
	err  error
	hint string // what to do
	fact string // printed below the message
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

// exitCode returns the code that an error ends the program with.
func exitCode(err error) int {
	var u *usageError
	var e *dataflow.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &u):
		return exitUsage
	case errors.As(err, &e):
		switch e.Reason.Kind() {
		case dataflow.KindNotFound:
			return exitNotFound
		case dataflow.KindOverloaded, dataflow.KindUnavailable, dataflow.KindUnknown, dataflow.KindDeadline:
			if e.Reason == dataflow.ReasonScanLimit { // the same query will reach it again
				return exitRefused
			}
			return exitTryAgain
		}
		return exitRefused
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return exitTryAgain
	}
	return exitRefused
}

// remedy is what docs/errors.md says to do, of the reasons for which that is a command or says more than the message.
func remedy(r dataflow.Reason) string {
	switch r.Kind() {
	case dataflow.KindNotFound, dataflow.KindPrecondition, dataflow.KindExists, dataflow.KindCorrupt, dataflow.KindInternal:
	default:
		return ""
	}
	for _, info := range dataflow.Reasons() {
		if info.Reason == r && r != dataflow.ReasonRowNotFound { // its cut says it
			return info.Remedy
		}
	}
	return ""
}

// report prints an error and returns the exit code.
func (c *cli) report(ctx context.Context, err error) int {
	code := exitCode(err)
	if err == nil || errors.Is(err, errReported) {
		return code
	}
	message, hint, fact := err.Error(), "", ""
	var e *dataflow.Error
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		message, code = "interrupted", exitTryAgain
	case errors.As(err, &e):
		message, hint = fmt.Sprintf("%s: %s", e.Reason, e.Message), e.Hint
		if e.Reason == dataflow.ReasonUnreachable && strings.Contains(message, "no gRPC") {
			hint = "--addr names the port for gRPC (the server's --grpc-addr), 7711 unless the server was told otherwise"
		}
		if e.Reason == dataflow.ReasonUnreachable && hint == "" {
			hint = "start a server with weir server, or say where it is with --addr or WEIR_ADDR"
		}
	}
	var h *hinted
	if errors.As(err, &h) {
		hint, fact = strings.Trim(hint+"\n"+h.hint, "\n"), h.fact
	}
	if e != nil && hint == "" {
		hint = remedy(e.Reason)
	}
	var u *usageError
	if errors.As(err, &u) && hint == "" {
		hint = "weir --help, or --help after a verb"
	}
	if u != nil { // mistakes in settings come together, a line each
		message = strings.ReplaceAll(strings.TrimSpace(message), "\n", "\n       ")
	}
	fmt.Fprintf(c.stderr, "error: %s\n", message)
	if e != nil && len(e.Violations) > 1 {
		for _, v := range e.Violations {
			fmt.Fprintf(c.stderr, "  %s: %s\n", v.Field, v.Description)
		}
	}
	if fact != "" {
		fmt.Fprintf(c.stderr, "       %s\n", fact)
	}
	if hint != "" {
		fmt.Fprintf(c.stderr, "hint: %s\n", strings.ReplaceAll(hint, "\n", "\n      "))
	}
	return code
}
