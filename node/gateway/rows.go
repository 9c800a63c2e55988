package gateway

import (
	"encoding/json"
	"net/http"

	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// literal is a value as a person writes it: the server parses it as the column's type.
func literal(s string) *weirv1.Value {
	return &weirv1.Value{Kind: &weirv1.Value_Literal{Literal: s}}
}

func literals(texts []string) *weirv1.Key {
	k := &weirv1.Key{Values: make([]*weirv1.Value, len(texts))}
	for i, t := range texts {
		k.Values[i] = literal(t)
	}
	return k
}

// getByPath answers GET …/rows/{key}, for keys of one column.
func (g *Gateway) getByPath(w http.ResponseWriter, r *http.Request, path map[string]string) {
	p := newParams(r)
	g.getRow(w, r, path, p, literals([]string{path["key"]}))
}

// get answers GET …/rows:get?key=…&key=…, one per key column; none for a table of one row.
func (g *Gateway) get(w http.ResponseWriter, r *http.Request, path map[string]string) {
	p := newParams(r, "key")
	g.getRow(w, r, path, p, literals(p.values["key"]))
}

func (g *Gateway) getRow(w http.ResponseWriter, r *http.Request, path map[string]string, p *params, key *weirv1.Key) {
	rp := p.read()
	if p.err != nil {
		writeError(w, p.err, 0)
		return
	}
	m, err := g.queries.Get(r.Context(), &weirv1.GetRequest{
		Pipeline: path["pipeline"], Table: path["table"], Key: key, Isolation: rp.isolation, MinToken: rp.minToken,
		SessionToken: rp.sessionToken, MaxWait: rp.maxWait, CheckpointId: rp.checkpoint, Numbers: rp.numbers,
		MaxStaleness: rp.maxStaleness,
	})
	if err != nil {
		writeError(w, err, 0)
		return
	}
	body := append([]byte(`{"row":`), m.GetRow()...)
	writeAnswer(w, body, m.GetCut())
}

// scan answers GET …/rows.
func (g *Gateway) scan(w http.ResponseWriter, r *http.Request, path map[string]string) {
	p := newParams(r, "key", "prefix", "from", "to", "limit", "at_most", "page_token")
	rp := p.read()
	req := &weirv1.ScanRequest{
		Pipeline: path["pipeline"], Table: path["table"], Equal: literals(p.values["key"]), Prefix: p.text("prefix"),
		Limit: p.int32("limit"), AtMost: p.int64("at_most"), PageToken: p.text("page_token"), Isolation: rp.isolation, MinToken: rp.minToken,
		SessionToken: rp.sessionToken, MaxWait: rp.maxWait, CheckpointId: rp.checkpoint, Numbers: rp.numbers,
		MaxStaleness: rp.maxStaleness,
	}
	if p.has("from") {
		req.From = literal(p.given("from")) // an empty bound bounds nothing: whoever sends one has lost a value
	}
	if p.has("to") {
		req.To = literal(p.given("to"))
	}
	if p.err != nil {
		writeError(w, p.err, 0)
		return
	}
	m, err := g.queries.Scan(r.Context(), req)
	if err != nil {
		writeError(w, err, 0)
		return
	}
	body := appendRows([]byte(`{"rows":`), m.GetRows())
	body = wire.AppendStringJSON(append(body, `,"next_page_token":`...), m.GetNextPageToken())
	writeAnswer(w, body, m.GetCut())
}

// batchGetBody is the body of POST …/rows:batchGet. A key is an array with a value per key column.
type batchGetBody struct {
	readBodyFields
	Keys [][]any `json:"keys"`
}

// batchGet answers POST …/rows:batchGet.
func (g *Gateway) batchGet(w http.ResponseWriter, r *http.Request, path map[string]string) {
	var b batchGetBody
	rp, err := decodeRead(r, &b, &b.readBodyFields)
	if err != nil {
		writeError(w, err, 0)
		return
	}
	req := &weirv1.BatchGetRequest{
		Pipeline: path["pipeline"], Table: path["table"], Isolation: rp.isolation, MinToken: rp.minToken,
		SessionToken: rp.sessionToken, MaxWait: rp.maxWait, CheckpointId: rp.checkpoint, Numbers: rp.numbers,
		MaxStaleness: rp.maxStaleness,
	}
	for i, parts := range b.Keys {
		k := &weirv1.Key{Values: make([]*weirv1.Value, len(parts))}
		for j, part := range parts {
			v, ok := keyPart(part)
			if !ok {
				writeError(w, bad("keys", "keys[%d][%d] is an object or array; parts of a key are strings, numbers, booleans or null", i, j), 0)
				return
			}
			k.Values[j] = v
		}
		req.Keys = append(req.Keys, k)
	}
	m, err := g.queries.BatchGet(r.Context(), req)
	if err != nil {
		writeError(w, err, 0)
		return
	}
	writeAnswer(w, appendRows([]byte(`{"rows":`), m.GetRows()), m.GetCut())
}

// keyPart turns a JSON value into a key part: a string is read as the column's type is written in JSON, a number is exact.
func keyPart(v any) (*weirv1.Value, bool) {
	switch v := v.(type) {
	case nil:
		return &weirv1.Value{}, true
	case string:
		return &weirv1.Value{Kind: &weirv1.Value_Text{Text: v}}, true
	case json.Number:
		return &weirv1.Value{Kind: &weirv1.Value_Numeric{Numeric: v.String()}}, true
	case bool:
		return &weirv1.Value{Kind: &weirv1.Value_Boolean{Boolean: v}}, true
	}
	return nil, false
}

// appendRows appends a JSON array; an absent row is null.
func appendRows(dst []byte, rows [][]byte) []byte {
	dst = append(dst, '[')
	for i, row := range rows {
		if i > 0 {
			dst = append(dst, ',')
		}
		if len(row) == 0 {
			row = []byte("null")
		}
		dst = append(dst, row...)
	}
	return append(dst, ']')
}

// writeAnswer ends an object with its cut and sends it.
func writeAnswer(w http.ResponseWriter, body []byte, cut *weirv1.Cut) {
	body = append(body, `,"cut":`...)
	body = append(wire.AppendCutJSON(body, cut), '}', '\n')
	cutHeaders(w.Header(), cut)
	w.Header().Set("Content-Type", "application/json")
	send(w, body)
}
