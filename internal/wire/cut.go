package wire

import (
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// AppendCutJSON appends a cut in the plain form that HTTP and the command line show: numbers as numbers, times as RFC
// 3339, positions as {"stream":[offset of shard 0, of shard 1, …]}. Fields that are unset (watermark, times of cut 0)
// are left out; the others are always there, in a fixed order.
func AppendCutJSON(dst []byte, c *weirv1.Cut) []byte {
	if c == nil {
		return append(dst, "null"...)
	}
	w := objectWriter{dst: append(dst, '{')}
	w.string("pipeline", c.GetPipeline())
	w.uint("pipeline_uid", c.GetPipelineUid())
	w.uint("timeline", c.GetTimeline())
	w.uint("checkpoint_id", c.GetCheckpointId())
	w.uint("incarnation", c.GetIncarnation())
	w.string("guarantee", enumText(c.GetGuarantee().String(), "GUARANTEE_"))
	w.time("triggered_at", c.GetTriggeredAt())
	w.time("committed_at", c.GetCommittedAt())
	w.int("age_ms", c.GetAgeMs())
	w.name("positions")
	w.dst = appendPositionsJSON(w.dst, c.GetPositions())
	w.time("watermark", c.GetWatermark())
	w.uint("behind_rows", c.GetBehindRows())
	w.int("behind_ms", c.GetBehindMs())
	w.bool("speculative", c.GetSpeculative())
	w.bool("catching_up", c.GetCatchingUp())
	w.string("node", c.GetNode())
	w.string("role", c.GetRole())
	w.string("pipeline_state", strings.TrimPrefix(c.GetPipelineState().String(), "PIPELINE_STATE_"))
	w.uint("skipped_rows", c.GetSkippedRows())
	w.string("token", c.GetToken())
	return append(w.dst, '}')
}

// enumText writes GUARANTEE_EXACTLY_ONCE as exactly_once.
func enumText(s, prefix string) string { return strings.ToLower(strings.TrimPrefix(s, prefix)) }

// appendPositionsJSON writes offsets by stream and shard; a shard without a position stands at 0.
func appendPositionsJSON(dst []byte, ps []*weirv1.Position) []byte {
	byStream := make(map[string][]uint64)
	for _, p := range ps {
		if p.GetShard() >= dataflow.MaxShards { // no group has so many: a list of them is not worth the memory
			continue
		}
		l := byStream[p.GetStream()]
		for len(l) <= int(p.GetShard()) {
			l = append(l, 0)
		}
		l[p.GetShard()] = p.GetOffset()
		byStream[p.GetStream()] = l
	}
	names := make([]string, 0, len(byStream))
	for n := range byStream {
		names = append(names, n)
	}
	slices.Sort(names)
	dst = append(dst, '{')
	for i, n := range names {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendStringJSON(dst, n), ':', '[')
		for j, o := range byStream[n] {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, o, 10)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// objectWriter appends the members of one JSON object.
type objectWriter struct {
	dst   []byte
	count int
}

func (w *objectWriter) name(n string) {
	if w.count++; w.count > 1 {
		w.dst = append(w.dst, ',')
	}
	w.dst = append(AppendStringJSON(w.dst, n), ':')
}

func (w *objectWriter) string(n, v string) {
	w.name(n)
	w.dst = AppendStringJSON(w.dst, v)
}

func (w *objectWriter) uint(n string, v uint64) {
	w.name(n)
	w.dst = strconv.AppendUint(w.dst, v, 10)
}

func (w *objectWriter) int(n string, v int64) {
	w.name(n)
	w.dst = strconv.AppendInt(w.dst, v, 10)
}

func (w *objectWriter) bool(n string, v bool) {
	w.name(n)
	w.dst = strconv.AppendBool(w.dst, v)
}

func (w *objectWriter) time(n string, t *timestamppb.Timestamp) {
	if t == nil {
		return
	}
	w.name(n)
	w.dst = AppendTimestampJSON(w.dst, t.AsTime().UnixMicro())
}
