package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// readBodyFields are the fields of every read, in a body.
type readBodyFields struct {
	Isolation    string      `json:"isolation"`
	MinToken     string      `json:"min_token"`
	SessionToken string      `json:"session_token"`
	MaxWait      string      `json:"max_wait"`
	MaxStaleness string      `json:"max_staleness"`
	CheckpointID json.Number `json:"checkpoint_id"`
	Numbers      string      `json:"numbers"`
}

// decodeRead reads a body strictly into v, whose part f holds the fields of every read.
func decodeRead(r *http.Request, v any, f *readBodyFields) (readParams, error) {
	if p := newParams(r); p.err != nil {
		return readParams{}, p.err
	} else if len(p.values) > 0 {
		return readParams{}, bad("", "parameters of this request belong in its body")
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return readParams{}, bad("", "the body could not be read whole")
	}
	if !utf8.Valid(body) { // encoding/json would put U+FFFD in its place
		return readParams{}, bad("", "the body is not UTF-8")
	}
	if err := refuseSurrogates(body); err != nil {
		return readParams{}, bad("", "%v", err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return readParams{}, bad("", "the body is not the JSON of this request: %s", describeJSON(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return readParams{}, bad("", "the body has more than one JSON value")
	}
	rp := readParams{minToken: f.MinToken, sessionToken: f.SessionToken}
	if rp.isolation, err = parseIsolation(f.Isolation); err != nil {
		return rp, err
	}
	if rp.numbers, err = parseNumbers(f.Numbers); err != nil {
		return rp, err
	}
	if rp.maxWait, err = parseTime("max_wait", f.MaxWait); err != nil {
		return rp, err
	}
	if rp.maxStaleness, err = parseTime("max_staleness", f.MaxStaleness); err != nil {
		return rp, err
	}
	if f.CheckpointID != "" {
		id, err := strconv.ParseUint(f.CheckpointID.String(), 10, 64)
		if err != nil {
			return rp, bad("checkpoint_id", "checkpoint_id: %.60q is not a whole number", f.CheckpointID)
		}
		rp.checkpoint = &id
	}
	return rp, nil
}

// describeJSON shortens encoding/json's messages to what concerns a caller.
func describeJSON(err error) string {
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ):
		return "field " + strconv.Quote(typ.Field) + " cannot be a " + typ.Value
	case errors.Is(err, io.EOF):
		return "it is empty"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it ends too soon"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// queryBody is the body of POST /v1/query.
type queryBody struct {
	readBodyFields
	SQL       string `json:"sql"`
	Limit     int32  `json:"limit"`
	PageToken string `json:"page_token"`
	Explain   bool   `json:"explain"`
}

// query answers POST /v1/query.
func (g *Gateway) query(w http.ResponseWriter, r *http.Request, _ map[string]string) {
	var b queryBody
	rp, err := decodeRead(r, &b, &b.readBodyFields)
	if err != nil {
		writeError(w, err, 0)
		return
	}
	m, err := g.queries.Query(r.Context(), &weirv1.QueryRequest{
		Sql: b.SQL, Limit: b.Limit, PageToken: b.PageToken, Isolation: rp.isolation, MinToken: rp.minToken,
		SessionToken: rp.sessionToken, MaxWait: rp.maxWait, CheckpointId: rp.checkpoint, Numbers: rp.numbers,
		MaxStaleness: rp.maxStaleness, Explain: b.Explain,
	})
	if err != nil {
		writeError(w, err, 0)
		return
	}
	body := []byte(`{"columns":[`)
	for i, c := range m.GetColumns() {
		if i > 0 {
			body = append(body, ',')
		}
		body = wire.AppendJSON(body, c)
	}
	body = appendRows(append(body, `],"rows":`...), m.GetRows())
	body = wire.AppendStringJSON(append(body, `,"next_page_token":`...), m.GetNextPageToken())
	if x := m.GetExplanation(); x != nil {
		body = wire.AppendJSON(append(body, `,"explanation":`...), x)
	}
	writeAnswer(w, body, m.GetCut())
}
