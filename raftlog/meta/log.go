package meta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
)

// Group is what the meta log needs of a Raft group. *raftlog.Group implements it; so do test models.
type Group interface {
	// Propose returns when the entry has been applied here, with its index and what FSM.Apply returned. An error means
	// that it was not, or may not have been (OUTCOME_UNKNOWN), applied.
	Propose(ctx context.Context, cmd []byte) (dataflow.LogIndex, any, error)
	// Barrier returns when all entries committed before the call have been applied here.
	Barrier(ctx context.Context) error
}

// Log proposes commands to the meta log and reads its state. All methods may be called concurrently; the proposing ones
// succeed on the leader only.
type Log struct {
	group Group
	fsm   *FSM
	clock func() int64
	// spread says that the log is on several nodes.
	spread bool
}

// New returns a Log over a group whose state machine is fsm. clock gives the time that commands carry, in µs since 1970.
// The caller closes the group.
func New(group Group, fsm *FSM, clock func() int64) *Log {
	return &Log{group: group, fsm: fsm, clock: clock}
}

// Spread says that the log is on several nodes: then only what Current returns is sure to have all that was committed before.
func (l *Log) Spread() { l.spread = true }

// Current returns a state that has everything that was acknowledged before the call, by whichever node. On the leader it passes
// a Barrier too: one that has just come to lead has not applied all that the one before has acknowledged, one that was deposed
// does not know it yet, and a follower may apply an entry, and answer, before the leader does.
func (l *Log) Current(ctx context.Context) (*State, error) {
	if !l.spread {
		return l.State(), nil
	}
	err := l.Barrier(ctx)
	if err != nil && dataflow.ReasonOf(err).Kind() == dataflow.KindUnknown { // of a read there is no outcome that could be unknown
		err = dataflow.Errorf(dataflow.ReasonNotLeader, "the meta log's leader did not answer: %w", err).WithRetry(retryRead)
	}
	if err != nil {
		return nil, err
	}
	return l.State(), nil
}

// retryRead is when a read of the metadata should be tried again: by then another node may lead.
const retryRead = time.Second

// Find returns what look finds in the newest state. When that is not there, and another node may know more, it looks again in
// a current one.
func Find[R any](ctx context.Context, l *Log, look func(*State) (R, error)) (R, error) {
	r, err := look(l.State())
	if !l.spread || dataflow.ReasonOf(err).Kind() != dataflow.KindNotFound {
		return r, err
	}
	st, lost := l.Current(ctx)
	if lost != nil {
		return r, lost
	}
	return look(st)
}

// FindStream returns the stream called name, or STREAM_NOT_FOUND.
func (l *Log) FindStream(ctx context.Context, name string) (*Stream, error) {
	return Find(ctx, l, func(st *State) (*Stream, error) { return st.Stream(name) })
}

// FindPipeline returns the pipeline called name, or PIPELINE_NOT_FOUND.
func (l *Log) FindPipeline(ctx context.Context, name string) (*Pipeline, error) {
	return Find(ctx, l, func(st *State) (*Pipeline, error) { return st.Pipeline(name) })
}

// State returns the newest state that has been applied here.
func (l *Log) State() *State { return l.fsm.State() }

// Changed returns a channel that is closed when the state is replaced. Take the channel first, then the state.
func (l *Log) Changed() <-chan struct{} { return l.fsm.Changed() }

// Barrier returns when everything committed before the call is in State.
func (l *Log) Barrier(ctx context.Context) error { return l.group.Barrier(ctx) }

// Wait returns the first state for which ok is true, or ctx's error.
func (l *Log) Wait(ctx context.Context, ok func(*State) bool) (*State, error) {
	for {
		changed := l.Changed()
		if s := l.State(); ok(s) {
			return s, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the meta log: %w", context.Cause(ctx))
		}
	}
}

// Bootstrap names the group and fixes its number of shards. Repeating it with the same number of shards changes nothing;
// another number is refused.
func (l *Log) Bootstrap(ctx context.Context, clusterID string, shards int) error {
	_, err := propose[none](ctx, l, &metav1.Command{Command: &metav1.Command_Bootstrap{
		Bootstrap: &metav1.Bootstrap{ClusterId: clusterID, Shards: uint32(shards)}}})
	return err
}

