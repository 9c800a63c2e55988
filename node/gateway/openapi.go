package gateway

import (
	_ "embed" // the description that make proto generates
	"encoding/json"
	"fmt"
	"strings"
)

//go:embed weir.swagger.json
var generated []byte

// object is a JSON object of the description.
type object = map[string]any

// describe completes the generated description of the API where HTTP's form is not protobuf's.
func describe() ([]byte, error) {
	var doc object
	if err := json.Unmarshal(generated, &doc); err != nil {
		return nil, fmt.Errorf("read the generated description: %w", err)
	}
	plainNumbers(doc)
	doc["info"] = object{"title": "Weir", "version": "v1",
		"description": "A queryable-state stream database. Errors are google.rpc.Status with ErrorInfo; see docs/errors.md for the reasons."}
	definitions, ok := doc["definitions"].(object)
	if !ok {
		return nil, fmt.Errorf("the generated description has no definitions")
	}
	row := object{"type": "object", "description": "One member per column."}
	rows := object{"type": "array", "items": row}
	positions := object{"type": "object", "description": "Per stream, the next offset of shard 0, 1, …",
		"additionalProperties": object{"type": "array", "items": object{"type": "integer", "format": "int64"}}}
	for _, patch := range []struct {
		message, field string
		schema         object
	}{
		{"GetResponse", "row", row}, {"BatchGetResponse", "rows", rows}, {"ScanResponse", "rows", rows}, {"QueryResponse", "rows", rows},
		{"StreamRow", "row", row}, {"Cut", "positions", positions}, {"Checkpoint", "positions", positions},
		{"ReadStreamResponse", "positions", positions},
	} {
		if err := setProperty(definitions, patch.message, patch.field, patch.schema); err != nil {
			return nil, err
		}
	}
	paths, ok := doc["paths"].(object)
	if !ok {
		return nil, fmt.Errorf("the generated description has no paths")
	}
	if err := describeRows(paths); err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}

// plainNumbers says integer where protobuf's JSON would have a string of digits.
func plainNumbers(v any) {
	switch v := v.(type) {
	case object:
		if f, _ := v["format"].(string); v["type"] == "string" && (f == "int64" || f == "uint64") {
			v["type"] = "integer"
		}
		for _, x := range v {
			plainNumbers(x)
		}
	case []any:
		for _, x := range v {
			plainNumbers(x)
		}
	}
}

func setProperty(definitions object, message, field string, schema object) error {
	m, _ := definitions[message].(object)
	props, _ := m["properties"].(object)
	if props == nil || props[field] == nil {
		return fmt.Errorf("the generated description has no %s.%s", message, field)
	}
	props[field] = schema
	return nil
}

