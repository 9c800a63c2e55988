package crashtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/internal/vfs"
	"github.com/weirdb/weir/node"
	"github.com/weirdb/weir/node/worker"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
	"github.com/weirdb/weir/raftlog/meta"
)

const program = `SET checkpoint.interval = 'off';
SET checkpoint.retained = '1';
CREATE STREAM events (k TEXT, v BIGINT) PARTITION BY (k);
CREATE MATERIALIZED VIEW sums AS SELECT k, sum(v) AS total, count(*) AS n FROM events GROUP BY k;
CREATE MATERIALIZED VIEW sizes AS SELECT n, count(*) AS keys FROM sums GROUP BY n;`

// The script's size: enough appends between checkpoints for folding and snapshots to happen, few enough to run it once
// per operation.
const (
	shards     = 2
	batches    = 18
	batchRows  = 5
	checkEvery = 3
)

// callTimeout bounds a call: after a crash, calls end with the node.
const callTimeout = 20 * time.Second

// server is a node that runs.
type server struct {
	node  *node.Node
	clock *clock
	conn  *grpc.ClientConn
	stop  context.CancelFunc
	done  chan error
}

// clock is the node's clock over all of a life. It is set on at each checkpoint, so that the cut before is superseded for long enough
// to be let go: a life of half a second would fold nothing into the stores otherwise.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) pass() { c.ahead.Add(int64(meta.KeepSuperseded + time.Second)) }

func open(fs vfs.FS, c *clock) (*server, error) {
	ctx, cancel := context.WithCancel(context.Background())
	n, err := node.Open(ctx, node.Config{
		DataDir: "/data", FS: fs, Shards: shards, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
		Clock: c.now, Logger: slog.New(slog.DiscardHandler),
		Tuning: node.Tuning{
			Merge:         worker.MergePolicy{Bytes: 1, Layers: 1, Age: time.Millisecond, Every: 2 * time.Millisecond},
			SnapshotBytes: 600, TrailingBytes: 1, SegmentBytes: 32 << 10,
		},
	})
	if err != nil {
		cancel()
		return nil, err
	}
	s := &server{node: n, clock: c, stop: cancel, done: make(chan error, 1)}
	go func() { s.done <- n.Run(ctx) }()
	if s.conn, err = grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *server) close() error {
	var err error
	if s.conn != nil {
		err = s.conn.Close()
	}
	s.stop()
	return errors.Join(err, <-s.done, s.node.Close())
}

// history is what the outside world knows: what it sent, and what was answered.
type history struct {
	sent      int    // batches handed to the node, the last one perhaps without an answer
	acked     int    // batches that were acknowledged
	committed uint64 // the newest checkpoint whose commit was answered
	deployed  bool   // the deployment was answered
}

// rowOf returns row r of batch i, as the model and the stream have it. The first of each batch has a key that no other has, and so
// changes in one delta alone.
func rowOf(i, r int) (k string, v int) {
	if r == 0 {
		return fmt.Sprintf("once%d", i), i * 100
	}
	return fmt.Sprintf("k%d", (i*7+r*3)%11), i*100 + r
}

func batchJSON(i int) []byte {
	var b strings.Builder
	for r := range batchRows {
		k, v := rowOf(i, r)
		fmt.Fprintf(&b, "{\"k\":%q,\"v\":%d}\n", k, v)
	}
	return []byte(b.String())
}

func (s *server) deploy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := weirv1.NewPipelineServiceClient(s.conn).DeployPipeline(ctx, &weirv1.DeployPipelineRequest{Pipeline: "p", Sql: program})
	return err
}

func (s *server) append(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := weirv1.NewIngestServiceClient(s.conn).Append(ctx, &weirv1.AppendRequest{
		Stream: "events", JsonRows: batchJSON(i), IdempotencyKey: fmt.Sprintf("batch-%d", i)})
	return err
}

func (s *server) checkpoint(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	s.clock.pass()
	r, err := weirv1.NewPipelineServiceClient(s.conn).TriggerCheckpoint(ctx, &weirv1.TriggerCheckpointRequest{Pipeline: "p", Wait: true})
	return r.GetCheckpoint().GetId(), err
}

