package weir

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// ReadOptions are what every read can ask for.
type ReadOptions struct {
	// Isolation is committed unless said otherwise.
	Isolation dataflow.Isolation
	// MinToken is the token of an append that the answer must cover.
	MinToken string
	// SessionToken is the token of a cut that somebody else has seen (Cut.Token, Client.SessionToken): the answer is from no older
	// one. What the client itself has seen is looked after without it.
	SessionToken string
	// MaxWait is how long the server may wait for MinToken and the session; 0 = 10 s. Then TOKEN_NOT_REACHED.
	MaxWait time.Duration
	// MaxStaleness, if set, is how long ago rows may have been acknowledged that the answer lacks. A node whose newest cut is
	// older says CUT_TOO_OLD, and another is asked.
	MaxStaleness time.Duration
	// Checkpoint reads this retained or leased cut instead of the newest.
	Checkpoint *dataflow.CheckpointID
	// NumbersAsStrings writes BIGINT and NUMERIC values as JSON strings.
	NumbersAsStrings bool
}

func (o *ReadOptions) isolation() weirv1.Read {
	if o.Isolation == dataflow.ReadUncommitted {
		return weirv1.Read_READ_UNCOMMITTED
	}
	return weirv1.Read_READ_COMMITTED
}

func (o *ReadOptions) numbers() weirv1.Numbers {
	if o.NumbersAsStrings {
		return weirv1.Numbers_NUMBERS_STRING
	}
	return weirv1.Numbers_NUMBERS_JSON
}

const (
	// serverWait is how long a server waits when it is not told.
	serverWait = 10 * time.Second
	// sessionWait is how long a node is waited for that lags behind the session when another can be asked.
	sessionWait = 2 * time.Second
)

// maxWait is what to ask for: what the caller says, or else no longer than he waits himself, so that he hears why.
func (c *Client) maxWait(ctx context.Context, o *ReadOptions, session string) *durationpb.Duration {
	wait := o.MaxWait
	if wait == 0 {
		wait = serverWait
		if o.MinToken == "" && session != "" && c.nodes.count() > 1 {
			wait = sessionWait
		}
		if deadline, ok := ctx.Deadline(); ok && (o.MinToken != "" || session != "") {
			wait = max(time.Millisecond, min(wait, time.Until(deadline)*3/4))
		}
		if wait == serverWait {
			return nil
		}
	}
	return durationpb.New(wait)
}

func (o *ReadOptions) maxStaleness() *durationpb.Duration {
	if o.MaxStaleness == 0 {
		return nil
	}
	return durationpb.New(o.MaxStaleness)
}

func (o *ReadOptions) checkpoint() *uint64 {
	if o.Checkpoint == nil {
		return nil
	}
	id := uint64(*o.Checkpoint)
	return &id
}

// session is the token to send. A read of a chosen cut is outside the session: it may look back.
func (c *Client) session(pipeline string, o *ReadOptions) string {
	if o.Checkpoint != nil {
		return o.SessionToken
	}
	return newer(o.SessionToken, c.sessions.token(pipeline))
}

// finish notes what a read says about its pipeline.
func (c *Client) finish(pipeline string, o *ReadOptions, cut *weirv1.Cut, err error) {
	if err != nil {
		cut = CutOf(err)
		c.sessions.failed(pipeline, err)
	}
	if o.Checkpoint == nil {
		c.sessions.saw(cut)
	}
}

// Row is a row as a JSON object, columns in the order of the table.
type Row = json.RawMessage

// Answer is one row and the cut it is from.
type Answer struct {
	Row Row
	Cut *weirv1.Cut
}

// Get reads the row of a table ("pipeline.table") by its key. Without one the error is ROW_NOT_FOUND, and CutOf(err) says
// as of which cut.
func (c *Client) Get(ctx context.Context, table string, key dataflow.Row, o ReadOptions) (*Answer, error) {
	p, t, err := dataflow.ParsePipelineTable(table)
	if err != nil {
		return nil, err
	}
	session := c.session(p, &o)
	r, err := call(ctx, c, repeatable, c.query.Get, &weirv1.GetRequest{
		Pipeline: p, Table: t, Key: wire.Key(key), Isolation: o.isolation(), MinToken: o.MinToken, SessionToken: session,
		MaxWait: c.maxWait(ctx, &o, session), MaxStaleness: o.maxStaleness(), CheckpointId: o.checkpoint(), Numbers: o.numbers(),
	})
	c.finish(p, &o, r.GetCut(), err)
	if err != nil {
		return nil, err
	}
	return &Answer{Row: r.GetRow(), Cut: r.GetCut()}, nil
}

// Answers are the rows of several keys, from one cut.
type Answers struct {
	// Rows has one element per key, in order; nil where there is no row. They may share memory: to keep one of many, copy it.
	Rows []Row
	Cut  *weirv1.Cut
}

// BatchGet reads rows by key, all from one cut.
func (c *Client) BatchGet(ctx context.Context, table string, keys []dataflow.Row, o ReadOptions) (*Answers, error) {
	p, t, err := dataflow.ParsePipelineTable(table)
	if err != nil {
		return nil, err
	}
	session := c.session(p, &o)
	req := &weirv1.BatchGetRequest{
		Pipeline: p, Table: t, Isolation: o.isolation(), MinToken: o.MinToken, SessionToken: session,
		MaxWait: c.maxWait(ctx, &o, session), MaxStaleness: o.maxStaleness(), CheckpointId: o.checkpoint(), Numbers: o.numbers(), Packed: true,
	}
	if columns, ok := wire.KeyColumns(keys); ok {
		req.KeyColumns = columns
	} else {
		for _, k := range keys {
			req.Keys = append(req.Keys, wire.Key(k))
		}
	}
	r, err := call(ctx, c, repeatable, c.query.BatchGet, req)
	c.finish(p, &o, r.GetCut(), err)
	if err != nil {
		return nil, err
	}
	a := &Answers{Cut: r.GetCut()}
	if packed := r.GetPackedRows(); packed != nil {
		a.Rows, err = unpack(packed)
		if err != nil {
			return nil, err
		}
		return a, nil
	}
	a.Rows = make([]Row, len(r.GetRows()))
	for i, row := range r.GetRows() {
		if len(row) > 0 {
			a.Rows[i] = row
		}
	}
	return a, nil
}

// unpack takes packed rows apart: nil where there is none. They share their memory.
func unpack(m *weirv1.TextValues) ([]Row, error) {
	rows, rest := make([]Row, len(m.GetLengths())), m.GetData()
	for i, n := range m.GetLengths() {
		if uint64(n) > uint64(len(rest)) {
			return nil, dataflow.Errorf(dataflow.ReasonInternal, "the server's answer ends in the middle of row %d", i)
		}
		if n > 0 {
			rows[i], rest = rest[:n:n], rest[n:]
		}
	}
	return rows, nil
}
