package wire

import (
	"strconv"

	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// The operations of a watch's lines.
const (
	WatchUpsert     = "upsert"      // the row is new or has another value
	WatchDelete     = "delete"      // the row is gone
	WatchCut        = "cut"         // all changes up to the cut have been said
	WatchLive       = "live"        // the live changes before it are as of this moment
	WatchRolledBack = "rolled_back" // an incarnation has ended with what it had not committed
)

// WatchLines calls fn for each line that a message of a watch is in plain JSON, as server-sent events and the command line
// have it: {"op":…,…}. token is that of the cut that a WatchCut reaches, else "". The line is fn's until the next call.
//
// An error of fn ends it and is returned.
func WatchLines(m *weirv1.WatchResponse, fn func(op, token string, line []byte) error) error {
	var buf []byte
	if m.GetRolledBack() {
		if err := fn(WatchRolledBack, "", appendWatchCut(buf, WatchRolledBack, false, m.GetCut())); err != nil {
			return err
		}
	}
	for _, c := range m.GetChanges() {
		op := WatchUpsert
		if c.GetDeleted() {
			op = WatchDelete
		}
		buf = append(append(buf[:0], `{"op":"`...), op...)
		buf = append(append(buf, `","key":`...), c.GetKey()...)
		if !c.GetDeleted() {
			buf = append(append(buf, `,"row":`...), c.GetRow()...)
		}
		if id := c.GetCheckpointId(); id > 0 {
			buf = strconv.AppendUint(append(buf, `,"checkpoint_id":`...), id, 10)
		}
		if m.GetSnapshot() {
			buf = append(buf, `,"snapshot":true`...)
		}
		buf = append(buf, '}')
		if err := fn(op, "", buf); err != nil {
			return err
		}
	}
	switch {
	case m.GetEndOfCut() && m.GetCut().GetSpeculative():
		return fn(WatchCut, "", appendWatchCut(buf[:0], WatchCut, m.GetSnapshot(), m.GetCut()))
	case m.GetEndOfCut():
		return fn(WatchCut, m.GetCut().GetToken(), appendWatchCut(buf[:0], WatchCut, m.GetSnapshot(), m.GetCut()))
	case m.GetCut() != nil && !m.GetRolledBack():
		return fn(WatchLive, "", appendWatchCut(buf[:0], WatchLive, false, m.GetCut()))
	}
	return nil
}

func appendWatchCut(dst []byte, op string, snapshot bool, cut *weirv1.Cut) []byte {
	dst = append(append(append(dst, `{"op":"`...), op...), '"')
	if snapshot {
		dst = append(dst, `,"snapshot":true`...)
	}
	return append(AppendCutJSON(append(dst, `,"cut":`...), cut), '}')
}
