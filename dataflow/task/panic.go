package task

import (
	"fmt"
	"runtime/debug"
)

// PanicError is a defect of Weir that a pipeline's data has met. It fails the pipeline, since the same rows would meet it
// again, and nothing else: ingest, other pipelines and committed reads go on. Nothing of the run is committed any more.
type PanicError struct {
	Task  string
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("internal error: %s panicked: %v; the server's log has more", e.Task, e.Value)
}

// guarded returns f with a panic as its error.
func guarded(task string, f func() error) func() error {
	return func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = &PanicError{Task: task, Value: p, Stack: debug.Stack()}
			}
		}()
		return f()
	}
}