// StreamDefinition is what CREATE STREAM says.
type StreamDefinition struct {
	Name        string
	Schema      dataflow.Schema
	PartitionBy []int
	Options     []dataflow.Option // as written
}

// CreateStream makes a stream. An equal one is returned as it is, with created false; one that differs gives
// STREAM_CONFLICT with the difference.
func (l *Log) CreateStream(ctx context.Context, def StreamDefinition) (st *Stream, created bool, err error) {
	r, err := propose[streamResult](ctx, l, &metav1.Command{Command: &metav1.Command_CreateStream{
		CreateStream: &metav1.CreateStream{Definition: def.encode()}}})
	return r.stream, r.created, err
}

// SetStreamOptions changes options of a stream. Those of a fixed kind, and unknown ones, are OPTION_INVALID. STREAM_IN_USE refuses
// a grace so short that a pipeline which does not run would lose its rows at once.
func (l *Log) SetStreamOptions(ctx context.Context, name string, opts []dataflow.Option) (*Stream, error) {
	return propose[*Stream](ctx, l, &metav1.Command{Command: &metav1.Command_SetStreamOptions{
		SetStreamOptions: &metav1.SetStreamOptions{Name: name, Options: encodeOptions(opts)}}})
}

// SealStream ends a stream: it takes no more rows. Sealing twice changes nothing.
func (l *Log) SealStream(ctx context.Context, name string) (*Stream, error) {
	return propose[*Stream](ctx, l, &metav1.Command{Command: &metav1.Command_SealStream{
		SealStream: &metav1.SealStream{Name: name}}})
}

// DropStream removes a stream, or refuses with STREAM_IN_USE naming the pipelines that read it. It returns the stream's
// identifier, whose rows the shards' drivers then delete.
func (l *Log) DropStream(ctx context.Context, name string) (dataflow.StreamID, error) {
	return propose[dataflow.StreamID](ctx, l, &metav1.Command{Command: &metav1.Command_DropStream{
		DropStream: &metav1.DropStream{Name: name}}})
}

// CreatePipeline is a deployment.
type CreatePipeline struct {
	Name        string
	SQL         string
	Fingerprint string             // equal fingerprints are the same program
	Options     []dataflow.Option  // in order of precedence: later ones win
	Declared    []StreamDefinition // created in the same entry when they are not there
	// Reads are the streams that the plan reads, with the identifiers that Start and DeployEnd are about; 0 for a stream
	// that this entry creates.
	Reads map[string]dataflow.StreamID
	// Start is where the pipeline begins: the positions of cut 0. DeployEnd is where the streams end now.
	Start, DeployEnd dataflow.Positions
	// Owners run the tasks of incarnation 1; none in a group of one node.
	Owners []Owner
}

// CreatePipeline deploys a pipeline: it creates the declared streams, begins incarnation 1 and commits cut 0, all in one
// entry. A pipeline of this name with an equal fingerprint is returned with created false; another gives PIPELINE_EXISTS.
func (l *Log) CreatePipeline(ctx context.Context, c CreatePipeline) (p *Pipeline, created bool, err error) {
	r, err := propose[pipelineResult](ctx, l, &metav1.Command{Command: &metav1.Command_CreatePipeline{CreatePipeline: c.encode()}})
	return r.pipeline, r.created, err
}

// DeletePipeline removes a pipeline with its checkpoints, in whatever state it is, and returns what it was.
func (l *Log) DeletePipeline(ctx context.Context, name string) (*Pipeline, error) {
	return propose[*Pipeline](ctx, l, &metav1.Command{Command: &metav1.Command_DeletePipeline{
		DeletePipeline: &metav1.DeletePipeline{Name: name}}})
}

// SetOptions changes options of a pipeline, running or not.
func (l *Log) SetOptions(ctx context.Context, uid dataflow.PipelineUID, opts []dataflow.Option) (*Pipeline, error) {
	return propose[*Pipeline](ctx, l, &metav1.Command{Command: &metav1.Command_SetOptions{
		SetOptions: &metav1.SetOptions{Pipeline: uint64(uid), Options: encodeOptions(opts)}}})
}

