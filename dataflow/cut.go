package dataflow

import (
	"fmt"
	"strings"
)

// Guarantee says how often a row of the input counts in a pipeline's state after failures. Stored: append-only.
type Guarantee uint8

const (
	GuaranteeUnknown     Guarantee = 0
	GuaranteeExactlyOnce Guarantee = 1 // the state equals the fold over exactly the positions' prefix (G1)
	GuaranteeAtLeastOnce Guarantee = 2 // rows after the positions may be in the state, and be counted again
	GuaranteeAtMostOnce  Guarantee = 3 // no checkpoints: rows may be lost, none is counted twice
)

func (g Guarantee) String() string {
	switch g {
	case GuaranteeExactlyOnce:
		return "exactly_once"
	case GuaranteeAtLeastOnce:
		return "at_least_once"
	case GuaranteeAtMostOnce:
		return "at_most_once"
	}
	return fmt.Sprintf("guarantee(%d)", uint8(g))
}

// PipelineState says what a pipeline is doing, as the meta log has it. Stored: append-only.
type PipelineState uint8

const (
	PipelineUnknown    PipelineState = 0
	PipelineRecovering PipelineState = 1 // to run; its tasks are being started, for the first time or again
	PipelineRunning    PipelineState = 2 // all tasks of the current incarnation run
	PipelineStopping   PipelineState = 3 // a stop was asked for; the final checkpoint is under way
	PipelineStopped    PipelineState = 4 // no tasks; committed tables stay readable
	PipelineFailed     PipelineState = 5 // no tasks; a failure says why; committed tables stay readable
)

func (s PipelineState) String() string {
	switch s {
	case PipelineRecovering:
		return "RECOVERING"
	case PipelineRunning:
		return "RUNNING"
	case PipelineStopping:
		return "STOPPING"
	case PipelineStopped:
		return "STOPPED"
	case PipelineFailed:
		return "FAILED"
	}
	return fmt.Sprintf("STATE(%d)", uint8(s))
}

// Active reports whether the pipeline has, or is about to have, tasks.
func (s PipelineState) Active() bool {
	return s == PipelineRecovering || s == PipelineRunning || s == PipelineStopping
}

// ShardCommit is one shard's part of a committed checkpoint (P2).
type ShardCommit struct {
	Shard ShardID
	// Seq is the last delta of the incarnation that belongs to the checkpoint; 0 when the shard has none yet: its state
	// is the base cut's.
	Seq DeltaSeq
	// Digest is the digest in that delta's end entry; 0 when Seq is 0.
	Digest uint64
	// Index is the shard log's index of the delta's end entry. When Seq is 0 it is the index that the base needs, or 0.
	Index LogIndex
	// Skipped counts the rows that the shard's tasks left out since deployment because an expression failed
	// (on_error = 'skip', and rows skipped by an operator).
	Skipped uint64
	// AckMicros is the time between the trigger and the shard's acknowledgement, in microseconds.
	AckMicros int64
}

// CheckpointCommit is the record of one committed checkpoint: the cut that committed reads name. One entry in the meta
// log creates it (G2); it never changes afterwards.
type CheckpointCommit struct {
	Pipeline    PipelineUID
	Timeline    Timeline // set by the meta FSM
	Incarnation Incarnation
	ID          CheckpointID
	Guarantee   Guarantee
	TriggeredAt int64 // µs since 1970, the coordinator's clock
	CommittedAt int64 // µs since 1970, the meta log's time; set by the meta FSM
	// MetaIndex is the meta log's index of the entry that committed it; set by the meta FSM.
	MetaIndex LogIndex
	// Positions are the next offsets to read: exactly the rows below them are in the state.
	Positions Positions
	// Shards has one record per shard of the group, in order of shard number; empty for cut 0, the empty state.
	Shards []ShardCommit
	// CatchingUp says that the pipeline had not yet read all rows that were there when it was deployed; set by the meta FSM.
	CatchingUp bool
}

// Skipped returns how many rows are left out of the state of this cut because an expression failed.
func (c *CheckpointCommit) Skipped() uint64 {
	var n uint64
	for i := range c.Shards {
		n += c.Shards[i].Skipped
	}
	return n
}

// Shard returns the record of shard s; the zero record (with s set) when there is none, as in cut 0.
func (c *CheckpointCommit) Shard(s ShardID) ShardCommit {
	for i := range c.Shards {
		if c.Shards[i].Shard == s {
			return c.Shards[i]
		}
	}
	return ShardCommit{Shard: s}
}

// Clone returns a copy that shares nothing with c.
func (c *CheckpointCommit) Clone() *CheckpointCommit {
	d := *c
	d.Positions = c.Positions.Clone()
	d.Shards = append([]ShardCommit(nil), c.Shards...)
	return &d
}

// String prints the cut on one line, with the timeline when there has been a rewind: cut 7 i2 t2 exactly_once [1/0:17] shards[0:s3@40].
func (c *CheckpointCommit) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "cut %d i%d", c.ID, c.Incarnation)
	if c.Timeline > 1 {
		fmt.Fprintf(&b, " t%d", c.Timeline)
	}
	fmt.Fprintf(&b, " %s [%s] shards[", c.Guarantee, c.Positions)
	for i, s := range c.Shards {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%d:s%d@%d", s.Shard, s.Seq, s.Index)
		if s.Skipped > 0 {
			fmt.Fprintf(&b, "(skipped %d)", s.Skipped)
		}
	}
	b.WriteByte(']')
	if c.CatchingUp {
		b.WriteString(" catching_up")
	}
	return b.String()
}

// SourceRow names one row of a stream.
type SourceRow struct {
	Stream StreamID
	Shard  ShardID
	Offset Offset
}

func (r SourceRow) String() string { return fmt.Sprintf("%d/%d:%d", r.Stream, r.Shard, r.Offset) }

// PipelineFailure says why a pipeline is FAILED: all that a person needs to decide what to do.
type PipelineFailure struct {
	Reason      Reason
	Message     string // one line, for people
	Incarnation Incarnation
	At          int64 // µs since 1970, the meta log's time; set by the meta FSM
	// View, Line and Column name the expression in the pipeline's SQL; empty and 0 when no expression is at fault.
	View   string
	Line   int
	Column int
	// HasRow says that Row names the row that failed; Rendered shows its values, cut to a readable length.
	HasRow   bool
	Row      SourceRow
	Rendered string
}

func (f *PipelineFailure) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", f.Reason, f.Message)
	if f.View != "" {
		fmt.Fprintf(&b, " in %s:%d:%d", f.View, f.Line, f.Column)
	}
	if f.HasRow {
		fmt.Fprintf(&b, " at row %s", f.Row)
	}
	return b.String()
}
