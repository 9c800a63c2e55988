package dataflow

import (
	"errors"
	"fmt"
	"time"
)

// Kind classes errors by what the caller can do. Callers branch on it; internal/wire maps it to a gRPC code.
type Kind uint8

const (
	KindInternal     Kind = iota // a defect of Weir: report it
	KindInvalid                  // the request is wrong and will stay wrong
	KindNotFound                 // the named thing does not exist
	KindExists                   // the named thing exists and differs
	KindPrecondition             // right in itself, refused in the present state
	KindOverloaded               // try again later, with back-off
	KindUnavailable              // try again soon, perhaps elsewhere
	KindUnknown                  // the outcome is unknown: retry only what is idempotent
	KindDeadline                 // what was waited for did not come in time
	KindCorrupt                  // stored data failed its checksum; never retried
)

// Reason is the stable, machine-readable name of an error: ErrorInfo.reason on the wire.
type Reason string

// The reasons. Reasons (below) describes each; docs/errors.md is generated from it.
const (
	ReasonInternal              Reason = "INTERNAL"
	ReasonCorrupt               Reason = "CORRUPT"
	ReasonSQLSyntax             Reason = "SQL_SYNTAX"
	ReasonSQLType               Reason = "SQL_TYPE"
	ReasonSQLUnsupported        Reason = "SQL_UNSUPPORTED"
	ReasonRequestInvalid        Reason = "REQUEST_INVALID"
	ReasonRowInvalid            Reason = "ROW_INVALID"
	ReasonKeyInvalid            Reason = "KEY_INVALID"
	ReasonNameInvalid           Reason = "NAME_INVALID"
	ReasonOptionInvalid         Reason = "OPTION_INVALID"
	ReasonTokenInvalid          Reason = "TOKEN_INVALID"
	ReasonExpressionFailed      Reason = "EXPRESSION_FAILED"
	ReasonTooLarge              Reason = "TOO_LARGE"
	ReasonPipelineNotFound      Reason = "PIPELINE_NOT_FOUND"
	ReasonTableNotFound         Reason = "TABLE_NOT_FOUND"
	ReasonStreamNotFound        Reason = "STREAM_NOT_FOUND"
	ReasonRowNotFound           Reason = "ROW_NOT_FOUND"
	ReasonPipelineExists        Reason = "PIPELINE_EXISTS"
	ReasonStreamConflict        Reason = "STREAM_CONFLICT"
	ReasonStreamInUse           Reason = "STREAM_IN_USE"
	ReasonStreamSealed          Reason = "STREAM_SEALED"
	ReasonPipelineState         Reason = "PIPELINE_STATE"
	ReasonPositionsExpired      Reason = "POSITIONS_EXPIRED"
	ReasonCheckpointExpired     Reason = "CHECKPOINT_EXPIRED"
	ReasonCheckpointNotFound    Reason = "CHECKPOINT_NOT_FOUND"
	ReasonCheckpointFailed      Reason = "CHECKPOINT_FAILED"
	ReasonTokenForeign          Reason = "TOKEN_FOREIGN"
	ReasonTimelineChanged       Reason = "TIMELINE_CHANGED"
	ReasonOutOfOrder            Reason = "OUT_OF_ORDER"
	ReasonProducerFenced        Reason = "PRODUCER_FENCED"
	ReasonUnknownProducer       Reason = "UNKNOWN_PRODUCER"
	ReasonSequenceReused        Reason = "SEQUENCE_REUSED"
	ReasonIdempotencyKeyReused  Reason = "IDEMPOTENCY_KEY_REUSED"
	ReasonOverloaded            Reason = "OVERLOADED"
	ReasonScanLimit             Reason = "SCAN_LIMIT"
	ReasonDiskLow               Reason = "DISK_LOW"
	ReasonWatchLagged           Reason = "WATCH_LAGGED"
	ReasonPipelineRecovering    Reason = "PIPELINE_RECOVERING"
	ReasonNotLeader             Reason = "NOT_LEADER"
	ReasonNodeNotFound          Reason = "NODE_NOT_FOUND"
	ReasonNodeConflict          Reason = "NODE_CONFLICT"
	ReasonNoCommittedCheckpoint Reason = "NO_COMMITTED_CHECKPOINT"
	ReasonCutTooOld             Reason = "CUT_TOO_OLD"
	ReasonOutcomeUnknown        Reason = "OUTCOME_UNKNOWN"
	ReasonShuttingDown          Reason = "SHUTTING_DOWN"
	ReasonNodeNotReady          Reason = "NODE_NOT_READY"
	ReasonUnreachable           Reason = "UNREACHABLE"
	ReasonNodeUnreachable       Reason = "NODE_UNREACHABLE"
	ReasonTokenNotReached       Reason = "TOKEN_NOT_REACHED"
	ReasonDeadline              Reason = "DEADLINE"
)