// Stop asks a pipeline to take a final checkpoint and stop. Asking again changes nothing.
func (l *Log) Stop(ctx context.Context, uid dataflow.PipelineUID) (*Pipeline, error) {
	return l.setState(ctx, &metav1.SetPipelineState{Pipeline: uint64(uid), State: metav1.PipelineState_PIPELINE_STATE_STOPPING})
}

// Resume asks a stopped or failed pipeline to run again, leaving out the rows of skip. It is refused with
// POSITIONS_EXPIRED when the pipeline has lost its claim on its rows. Asking a running pipeline changes nothing, unless
// there is something to skip, which is refused.
func (l *Log) Resume(ctx context.Context, uid dataflow.PipelineUID, skip ...dataflow.SourceRow) (*Pipeline, error) {
	return l.setState(ctx, &metav1.SetPipelineState{Pipeline: uint64(uid),
		State: metav1.PipelineState_PIPELINE_STATE_RECOVERING, Skip: encodeRows(skip)})
}

// MarkRunning records that all tasks of the incarnation run.
func (l *Log) MarkRunning(ctx context.Context, uid dataflow.PipelineUID, i dataflow.Incarnation) (*Pipeline, error) {
	return l.setState(ctx, &metav1.SetPipelineState{Pipeline: uint64(uid), Incarnation: uint64(i),
		State: metav1.PipelineState_PIPELINE_STATE_RUNNING})
}

// MarkStopped records that a stopping pipeline's tasks have ended.
func (l *Log) MarkStopped(ctx context.Context, uid dataflow.PipelineUID, i dataflow.Incarnation) (*Pipeline, error) {
	return l.setState(ctx, &metav1.SetPipelineState{Pipeline: uint64(uid), Incarnation: uint64(i),
		State: metav1.PipelineState_PIPELINE_STATE_STOPPED})
}

// MarkFailed records that the pipeline cannot go on, and why. The failure's incarnation must be the current one.
func (l *Log) MarkFailed(ctx context.Context, uid dataflow.PipelineUID, f dataflow.PipelineFailure) (*Pipeline, error) {
	return l.setState(ctx, &metav1.SetPipelineState{Pipeline: uint64(uid), Incarnation: uint64(f.Incarnation),
		State: metav1.PipelineState_PIPELINE_STATE_FAILED, Failure: EncodeFailure(&f)})
}

func (l *Log) setState(ctx context.Context, c *metav1.SetPipelineState) (*Pipeline, error) {
	return propose[*Pipeline](ctx, l, &metav1.Command{Command: &metav1.Command_SetPipelineState{SetPipelineState: c}})
}

// ReserveAttempts gives out count attempt numbers, first up to but not including end (P3). A new coordinator sets fence:
// attempts reserved before can then no longer commit.
func (l *Log) ReserveAttempts(ctx context.Context, uid dataflow.PipelineUID, count int, fence bool) (first, end dataflow.CheckpointID, err error) {
	r, err := propose[attemptsResult](ctx, l, &metav1.Command{Command: &metav1.Command_ReserveAttempts{
		ReserveAttempts: &metav1.ReserveAttempts{Pipeline: uint64(uid), Count: uint32(min(max(count, 0), MaxAttempts+1)), Fence: fence}}})
	return r.first, r.end, err
}

// BeginIncarnation ends incarnation after and begins the next one from the newest committed cut (P4), which the returned
// pipeline names as its Base. When after is not the current incarnation it is refused with ErrStaleIncarnation, unless it
// is the one before and was ended by an equal command: a retry gets the first answer.
func (l *Log) BeginIncarnation(ctx context.Context, uid dataflow.PipelineUID, after dataflow.Incarnation, owners []Owner, cause string) (*Pipeline, error) {
	return propose[*Pipeline](ctx, l, &metav1.Command{Command: &metav1.Command_BeginIncarnation{
		BeginIncarnation: &metav1.BeginIncarnation{Pipeline: uint64(uid), After: uint64(after), Owners: encodeOwners(owners), Cause: plainText(cause)}}})
}

