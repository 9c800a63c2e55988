package logstore

import (
	"errors"
	"fmt"
	"log/slog"
)

// Defaults and bounds of Options.
const (
	// DefaultSegmentBytes is large enough that rotation costs nothing and small enough that retention frees space soon.
	DefaultSegmentBytes = 64 << 20
	minSegmentBytes     = 32 << 10
	maxSegmentBytes     = 1 << 30 // offsets are kept in 32 bits, and the index lies behind
	// DefaultBatchBytes bounds one write. Larger batches share a sync among more, but the first waits for the last.
	DefaultBatchBytes = 4 << 20
	// DefaultRecycledSegments is how many freed files wait for reuse: enough for a steady state where retention frees
	// about one file per file filled.
	DefaultRecycledSegments = 2
)

// Options tune a store. The zero value of a field means its default.
type Options struct {
	// SegmentBytes is the size at which a segment is sealed, from 32 KiB to 1 GiB; default 64 MiB.
	SegmentBytes int64
	// BatchBytes bounds what one write carries; a single larger entry is written alone. Default 4 MiB.
	BatchBytes int64
	// RecycledSegments is how many freed files are kept for reuse; default 2, negative for none.
	RecycledSegments int
	// Logger receives messages; default: discarded.
	Logger *slog.Logger
}

func (o *Options) ensureDefaults() {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = DefaultBatchBytes
	}
	if o.RecycledSegments == 0 {
		o.RecycledSegments = DefaultRecycledSegments
	}
	o.RecycledSegments = max(o.RecycledSegments, 0)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func (o *Options) validate() error {
	var errs []error
	if o.SegmentBytes < minSegmentBytes || o.SegmentBytes > maxSegmentBytes {
		errs = append(errs, fmt.Errorf("logstore.Options.SegmentBytes: %d is not within %d and %d", o.SegmentBytes, minSegmentBytes, maxSegmentBytes))
	}
	if o.BatchBytes < 1 {
		errs = append(errs, fmt.Errorf("logstore.Options.BatchBytes: %d is not positive", o.BatchBytes))
	}
	return errors.Join(errs...)
}
