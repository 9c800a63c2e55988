package node

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/dataflow/state"
	"github.com/weirdb/weir/node/leader"
	"github.com/weirdb/weir/node/worker"
	"github.com/weirdb/weir/raftlog/meta"
	"github.com/weirdb/weir/statequery"
)

// metrics are the figures that do not belong to one call of the API. Their names are an interface: they do not change
// between releases without a line in the changelog.
type metrics struct {
	committed *prometheus.HistogramVec
	failed    *prometheus.CounterVec
	begun     *prometheus.CounterVec
}

var _ leader.Metrics = (*metrics)(nil)

func newRegistry() (*prometheus.Registry, *metrics) {
	m := &metrics{
		committed: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_checkpoint_duration_seconds", Help: "Time from a checkpoint's trigger to its commit.",
			Buckets: []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 60},
		}, []string{"pipeline"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_checkpoint_failures_total", Help: "Checkpoint attempts that were given up or refused.",
		}, []string{"pipeline"}),
		begun: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_pipeline_incarnations_total", Help: "Runs of a pipeline that were begun, recoveries included.",
		}, []string{"pipeline"}),
	}
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), m.committed, m.failed, m.begun)
	return r, m
}

// CheckpointCommitted counts a committed checkpoint.
func (m *metrics) CheckpointCommitted(pipeline string, took time.Duration) {
	m.committed.WithLabelValues(pipeline).Observe(took.Seconds())
}

// CheckpointFailed counts an attempt that came to nothing.
func (m *metrics) CheckpointFailed(pipeline, _ string) { m.failed.WithLabelValues(pipeline).Inc() }

// IncarnationBegun counts a start of the tasks.
func (m *metrics) IncarnationBegun(pipeline string) { m.begun.WithLabelValues(pipeline).Inc() }

// gauges reads figures of pipelines, streams and shards when they are asked for.
type gauges struct {
	meta   *meta.Log
	worker *worker.Worker
	shards []*worker.Shard
	disk   *diskSpace
	memory *state.Budget
	reads  *statequery.Engine
	now    func() time.Time

	cut, cutTime, behind, state, skipped     *prometheus.Desc
	streamRows, streamBytes                  *prometheus.Desc
	raftTerm, raftApplied, raftLeader        *prometheus.Desc
	stateLayers, stateLayerBytes, stateBytes *prometheus.Desc
	liveKeys, liveBytes                      *prometheus.Desc
	memoryUsed, memoryLimit                  *prometheus.Desc
	evicted, lookedUp, partials              *prometheus.Desc
	memoryLayers                             *prometheus.Desc
	diskFree                                 *prometheus.Desc
	watches, watchBytes, watchesLagged       *prometheus.Desc
}

func newGauges(m *meta.Log, w *worker.Worker, shards []*worker.Shard, disk *diskSpace, memory *state.Budget, reads *statequery.Engine, now func() time.Time) *gauges {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &gauges{
		meta: m, worker: w, shards: shards, disk: disk, memory: memory, reads: reads, now: now,
		cut:             d("weir_checkpoint_last_committed_id", "Newest committed cut.", "pipeline"),
		cutTime:         d("weir_checkpoint_last_committed_timestamp_seconds", "When the newest cut was committed.", "pipeline"),
		behind:          d("weir_pipeline_behind_rows", "Acknowledged rows that the newest cut does not cover.", "pipeline"),
		state:           d("weir_pipeline_state_info", "The pipeline's state: 1 for the state it is in.", "pipeline", "state"),
		skipped:         d("weir_pipeline_skipped_rows", "Rows left out of the newest cut because an expression failed.", "pipeline"),
		streamRows:      d("weir_stream_rows", "Retained rows.", "stream"),
		streamBytes:     d("weir_stream_bytes", "Bytes of retained rows.", "stream"),
		raftTerm:        d("weir_raft_term", "Term of the shard's log.", "shard"),
		raftApplied:     d("weir_raft_applied_index", "Newest entry of the shard's log that is applied.", "shard"),
		raftLeader:      d("weir_raft_leader", "1 when this node leads the shard's log.", "shard"),
		stateLayers:     d("weir_state_layers", "Committed layers that are not folded into the store.", "shard"),
		stateLayerBytes: d("weir_state_layer_bytes", "Bytes of committed layers that are not folded.", "shard"),
		stateBytes:      d("weir_state_disk_bytes", "Bytes of the shard's state store on disk.", "shard"),
		liveKeys:        d("weir_live_keys", "Keys in the live tables.", "pipeline"),
		memoryUsed:      d("weir_memory_tables_bytes", "Memory of all live tables."),
		memoryLimit:     d("weir_memory_tables_limit_bytes", "What the live tables may take, less what layers take of it (--memory)."),
		memoryLayers:    d("weir_memory_layers_bytes", "Memory of all committed layers; half of --memory counts for them at most."),
		evicted:         d("weir_memory_evicted_keys_total", "Keys that live tables gave up for want of memory."),
		lookedUp:        d("weir_memory_looked_up_keys_total", "Keys that tasks looked up in the newest cut, because the live tables did not hold them."),
		partials:        d("weir_memory_partial_keys_total", "Keys that live tables did not hold and began as partial values, put together at the checkpoint."),
		diskFree:        d("weir_disk_free_bytes", "Free bytes of the data directory's disk, absent when the file system does not tell."),
		watches:         d("weir_watches", "Watches that are open."),
		watchBytes:      d("weir_watch_bytes", "Memory of what is kept for watches (--watch-memory), about."),
		watchesLagged:   d("weir_watches_lagged_total", "Watches that were cut off because they took their changes too slowly (WATCH_LAGGED)."),
		liveBytes:       d("weir_live_bytes", "Memory of the live tables.", "pipeline"),
	}
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(g, ch) }