// ReasonInfo is one row of docs/errors.md.
type ReasonInfo struct {
	Reason  Reason
	Kind    Kind
	Meaning string // what happened, for people
	Remedy  string // what to do
}

// Reasons returns the description of every reason, in the order of the documentation.
func Reasons() []ReasonInfo { return append([]ReasonInfo(nil), reasons...) }

var reasons = []ReasonInfo{
	{ReasonSQLSyntax, KindInvalid, "the SQL text does not parse", "mend the text at the line and column that the error names"},
	{ReasonSQLType, KindInvalid, "a name or a type in the SQL text does not fit", "mend the expression at the line and column that the error names"},
	{ReasonSQLUnsupported, KindInvalid, "the SQL is understood but Weir has no such statement or function", "write what the error names instead"},
	{ReasonRequestInvalid, KindInvalid, "a field of the request is missing, unknown or out of range", "mend the field that the error names"},
	{ReasonRowInvalid, KindInvalid, "rows do not fit the stream's columns; nothing was written", "mend the rows and columns that the error lists and send all of them again"},
	{ReasonKeyInvalid, KindInvalid, "the key does not fit the table's key columns", "give one value per key column, in order"},
	{ReasonNameInvalid, KindInvalid, "a name is not [a-z_][a-z0-9_]{0,62}", "choose another name"},
	{ReasonOptionInvalid, KindInvalid, "an option is unknown or its value out of range", "see docs/sql.md for the options"},
	{ReasonTokenInvalid, KindInvalid, "a token or page token is damaged, or belongs to another request", "use tokens as they were handed out, with the same request"},
	{ReasonExpressionFailed, KindInvalid, "an expression fails for a value, for example an overflow or a CAST", "guard the expression with CASE, or mend the value"},
	{ReasonTooLarge, KindInvalid, "a key, value, row or batch is over its limit", "send less at once; the error names the limit"},
	{ReasonPipelineNotFound, KindNotFound, "there is no pipeline of this name", "weir pipeline list"},
	{ReasonTableNotFound, KindNotFound, "the pipeline has no table of this name", "weir table list"},
	{ReasonStreamNotFound, KindNotFound, "there is no stream of this name", "weir stream list"},
	{ReasonRowNotFound, KindNotFound, "the table has no row with this key at the answer's cut", "nothing to mend: the answer's cut says when this was true"},
	{ReasonCheckpointNotFound, KindNotFound, "the pipeline has no such checkpoint", "weir checkpoint list"},
	{ReasonNodeNotFound, KindNotFound, "the group has no node of this name", "weir cluster status"},
	{ReasonPipelineExists, KindExists, "a pipeline of this name runs another program, or with other options", "weir pipeline set for options; for another program deploy under another name, or delete the pipeline first"},
	{ReasonStreamConflict, KindExists, "a stream of this name has other columns or options", "columns and PARTITION BY are fixed when a stream is made: declare what it has, or use another name; options are changed by weir stream set"},
	{ReasonStreamInUse, KindPrecondition, "pipelines read the stream", "delete the pipelines first"},
	{ReasonStreamSealed, KindPrecondition, "the stream is sealed and takes no more rows", "append to another stream"},
	{ReasonPipelineState, KindPrecondition, "the pipeline is not in a state that allows this", "weir pipeline describe"},
	{ReasonNodeConflict, KindPrecondition, "the group does not allow this change of its nodes now", "weir cluster status; the error says what stands in the way"},
	{ReasonPositionsExpired, KindPrecondition, "rows that the pipeline still needs were dropped by retention", "delete the pipeline and deploy it again"},
	{ReasonCheckpointExpired, KindPrecondition, "the checkpoint is no longer kept", "read the newest cut, or lease a checkpoint to keep it"},
	{ReasonCheckpointFailed, KindUnavailable, "the checkpoint attempt was given up; processing goes on", "trigger again"},
	{ReasonTokenForeign, KindPrecondition, "the token comes from another node group", "use tokens with the group that gave them"},
	{ReasonTimelineChanged, KindPrecondition, "the pipeline was rewound since the token was given", "read again without the token"},
	{ReasonOutOfOrder, KindPrecondition, "the producer's rows before these were never received", "send from the sequence number that the error names"},
	{ReasonProducerFenced, KindPrecondition, "a newer session of the same producer is open", "stop the older process"},
	{ReasonUnknownProducer, KindPrecondition, "the producer, or this session of it, was not opened here, or was forgotten", "open the producer, and go on where the answer says it stands"},
	{ReasonSequenceReused, KindInvalid, "a sequence number came again with other rows", "number rows once; re-send the same rows"},
	{ReasonIdempotencyKeyReused, KindInvalid, "the idempotency key came again with other rows", "use a new key for new rows"},
	{ReasonOverloaded, KindOverloaded, "a queue or a stream is full; nothing was written", "try again after the delay in RetryInfo"},
	{ReasonScanLimit, KindOverloaded, "the query reached the limit of time, bytes or memory that the error names", "narrow the query, or page through a scan"},
	{ReasonDiskLow, KindOverloaded, "too little disk is left to take rows", "free disk space; ingest resumes by itself"},
	{ReasonWatchLagged, KindOverloaded, "a watch took its changes more slowly than they are kept, and was ended", "watch again, which begins with a snapshot; see docs/watch.md"},
	{ReasonPipelineRecovering, KindUnavailable, "the pipeline is recovering and has no live state", "try again after the delay in RetryInfo, or read committed"},
	{ReasonNotLeader, KindUnavailable, "this node does not lead the shard or the meta log", "try again, or ask the node that the error names"},
	{ReasonNoCommittedCheckpoint, KindUnavailable, "the pipeline has no committed cut here yet", "try again after the delay in RetryInfo"},
	{ReasonCutTooOld, KindUnavailable, "the newest cut that this node can answer from is older than max_staleness allows", "try again, ask a node that the error names, or allow more; checkpoint.interval says how fresh committed reads are"},
	{ReasonOutcomeUnknown, KindUnknown, "the request may or may not have taken effect", "retry it with the same idempotency key or sequence numbers"},
	{ReasonShuttingDown, KindUnavailable, "the node is stopping", "try again, or ask another node"},
	{ReasonNodeNotReady, KindUnavailable, "the node starts, or waits for its group, and serves nothing yet; the error says what it waits for", "start the nodes that it waits for, take it into the group with weir cluster add, or ask another node"},
	{ReasonUnreachable, KindUnavailable, "no server answered; clients give this, never a server", "start the server, or correct the address"},
	{ReasonNodeUnreachable, KindUnavailable, "another node of the group, which the request needs, is not to be reached; nothing was written", "try again after the delay in RetryInfo: another node takes over, or weir cluster status says which one is missing"},
	{ReasonTokenNotReached, KindDeadline, "the cut did not cover the token in time", "wait longer, or see weir pipeline describe for what holds it up; with checkpoint.interval = 'off', weir checkpoint trigger"},
	{ReasonDeadline, KindDeadline, "the request's deadline passed", "allow more time"},
	{ReasonCorrupt, KindCorrupt, "stored data is damaged or missing", "restore the node's data directory from a backup; see docs/guarantees.md, Damaged and lost files"},
	{ReasonInternal, KindInternal, "a defect in Weir", "report it with the server's log"},
}

