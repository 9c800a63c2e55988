package gateway

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// readStream answers GET /v1/streams/{stream}/rows with one JSON object per line. The last line of a complete answer is
// {"end":true,…}; one that breaks off after its first byte ends with {"error":…}, because its status is sent already.
func (g *Gateway) readStream(w http.ResponseWriter, r *http.Request, path map[string]string) {
	p := newParams(r, "from", "follow", "limit")
	for _, name := range readNames {
		if p.has(name) && name != "numbers" {
			p.fail(name, "there is no parameter %q here", name)
		}
	}
	req := &weirv1.ReadStreamRequest{Stream: path["stream"], From: p.given("from"), Follow: p.bool("follow"),
		Limit: p.uint64("limit"), Numbers: p.read().numbers}
	if p.err != nil {
		writeError(w, p.err, 0)
		return
	}
	call, err := g.ingest.ReadStream(r.Context(), req)
	if err != nil {
		writeError(w, err, 0)
		return
	}
	rc, started := http.NewResponseController(w), false
	for {
		m, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil && !started {
			writeError(w, err, 0)
			return
		}
		if !started {
			started = true
			w.Header().Set("Content-Type", "application/x-ndjson")
		}
		_ = rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // a reader that never reads must not hold the call
		if _, werr := w.Write(rowLines(m, err)); werr != nil || err != nil {
			return // the request's context ends the call
		}
		if rc.Flush() != nil {
			return
		}
	}
}

// rowLines writes one message, or the error that ended the call, as lines.
func rowLines(m *weirv1.ReadStreamResponse, err error) []byte {
	var b []byte
	if err != nil {
		b = append(b, `{"error":`...)
		return append(append(b, statusJSON(err)...), '}', '\n')
	}
	for _, row := range m.GetRows() {
		b = strconv.AppendUint(append(b, `{"shard":`...), uint64(row.GetShard()), 10)
		b = strconv.AppendUint(append(b, `,"offset":`...), row.GetOffset(), 10)
		if t := row.GetAppendTime(); t != nil {
			b = wire.AppendTimestampJSON(append(b, `,"append_time":`...), t.AsTime().UnixMicro())
		}
		b = append(append(b, `,"row":`...), row.GetRow()...)
		b = append(b, '}', '\n')
	}
	if m.GetEnd() {
		end := wire.AppendJSON(nil, &weirv1.ReadStreamResponse{End: true, Positions: m.GetPositions()})
		b = append(append(b, end...), '\n')
	}
	return b
}