// digests returns what the node holds of each shard at the newest cut, by a look at every row.
func (s *server) digests(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := weirv1.NewClusterServiceClient(s.conn).VerifyCluster(ctx, &weirv1.VerifyClusterRequest{})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, v := range r.Verified {
		c := v.Replicas[0]
		if c.Reason != "" {
			return nil, fmt.Errorf("shard %d at cut %d: %s: %s", v.Shard, v.Checkpoint, c.Reason, c.Problem)
		}
		out = append(out, fmt.Sprintf("shard %d, cut %d: %016x over %d keys", v.Shard, v.Checkpoint, c.Digest, c.Keys))
	}
	return out, nil
}

// live runs the script until it ends or something fails, which is what a crash looks like from outside.
func live(ctx context.Context, fs vfs.FS, c *clock) (h history, err error) {
	var s *server
	defer func() {
		if s != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s, err = open(fs, c); err != nil {
		return h, err
	}
	if err := s.deploy(ctx); err != nil {
		return h, err
	}
	h.deployed = true
	for i := range batches {
		h.sent = i + 1
		if err := s.append(ctx, i); err != nil {
			return h, err
		}
		h.acked = i + 1
		if i%checkEvery == checkEvery-1 {
			id, err := s.checkpoint(ctx)
			if err != nil {
				return h, err
			}
			h.committed = id
		}
		if i == batches/2 {
			err := s.close()
			if s = nil; err != nil {
				return h, err
			}
			if s, err = open(fs, c); err != nil {
				return h, err
			}
		}
	}
	return h, nil
}

// row is a row of the stream as it was read back.
type row struct {
	K string `json:"k"`
	V int    `json:"v"`
}

// stream reads the whole stream, per shard in order.
func (s *server) stream(ctx context.Context) (map[uint32][]row, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rd, err := weirv1.NewIngestServiceClient(s.conn).ReadStream(ctx, &weirv1.ReadStreamRequest{Stream: "events", From: "earliest"})
	if err != nil {
		return nil, err
	}
	out := make(map[uint32][]row)
	for {
		m, err := rd.Recv()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		for _, r := range m.Rows {
			var x row
			if err := json.Unmarshal(r.Row, &x); err != nil {
				return nil, err
			}
			if int(r.Offset) != len(out[r.Shard]) {
				return nil, fmt.Errorf("shard %d: offset %d follows %d rows", r.Shard, r.Offset, len(out[r.Shard]))
			}
			out[r.Shard] = append(out[r.Shard], x)
		}
	}
}

// table returns the committed rows of a table as printed, sorted, with the cut that they come from.
func (s *server) table(ctx context.Context, name string) ([]string, *weirv1.Cut, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := weirv1.NewQueryServiceClient(s.conn).Scan(ctx, &weirv1.ScanRequest{Pipeline: "p", Table: name, MaxWait: durationpb.New(callTimeout)})
	if err != nil {
		return nil, nil, err
	}
	out := make([]string, 0, len(r.Rows))
	for _, x := range r.Rows {
		out = append(out, string(x))
	}
	sort.Strings(out)
	return out, r.Cut, nil
}

// model folds the rows below the positions.
func model(rows map[uint32][]row, cut *weirv1.Cut) (sums, sizes []string) {
	total, n := make(map[string]int), make(map[string]int)
	for _, p := range cut.Positions {
		for _, r := range rows[p.Shard][:p.Offset] {
			total[r.K] += r.V
			n[r.K]++
		}
	}
	groups := make(map[int]int)
	for k := range maps.Keys(total) {
		sums = append(sums, fmt.Sprintf(`{"k":%q,"total":%d,"n":%d}`, k, total[k], n[k]))
		groups[n[k]]++
	}
	for size, keys := range groups {
		sizes = append(sizes, fmt.Sprintf(`{"n":%d,"keys":%d}`, size, keys))
	}
	sort.Strings(sums)
	sort.Strings(sizes)
	return sums, sizes
}
