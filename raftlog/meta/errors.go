package meta

import "errors"

// Sentinels that the coordinator branches on; users see the *dataflow.Error around them.
var (
	// ErrStaleIncarnation: the command speaks for an incarnation that is not the current one.
	ErrStaleIncarnation = errors.New("not the current incarnation")
	// ErrStaleAttempt: the checkpoint's number is not above the last committed one, or is in no block that may commit.
	ErrStaleAttempt = errors.New("not an attempt that may commit")
	// ErrBadCommit: the record of the checkpoint contradicts the one before, or itself. A defect of the coordinator.
	ErrBadCommit = errors.New("the checkpoint's record is not sound")
	// ErrUnknownCommand: the entry is not one that this version knows.
	ErrUnknownCommand = errors.New("unknown entry in the meta log")
)
