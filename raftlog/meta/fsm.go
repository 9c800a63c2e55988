package meta

import (
	"sync"
	"sync/atomic"

	"google.golang.org/protobuf/proto"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
)

// FSM is the meta log's state machine. Apply and Restore are called by one goroutine at a time, in log order; the other
// methods by any.
type FSM struct {
	state atomic.Pointer[State]

	mu struct {
		sync.Mutex
		changed chan struct{} // closed and replaced when the state is replaced
	}
}

// NewFSM returns the machine in the state before the first entry.
func NewFSM() *FSM {
	f := &FSM{}
	f.mu.changed = make(chan struct{})
	f.state.Store(emptyState())
	return f
}

// State returns the newest state.
func (f *FSM) State() *State { return f.state.Load() }

// Changed returns a channel that is closed when the state is replaced.
func (f *FSM) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.changed
}

// Apply applies one entry and returns its result: the value that the Log's method returns, or an error. A refused entry
// advances Index and Now and nothing else.
func (f *FSM) Apply(index dataflow.LogIndex, cmd []byte) any {
	next, result := f.State().apply(index, cmd)
	f.replace(next)
	return result
}

func (f *FSM) replace(s *State) {
	f.state.Store(s)
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.mu.changed)
	f.mu.changed = make(chan struct{})
}

// apply is the pure transition: it returns the next state and the entry's result, and leaves s as it is.
func (s *State) apply(index dataflow.LogIndex, entry []byte) (*State, any) {
	var cmd metav1.Command
	if err := proto.Unmarshal(entry, &cmd); err != nil {
		next := *s
		next.Index = index
		return &next, dataflow.Errorf(dataflow.ReasonCorrupt, "entry %d of the meta log: %w", index, err)
	}
	next := *s
	next.Index, next.Now = index, max(s.Now, cmd.Now)
	refused := next // taken before the command changes anything
	result, err := next.execute(&cmd)
	if err != nil {
		return &refused, err
	}
	return &next, result
}

// execute runs one command on s, a shallow copy that nobody else has seen. A command clones what it changes.
func (s *State) execute(cmd *metav1.Command) (any, error) {
	switch c := cmd.Command.(type) {
	case *metav1.Command_Bootstrap:
		return s.bootstrap(c.Bootstrap)
	case *metav1.Command_CreateStream:
		return s.createStream(c.CreateStream)
	case *metav1.Command_SealStream:
		return s.sealStream(c.SealStream)
	case *metav1.Command_SetStreamOptions:
		return s.setStreamOptions(c.SetStreamOptions)
	case *metav1.Command_DropStream:
		return s.dropStream(c.DropStream)
	case *metav1.Command_CreatePipeline:
		return s.createPipeline(c.CreatePipeline)
	case *metav1.Command_DeletePipeline:
		return s.deletePipeline(c.DeletePipeline)
	case *metav1.Command_SetOptions:
		return s.setOptions(c.SetOptions)
	case *metav1.Command_SetPipelineState:
		return s.setPipelineState(c.SetPipelineState)
	case *metav1.Command_ReserveAttempts:
		return s.reserveAttempts(c.ReserveAttempts)
	case *metav1.Command_BeginIncarnation:
		return s.beginIncarnation(c.BeginIncarnation)
	case *metav1.Command_CommitCheckpoint:
		return s.commitCheckpoint(c.CommitCheckpoint)
	case *metav1.Command_Lease:
		return s.lease(c.Lease)
	case *metav1.Command_RenewLease:
		return s.renewLease(c.RenewLease)
	case *metav1.Command_ReleaseLease:
		return s.releaseLease(c.ReleaseLease)
	case *metav1.Command_OpenProducer:
		return s.openProducer(c.OpenProducer)
	case *metav1.Command_Expire:
		return s.expire(c.Expire)
	case *metav1.Command_PutMember:
		return s.putMember(c.PutMember)
	case *metav1.Command_SetMemberState:
		return s.setMemberState(c.SetMemberState)
	case *metav1.Command_SetPlacement:
		return s.setPlacement(c.SetPlacement)
	case *metav1.Command_SetReplicas:
		return s.setReplicas(c.SetReplicas)
	}
	return nil, dataflow.Errorf(dataflow.ReasonInternal, "entry %d of the meta log: %w", s.Index, ErrUnknownCommand)
}
