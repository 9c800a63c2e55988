package weir

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/pause"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// WatchOptions say what a watch follows. The zero value is a whole table, committed, with a snapshot first.
type WatchOptions struct {
	// Equal, Prefix, From and To are the keys, as in ScanRange.
	Equal    dataflow.Row
	Prefix   string
	From, To *dataflow.Value
	// Isolation is committed unless said otherwise.
	Isolation dataflow.Isolation
	// ChangesOnly leaves the snapshot out.
	ChangesOnly bool
	// Resume is the token of a cut, WatchEvent.Cut.Token of the last EndOfCut: go on exactly after it.
	Resume string
	// MinToken is the token of an append that the first cut must cover, and MaxWait how long the server may wait for it; 0 = 10 s.
	MinToken string
	MaxWait  time.Duration
	// MaxStaleness, if set, is how long ago rows may have been acknowledged that the watch has said nothing of. A node that can say
	// nothing so fresh, because it is cut off from its group, is left for another.
	MaxStaleness time.Duration
	// RetryFor is how long to try to reach a server that is away, each time; 0 = DefaultWatchRetryFor, negative = not at all.
	RetryFor time.Duration
	// NumbersAsStrings writes BIGINT and NUMERIC values as JSON strings.
	NumbersAsStrings bool
}

// DefaultWatchRetryFor is long enough for a server that restarts and recovers.
const DefaultWatchRetryFor = time.Minute

// WatchEvent is a part of what a watch says: see WatchResponse.
type WatchEvent struct {
	// Changes are the next changes of a cut, each key once per cut, or of a snapshot.
	Changes []*weirv1.Change
	// Snapshot says that the changes are rows of a snapshot: at its EndOfCut they are all there is, whatever was known before.
	Snapshot bool
	// EndOfCut says that all changes up to Cut have come: they may be applied as one.
	EndOfCut bool
	Cut      *weirv1.Cut
	// RolledBack says, of an uncommitted watch, that an incarnation has ended with what it had not committed.
	RolledBack bool
	// Restart says that the connection broke: what came since the last EndOfCut is void, and comes again. Nothing else is set.
	Restart bool
}

// Watch ranges over what happens to a table ("pipeline.table") until the context ends, or the watch cannot go on: the last
// pair holds the error. When the connection breaks, or its node ends, the watch is resumed exactly after the last complete cut, at
// whichever node of the group answers.
// When its changes are no longer kept, a new snapshot comes; with ChangesOnly, the error CHECKPOINT_EXPIRED.
//
// A reader that gathers changes, drops them at Restart and applies them at EndOfCut, to nothing if it is of a Snapshot, has
// the table as it was at every cut that it was told of.
func (c *Client) Watch(ctx context.Context, table string, o WatchOptions) iter.Seq2[*WatchEvent, error] {
	return func(yield func(*WatchEvent, error) bool) {
		w, err := c.newWatch(table, o)
		if err != nil {
			yield(nil, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // ends the call when the range loop is left
		w.run(ctx, yield)
	}
}

// watch is a watch under way.
type watch struct {
	c   *Client
	o   WatchOptions
	req *weirv1.WatchRequest
	// began says that something has come, so that an expired token is ours and not the caller's.
	began bool
	// open says that something has come since the last EndOfCut.
	open bool
}

func (c *Client) newWatch(table string, o WatchOptions) (*watch, error) {
	p, t, err := dataflow.ParsePipelineTable(table)
	if err != nil {
		return nil, err
	}
	if o.RetryFor == 0 {
		o.RetryFor = DefaultWatchRetryFor
	}
	read := ReadOptions{Isolation: o.Isolation, NumbersAsStrings: o.NumbersAsStrings, MaxStaleness: o.MaxStaleness}
	req := &weirv1.WatchRequest{
		Pipeline: p, Table: t, Prefix: o.Prefix, Isolation: read.isolation(), Numbers: read.numbers(), ChangesOnly: o.ChangesOnly, ResumeToken: o.Resume,
		MinToken: o.MinToken, MaxStaleness: read.maxStaleness(),
	}
	if o.MaxWait != 0 {
		req.MaxWait = durationpb.New(o.MaxWait)
	}
	if len(o.Equal) > 0 {
		req.Equal = wire.Key(o.Equal)
	}
	if o.From != nil {
		req.From = wire.Value(*o.From)
	}
	if o.To != nil {
		req.To = wire.Value(*o.To)
	}
	return &watch{c: c, o: o, req: req}, nil
}

func (w *watch) run(ctx context.Context, yield func(*WatchEvent, error) bool) {
	var wait pauses
	var away time.Time // since when no server has said anything; zero = one has
	for {
		began := time.Now()
		progress, stopped, err := w.once(connecting(ctx, cmp.Or(away, began), w.o.RetryFor), yield)
		if stopped {
			return
		}
		if progress {
			wait.reset()
			away = time.Time{}
		}
		if !w.mayGoOn(err) || ctx.Err() != nil {
			yield(nil, err)
			return
		}
		if w.open {
			w.open = false
			if !yield(&WatchEvent{Restart: true}, nil) {
				return
			}
		}
		if away.IsZero() {
			away = w.c.awaySince(began, err)
		}
		d, more := wait.within(retryAfter(err), w.o.RetryFor-time.Since(away))
		if !more {
			yield(nil, err)
			return
		}
		if ended := pause.For(ctx, d); ended != nil {
			yield(nil, because(err, ended))
			return
		}
	}
}

// mayGoOn reports whether another call can go on after an error, and makes the request for it.
func (w *watch) mayGoOn(err error) bool {
	switch dataflow.ReasonOf(err) {
	case dataflow.ReasonWatchLagged:
		return w.req.ResumeToken != "" || !w.o.ChangesOnly
	case dataflow.ReasonCheckpointExpired:
		if !w.began || w.o.ChangesOnly || w.req.ResumeToken == "" {
			return false
		}
		w.req.ResumeToken = ""
		return true
	}
	again, _ := mayRetry(err)
	return again
}

// once makes one call and passes on what it says. stopped = the caller wants no more.
func (w *watch) once(ctx context.Context, yield func(*WatchEvent, error) bool) (progress, stopped bool, err error) {
	w.req.SessionToken = ""
	if w.req.ResumeToken == "" { // it begins anew, and not with an older cut than the client has seen
		w.req.SessionToken = w.c.sessions.token(w.req.GetPipeline())
	}
	call, err := w.c.query.Watch(ctx, w.req)
	if err != nil {
		return false, false, w.c.errorOf(ctx, err)
	}
	for {
		m, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return progress, false, errNoEnd()
		}
		if err != nil {
			return progress, false, w.c.errorOf(ctx, err)
		}
		progress, w.began, w.open = true, true, true
		if m.GetEndOfCut() && w.o.Isolation == dataflow.ReadCommitted {
			w.open, w.req.ResumeToken = false, m.GetCut().GetToken()
			w.c.sessions.saw(m.GetCut())
		}
		if !yield(&WatchEvent{Changes: m.GetChanges(), Snapshot: m.GetSnapshot(), EndOfCut: m.GetEndOfCut(), Cut: m.GetCut(), RolledBack: m.GetRolledBack()}, nil) {
			return progress, true, nil
		}
	}
}
