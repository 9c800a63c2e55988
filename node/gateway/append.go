package gateway

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// append answers POST /v1/streams/{stream}:append and …/rows: the body is the rows, NDJSON or an object or an array of
// objects. The header Idempotency-Key makes it retryable.
func (g *Gateway) append(w http.ResponseWriter, r *http.Request, path map[string]string) {
	p := newParams(r, "previous_token")
	for _, name := range readNames {
		if p.has(name) {
			p.fail(name, "there is no parameter %q here", name)
		}
	}
	previous := p.text("previous_token")
	if p.err != nil {
		writeError(w, p.err, 0)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		writeError(w, bad("", "the body could not be read whole"), 0)
		return
	}
	if len(bytes.TrimSpace(body)) == 0 {
		writeError(w, noRows(), 0)
		return
	}
	m, err := g.ingest.Append(r.Context(), &weirv1.AppendRequest{
		Stream: path["stream"], JsonRows: body, IdempotencyKey: r.Header.Get("Idempotency-Key"), PreviousToken: previous,
	})
	if err != nil {
		writeError(w, enveloped(err, body), 0)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	send(w, append(wire.AppendJSON(nil, m), '\n'))
}

// bodyIsRows says what the body of an append is.
const bodyIsRows = `send a row as {"column": value}, several as one such object per line, or as a JSON array of them`

func noRows() error {
	return dataflow.Errorf(dataflow.ReasonRequestInvalid, "the body is empty: an append needs at least one row").WithHint(bodyIsRows)
}

// enveloped adds to the refusal of rows that the body is the rows themselves, when it is one object with a list or an object in
// its only member, as other services want it. No column has such a value.
func enveloped(err error, body []byte) error {
	e, _, ours := wire.ErrorOf(status.Convert(err).Proto())
	if !ours || e.Reason != dataflow.ReasonRowInvalid || e.Hint != "" {
		return err
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil || len(members) != 1 {
		return err
	}
	for _, value := range members {
		if value[0] == '[' || value[0] == '{' {
			return e.WithHint("the body is the rows, without an envelope: %s", bodyIsRows)
		}
	}
	return err
}