// KindOf returns the kind that a reason has everywhere.
func (r Reason) Kind() Kind {
	for i := range reasons {
		if reasons[i].Reason == r {
			return reasons[i].Kind
		}
	}
	return KindInternal
}

// Violation names one wrong field of a request: a BadRequest.FieldViolation on the wire.
type Violation struct {
	Field       string // for example rows[3].amount
	Description string
}

// Error is an error that a user can meet. It crosses the wire whole (google.rpc.Status with details) and is rebuilt by
// the Go client, so errors.As with *Error works on both sides.
type Error struct {
	Reason     Reason
	Message    string            // what went wrong, and where
	Hint       string            // how to mend it; empty when the message says it
	Violations []Violation       // wrong fields, when there are several
	RetryAfter time.Duration     // when to try again; 0 = unsaid
	Metadata   map[string]string // the dynamic parts of Message, for programs
	Err        error             // the cause, for logs; never crosses the wire
}

// Errorf returns an *Error with a formatted message. A %w verb also sets the cause.
func Errorf(r Reason, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Reason: r, Message: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint sets the hint and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// WithMeta adds a metadata pair and returns e.
func (e *Error) WithMeta(key, value string) *Error {
	if e.Metadata == nil {
		e.Metadata = make(map[string]string)
	}
	e.Metadata[key] = value
	return e
}

// WithRetry sets when to try again and returns e.
func (e *Error) WithRetry(d time.Duration) *Error {
	e.RetryAfter = d
	return e
}

func (e *Error) Error() string {
	if e.Hint != "" {
		return e.Message + " (" + e.Hint + ")"
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, &Error{Reason: r}) match by reason.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Reason == e.Reason
}

// ReasonOf returns the reason of the first *Error in err's chain, or ReasonInternal; "" for nil.
func ReasonOf(err error) Reason {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ReasonInternal
}