// Collect implements prometheus.Collector.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if free, known := g.disk.Free(); known {
		put(g.diskFree, float64(free))
	}
	if limit := g.memory.Limit(); limit > 0 {
		put(g.memoryUsed, float64(g.memory.Used()))
		put(g.memoryLimit, float64(limit))
		put(g.memoryLayers, float64(g.memory.Layers()))
		ch <- prometheus.MustNewConstMetric(g.evicted, prometheus.CounterValue, float64(g.memory.Evicted()))
		ch <- prometheus.MustNewConstMetric(g.lookedUp, prometheus.CounterValue, float64(g.memory.LookedUp()))
		ch <- prometheus.MustNewConstMetric(g.partials, prometheus.CounterValue, float64(g.memory.Partials()))
	}
	watches := g.reads.WatchStats()
	put(g.watches, float64(watches.Open))
	put(g.watchBytes, float64(watches.Bytes))
	ch <- prometheus.MustNewConstMetric(g.watchesLagged, prometheus.CounterValue, float64(watches.Lagged))
	st := g.meta.State()
	for _, p := range st.PipelineList() {
		c := p.Newest()
		put(g.cut, float64(c.ID), p.Name)
		put(g.cutTime, float64(c.CommittedAt)/1e6, p.Name)
		put(g.state, 1, p.Name, p.State.String())
		put(g.skipped, float64(c.Skipped()), p.Name)
		behind := uint64(0)
		for k, end := range g.worker.Ends(p.Reads) {
			if at := c.Positions[k]; end > at {
				behind += uint64(end - at)
			}
		}
		put(g.behind, float64(behind), p.Name)
		if run := g.worker.Live(p.UID); run != nil {
			keys, bytes := run.Size()
			put(g.liveKeys, float64(keys), p.Name)
			put(g.liveBytes, float64(bytes), p.Name)
		}
	}
	for _, s := range st.StreamList() {
		var rows, bytes float64
		for _, sh := range g.shards {
			start, end, b := sh.Log.Range(s.ID)
			rows += float64(end - start)
			bytes += float64(b)
		}
		put(g.streamRows, rows, s.Name)
		put(g.streamBytes, bytes, s.Name)
	}
	for _, sh := range g.shards {
		g.shard(sh, put)
	}
}

func (g *gauges) shard(sh *worker.Shard, put func(*prometheus.Desc, float64, ...string)) {
	id := shardLabel(sh.ID)
	leads := 0.0
	if sh.Log.IsLeader() {
		leads = 1
	}
	put(g.raftLeader, leads, id)
	put(g.raftTerm, float64(sh.Log.Term()), id)
	put(g.raftApplied, float64(sh.Log.AppliedIndex()), id)
	stats := sh.Replica.Stats()
	var layers, bytes float64
	for _, p := range stats.Pipelines {
		layers += float64(p.Layers)
		bytes += float64(p.LayerBytes)
	}
	put(g.stateLayers, layers, id)
	put(g.stateLayerBytes, bytes, id)
	put(g.stateBytes, float64(stats.DiskBytes), id)
}

func shardLabel(s dataflow.ShardID) string { return strconv.Itoa(int(s)) }
