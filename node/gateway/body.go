package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// decodeWhole reads the body of a generated route: one JSON object and nothing behind it. An empty body is io.EOF, which
// generated code takes for a request without fields.
func (m *marshaler) decodeWhole(r io.Reader, v any) error {
	body, err := io.ReadAll(r)
	if err != nil {
		return errors.New("the body could not be read whole")
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return io.EOF
	}
	if err := oneValue(body); err != nil {
		return err
	}
	if err := refuseSurrogates(body); err != nil {
		return err
	}
	if err := m.Unmarshal(body, v); err != nil {
		return fmt.Errorf("the body is not the JSON of this request: %s", describeProtoJSON(err))
	}
	return nil
}

// oneValue refuses what is not exactly one JSON value.
func oneValue(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	var v json.RawMessage
	if err := d.Decode(&v); err != nil {
		return fmt.Errorf("the body is not the JSON of this request: %s", describeJSON(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body has more than one JSON value")
	}
	return nil
}

// describeProtoJSON takes the library's mark, whose spaces differ from build to build, from its message.
func describeProtoJSON(err error) string {
	text := strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
	at, what, placed := strings.Cut(text, "): ")
	if value, ok := strings.CutPrefix(what, "invalid google.protobuf.Duration value "); ok {
		what = value + " is not a length of time such as \"10s\""
	}
	if value, ok := strings.CutPrefix(what, "invalid google.protobuf.Timestamp value "); ok {
		what = value + " is not a time such as \"2026-11-29T10:00:00Z\""
	}
	if line, column, ok := strings.Cut(strings.TrimPrefix(at, "(line "), ":"); placed && ok {
		return "line " + line + ", column " + column + ": " + what
	}
	return text
}

// NewDecoder implements runtime.Marshaler.
func (m *marshaler) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error { return m.decodeWhole(r, v) })
}

// bodyAgreesWithPath refuses a body that names another thing than the path does: the path would win, and the caller would
// not learn that what it asked for was done to something else. Rows are left alone: their members are columns.
func bodyAgreesWithPath(next runtime.HandlerFunc) runtime.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request, path map[string]string) {
		if r.Body != nil && r.Body != http.NoBody && len(path) > 0 && !takesRows(r.URL.Path) {
			body, err := io.ReadAll(r.Body) // guard has read it from the network
			if err != nil {
				writeError(w, bad("", "the body could not be read whole"), 0)
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			if err := agrees(body, path); err != nil {
				writeError(w, err, 0)
				return
			}
		}
		next(w, r, path)
	}
}

// agrees compares the members of an object with the parts of a path of the same names. What is not an object is left to
// those who read it.
func agrees(body []byte, path map[string]string) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return nil
	}
	for name, want := range path {
		for _, spelling := range []string{name, lowerCamel(name)} {
			raw, ok := members[spelling]
			if !ok || string(raw) == "null" {
				continue
			}
			got := string(raw)
			var text string
			if json.Unmarshal(raw, &text) == nil {
				got = text
			}
			if got != want {
				return bad(name, "%s: the body says %.60q, the path %.60q", name, got, want)
			}
		}
	}
	return nil
}

// lowerCamel is the other spelling of a field that protobuf's JSON takes.
func lowerCamel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// checkParameter refuses a value of the URL that cannot be its field's: text that is empty is a value of strings only.
func checkParameter(target proto.Message, name string, values []string) error {
	f := target.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name))
	if f == nil {
		return bad(name, "there is no parameter %.60q", name)
	}
	if len(values) > 1 && !f.IsList() {
		return bad(name, "%s comes %d times", name, len(values))
	}
	for _, v := range values {
		if v == "" && f.Kind() != protoreflect.StringKind {
			return bad(name, "%s is empty: give it a value or leave it out", name)
		}
	}
	return nil
}