// describeRows replaces the operations whose requests are written by hand.
func describeRows(paths object) error {
	const table = "/v1/pipelines/{pipeline}/tables/{table}/rows"
	read := []any{
		param("isolation", "string", "READ_COMMITTED (default) or READ_UNCOMMITTED."),
		param("min_token", "string", "Wait for state that covers this token of an append."),
		param("session_token", "string", "Never answer from an older cut than this one's."),
		param("max_wait", "string", "How long to wait, for example 5s."),
		param("max_staleness", "string", "Never answer without rows that were acknowledged longer ago than this, for example 5s."),
		param("checkpoint_id", "integer", "Read this retained cut."),
		param("numbers", "string", "json (default) or string: how BIGINT and NUMERIC are written."),
	}
	keys := object{"name": "key", "in": "query", "type": "array", "items": object{"type": "string"}, "collectionFormat": "multi",
		"description": "Repeated, one per key column in order."}
	get, err := operation(paths, table+":get", "get")
	if err != nil {
		return err
	}
	get["parameters"] = append(pathParams("pipeline", "table"), append([]any{keys}, read...)...)
	byPath := make(object)
	for k, v := range get {
		byPath[k] = v
	}
	byPath["operationId"] = "QueryService_GetByKey"
	byPath["summary"] = "Reads one row of a table with a key of one column. The segment is percent-decoded once."
	byPath["parameters"] = append(pathParams("pipeline", "table", "key"), read...)
	paths[table+"/{key}"] = object{"get": byPath}

	scan, err := operation(paths, table, "get")
	if err != nil {
		return err
	}
	scan["parameters"] = append(append(pathParams("pipeline", "table"), keys,
		param("prefix", "string", "The next key column, a TEXT, starts with this."),
		param("from", "string", "The next key column is at least this."),
		param("to", "string", "The next key column is less than this."),
		param("limit", "integer", "Rows per page; default 1000, at most 10000."),
		param("at_most", "integer", "Rows still wanted, on this page and all that would follow; the page that reaches it is the last."),
		param("page_token", "string", "next_page_token of the page before.")), read...)

	batch, err := operation(paths, table+":batchGet", "post")
	if err != nil {
		return err
	}
	batch["parameters"] = append(pathParams("pipeline", "table"), body(object{"type": "object", "properties": object{
		"keys":      object{"type": "array", "items": object{"type": "array", "items": object{}}, "description": `For example [["NZ","2026-11-29"],[null,7]].`},
		"isolation": object{"type": "string"}, "min_token": object{"type": "string"}, "session_token": object{"type": "string"},
		"max_wait": object{"type": "string"}, "max_staleness": object{"type": "string"}, "checkpoint_id": object{"type": "integer"}, "numbers": object{"type": "string"},
	}}))
	watch, err := operation(paths, "/v1/pipelines/{pipeline}/tables/{table}:watch", "get")
	if err != nil {
		return err
	}
	watch["produces"] = []any{"text/event-stream"}
	watch["description"] = `Server-sent events: upsert, delete, and cut when all changes of a cut have been sent, whose id resumes after it; live and rolled_back of an uncommitted watch; failed when the watch ends by itself. The data is {"op":…,…}; see docs/watch.md.`
	watch["responses"] = object{"200": object{"description": "Events, until the client ends the watch.", "schema": object{"type": "string"}}}
	watch["parameters"] = append(pathParams("pipeline", "table"), keys,
		param("prefix", "string", "The next key column, a TEXT, starts with this."),
		param("from", "string", "The next key column is at least this."),
		param("to", "string", "The next key column is less than this."),
		param("changes_only", "boolean", "No snapshot: what changes from now on."),
		param("resume_token", "string", "Token of the last cut: go on exactly after it."),
		object{"name": "Last-Event-ID", "in": "header", "type": "string", "description": "As resume_token, which it overrules; browsers send it when they connect again."},
		read[0], read[1], read[2], read[3], read[4], read[len(read)-1])
	for _, path := range []string{"/v1/streams/{stream}:append", "/v1/streams/{stream}/rows"} {
		op, err := operation(paths, path, "post")
		if err != nil {
			return err
		}
		op["consumes"] = []any{"application/json", "application/x-ndjson", "application/ndjson", "application/jsonl"}
		op["parameters"] = append(pathParams("stream"),
			object{"name": "Idempotency-Key", "in": "header", "type": "string", "description": "Makes the append retryable."},
			param("previous_token", "string", "The new token covers this one too."),
			body(object{"description": "One row, an array of rows, or one row per line.", "type": "object"}))
	}
	read1, err := operation(paths, "/v1/streams/{stream}/rows", "get")
	if err != nil {
		return err
	}
	read1["produces"] = []any{"application/x-ndjson"}
	read1["description"] = `One row with shard, offset and append time per line; the last line is {"end":true,…}, or {"error":…} when the answer broke off.`
	return nil
}

func operation(paths object, path, method string) (object, error) {
	item, _ := paths[path].(object)
	op, _ := item[method].(object)
	if op == nil {
		return nil, fmt.Errorf("the generated description has no %s %s", strings.ToUpper(method), path)
	}
	return op, nil
}

func param(name, typ, description string) object {
	return object{"name": name, "in": "query", "type": typ, "description": description}
}

func pathParams(names ...string) []any {
	out := make([]any, 0, len(names)+8)
	for _, n := range names {
		out = append(out, object{"name": n, "in": "path", "required": true, "type": "string"})
	}
	return out
}

func body(schema object) object {
	return object{"name": "body", "in": "body", "required": true, "schema": schema}
}