// CommitCheckpoint commits a checkpoint (G2, P2) and returns its record with the fields that the FSM sets. Committing the
// same checkpoint again gives the first answer. Refusals wrap ErrStaleIncarnation, ErrStaleAttempt or ErrBadCommit.
func (l *Log) CommitCheckpoint(ctx context.Context, c *dataflow.CheckpointCommit) (*dataflow.CheckpointCommit, error) {
	return propose[*dataflow.CheckpointCommit](ctx, l, &metav1.Command{Command: &metav1.Command_CommitCheckpoint{
		CommitCheckpoint: &metav1.CommitCheckpoint{Checkpoint: encodeCommit(c)}}})
}

// Lease keeps cut n of a pipeline readable for ttl (rounded down to µs, at most MaxLeaseTime). A cut that is no longer
// kept is refused with CHECKPOINT_EXPIRED.
func (l *Log) Lease(ctx context.Context, uid dataflow.PipelineUID, n dataflow.CheckpointID, ttl time.Duration) (Lease, error) {
	return propose[Lease](ctx, l, &metav1.Command{Command: &metav1.Command_Lease{
		Lease: &metav1.Lease{Pipeline: uint64(uid), Checkpoint: uint64(n), TtlMicros: ttl.Microseconds()}}})
}

// RenewLease lets a lease live for ttl from now. A lease that has ended is refused with CHECKPOINT_EXPIRED.
func (l *Log) RenewLease(ctx context.Context, uid dataflow.PipelineUID, id uint64, ttl time.Duration) (Lease, error) {
	return propose[Lease](ctx, l, &metav1.Command{Command: &metav1.Command_RenewLease{
		RenewLease: &metav1.RenewLease{Pipeline: uint64(uid), Id: id, TtlMicros: ttl.Microseconds()}}})
}

// ReleaseLease ends a lease. Releasing one that has ended changes nothing.
func (l *Log) ReleaseLease(ctx context.Context, uid dataflow.PipelineUID, id uint64) error {
	_, err := propose[none](ctx, l, &metav1.Command{Command: &metav1.Command_ReleaseLease{
		ReleaseLease: &metav1.ReleaseLease{Pipeline: uint64(uid), Id: id}}})
	return err
}

// OpenProducer begins a new epoch of a producer that is not anonymous, which fences the older ones once it is written to the shards (P8).
// instance is chosen by the caller for one opening: repeating it with the same instance gives the same epoch.
func (l *Log) OpenProducer(ctx context.Context, name, instance string) (dataflow.ProducerEpoch, error) {
	return propose[dataflow.ProducerEpoch](ctx, l, &metav1.Command{Command: &metav1.Command_OpenProducer{
		OpenProducer: &metav1.OpenProducer{Name: name, Instance: instance}}})
}

// Expire lets go of what time has ended: leases, superseded cuts, the claims of pipelines that do not run, and producers
// that were last opened longer than dataflow.ProducerTTL ago. The leader calls it when State.ExpireDue says so.
func (l *Log) Expire(ctx context.Context) error {
	_, err := propose[none](ctx, l, &metav1.Command{Command: &metav1.Command_Expire{Expire: &metav1.Expire{ProducersBefore: producersBefore(l.clock())}}})
	return err
}

// none is the result of a command that has none.
type none struct{}

type streamResult struct {
	stream  *Stream
	created bool
}

type pipelineResult struct {
	pipeline *Pipeline
	created  bool
}

type attemptsResult struct{ first, end dataflow.CheckpointID }

// propose sends one command with the present time and returns its result as R, or the FSM's refusal.
func propose[R any](ctx context.Context, l *Log, cmd *metav1.Command) (R, error) {
	var zero R
	cmd.Now = l.clock()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(cmd)
	if err != nil {
		// Only text that is not UTF-8 does not marshal.
		return zero, dataflow.Errorf(dataflow.ReasonRequestInvalid, "encode a command for the meta log: %w", err)
	}
	_, result, err := l.group.Propose(ctx, b)
	if err != nil {
		return zero, err
	}
	switch r := result.(type) {
	case R:
		return r, nil
	case error:
		return zero, r
	}
	return zero, errors.Join(ErrUnknownCommand, fmt.Errorf("the meta log answered %T", result))
}
