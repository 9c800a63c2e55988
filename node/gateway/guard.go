package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/code"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
)

// maxSmallBody bounds the body of anything but an append: a SQL text and its quotes, or the keys of a batchGet.
const maxSmallBody = 8 << 20

// guard wraps the routes: it catches panics, refuses bodies of a wrong type or size before anything parses them, and
// reads them whole under a deadline, so that no later step waits for a client.
func (g *Gateway) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p) // net/http's own way to end a connection
			}
			g.cfg.Logger.ErrorContext(r.Context(), "http request panicked", "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			writeError(w, dataflow.Errorf(dataflow.ReasonInternal, "internal error; the server's log has more"), 0)
		}()
		if why := checkText(r); why != "" {
			writeError(w, dataflow.Errorf(dataflow.ReasonRequestInvalid, "%s", why), 0)
			return
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodDelete {
			r.Body = http.NoBody // a body here means nothing
		} else if !readBody(w, r) {
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkText returns why a request's URL is refused, or "": names and values are text, which gRPC refuses to carry in
// another encoding. A query string that is not well formed is left to those who read it.
func checkText(r *http.Request) string {
	if !utf8.ValidString(r.URL.Path) {
		return "the path is not UTF-8 once it is decoded"
	}
	values, _ := url.ParseQuery(r.URL.RawQuery) // what could be parsed
	for name, all := range values {
		if !utf8.ValidString(name) {
			return "the name of a parameter is not UTF-8 once it is decoded"
		}
		for _, v := range all {
			if !utf8.ValidString(v) {
				return fmt.Sprintf("parameter %.60q is not UTF-8 once it is decoded", name)
			}
		}
	}
	if !utf8.ValidString(r.Header.Get("Idempotency-Key")) {
		return "the header Idempotency-Key is not UTF-8"
	}
	return ""
}

// takesRows reports whether a path takes rows, which may be NDJSON and many.
func takesRows(path string) bool {
	return strings.HasPrefix(path, "/v1/streams/") && (strings.HasSuffix(path, ":append") || strings.HasSuffix(path, "/rows"))
}

// readBody replaces the body by its bytes. It answers and returns false when it refuses it.
func readBody(w http.ResponseWriter, r *http.Request) bool {
	rows := takesRows(r.URL.Path)
	if why := checkType(r, rows); why != "" {
		writeError(w, dataflow.Errorf(dataflow.ReasonRequestInvalid, "%s", why), http.StatusUnsupportedMediaType)
		return false
	}
	limit := int64(maxSmallBody)
	if rows {
		limit = wire.MaxJSONBytes
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout)) // not every test's writer can
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	_ = rc.SetReadDeadline(time.Time{}) // as above
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		writeError(w, dataflow.Errorf(dataflow.ReasonTooLarge, "the body is over the limit of %d bytes", limit), 0)
		return false
	case err != nil:
		writeError(w, dataflow.Errorf(dataflow.ReasonRequestInvalid, "the body could not be read whole"), 0)
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	return true
}

// checkType returns why a body's type is refused, or "". curl -d says application/x-www-form-urlencoded whatever it
// sends, so that is taken for JSON.
func checkType(r *http.Request, rows bool) string {
	if e := r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return "bodies with Content-Encoding are not taken: send them plain"
	}
	ct := r.Header.Get("Content-Type")
	if ct == "" {
		return ""
	}
	typ, params, err := mime.ParseMediaType(ct)
	if cs := params["charset"]; cs != "" && !strings.EqualFold(cs, "utf-8") {
		return "the charset of a body is UTF-8"
	}
	switch {
	case err == nil && (typ == "application/json" || typ == "application/x-www-form-urlencoded"):
		return ""
	case err == nil && rows && (typ == "application/x-ndjson" || typ == "application/ndjson" || typ == "application/jsonl"):
		return ""
	case rows:
		return fmt.Sprintf("a body of type %.60q is not taken here: send application/json, application/x-ndjson, application/ndjson or application/jsonl", ct)
	}
	return fmt.Sprintf("a body of type %.60q is not taken here: send application/json", ct)
}

// httpStatus maps a code to HTTP as google.rpc.Code has it.
func httpStatus(c code.Code) int {
	switch c {
	case code.Code_OK:
		return http.StatusOK
	case code.Code_CANCELLED:
		return 499 // nginx's: the client went away
	case code.Code_INVALID_ARGUMENT, code.Code_FAILED_PRECONDITION, code.Code_OUT_OF_RANGE:
		return http.StatusBadRequest
	case code.Code_DEADLINE_EXCEEDED:
		return http.StatusGatewayTimeout
	case code.Code_NOT_FOUND:
		return http.StatusNotFound
	case code.Code_ALREADY_EXISTS, code.Code_ABORTED:
		return http.StatusConflict
	case code.Code_PERMISSION_DENIED:
		return http.StatusForbidden
	case code.Code_UNAUTHENTICATED:
		return http.StatusUnauthorized
	case code.Code_RESOURCE_EXHAUSTED:
		return http.StatusTooManyRequests
	case code.Code_UNIMPLEMENTED:
		return http.StatusNotImplemented
	case code.Code_UNAVAILABLE:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}
