package gateway

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/rpc/code"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// writeError answers with err, a gRPC status or a *dataflow.Error, as google.rpc.Status JSON. override is the HTTP
// status; 0 takes the code's.
func writeError(w http.ResponseWriter, err error, override int) {
	var own *dataflow.Error
	if errors.As(err, &own) {
		writeStatus(w, wire.Status(own, nil), override)
		return
	}
	writeStatus(w, status.Convert(err).Proto(), override)
}

// writeStatus writes {"code":…,"message":…,"details":[…]}, and "cut" when the error has one.
func writeStatus(w http.ResponseWriter, st *spb.Status, override int) {
	e, cut, ours := wire.ErrorOf(st)
	if !ours {
		st, e = adopt(st)
	}
	h := httpStatus(code.Code(st.GetCode()))
	switch {
	case override != 0:
		h = override
	case e.Reason == dataflow.ReasonTooLarge:
		h = http.StatusRequestEntityTooLarge
	}
	if h == http.StatusTooManyRequests || h == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", retryAfter(wire.RetryAfter(st)))
	}
	cutHeaders(w.Header(), cut)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(h)
	send(w, append(appendStatus(nil, st, cut), '\n'))
}

// send writes a body. It can only fail when the client has gone, and then nobody is left to tell.
func send(w http.ResponseWriter, body []byte) {
	_, _ = w.Write(body) // see above
}

// appendStatus appends a status, with the cut as a member rather than among the details, where it would be in
// protobuf's JSON.
func appendStatus(dst []byte, st *spb.Status, cut *weirv1.Cut) []byte {
	plain := &spb.Status{Code: st.GetCode(), Message: st.GetMessage()}
	for _, d := range st.GetDetails() {
		if !d.MessageIs((*weirv1.Cut)(nil)) {
			plain.Details = append(plain.Details, d)
		}
	}
	body, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(plain)
	if err != nil { // a detail of a newer version; without details there is nothing that could fail
		body, _ = protojson.Marshal(&spb.Status{Code: st.GetCode(), Message: st.GetMessage()})
	}
	dst = append(dst, body...)
	if cut == nil {
		return dst
	}
	dst = append(dst[:len(dst)-1], `,"cut":`...)
	return append(wire.AppendCutJSON(dst, cut), '}')
}

// statusJSON returns err as google.rpc.Status JSON.
func statusJSON(err error) []byte {
	st := status.Convert(err).Proto()
	_, cut, ours := wire.ErrorOf(st)
	if !ours {
		st, _ = adopt(st) // the error itself is not asked for here
	}
	return appendStatus(nil, st, cut)
}

// adopt gives a status that is not Weir's own a reason: grpc-gateway refuses what it cannot parse without one.
func adopt(st *spb.Status) (*spb.Status, *dataflow.Error) {
	r := dataflow.ReasonInternal
	switch code.Code(st.GetCode()) {
	case code.Code_INVALID_ARGUMENT, code.Code_NOT_FOUND, code.Code_UNIMPLEMENTED, code.Code_OUT_OF_RANGE:
		r = dataflow.ReasonRequestInvalid
	case code.Code_RESOURCE_EXHAUSTED:
		r = dataflow.ReasonTooLarge // the only thing that gRPC itself runs out of is the size of a message
	case code.Code_UNAVAILABLE:
		r = dataflow.ReasonShuttingDown
	case code.Code_DEADLINE_EXCEEDED:
		r = dataflow.ReasonDeadline
	case code.Code_CANCELLED:
		return st, &dataflow.Error{}
	}
	e := dataflow.Errorf(r, "%s", ownWords(st.GetMessage()))
	out := wire.Status(e, nil)
	out.Code = st.GetCode()
	return out, e
}

// ownWords turns grpc-gateway's message for a part of the path or a parameter that does not parse into one for people.
func ownWords(message string) string {
	rest, ok := strings.CutPrefix(message, "type mismatch, parameter: ")
	if !ok {
		return message
	}
	name, detail, _ := strings.Cut(rest, ", error: ")
	_, detail, _ = strings.Cut(detail, "parsing ")
	value, err := strconv.QuotedPrefix(detail)
	if err != nil {
		return name + ": it is not a value of this parameter"
	}
	return name + ": " + value + " is not a whole number in its range"
}

// retryAfter prints whole seconds, at least one.
func retryAfter(d time.Duration) string {
	return strconv.Itoa(int(max(1, math.Ceil(d.Seconds()))))
}

// gatewayError is grpc-gateway's hook for errors of generated routes.
func (g *Gateway) gatewayError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	var h *runtime.HTTPStatusError
	if errors.As(err, &h) {
		writeError(w, h.Err, h.HTTPStatus)
		return
	}
	writeError(w, err, 0)
}

// routingError is grpc-gateway's hook for paths and methods without a route.
func (g *Gateway) routingError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, httpCode int) {
	switch httpCode {
	case http.StatusMethodNotAllowed:
		writeError(w, dataflow.Errorf(dataflow.ReasonRequestInvalid, "%s is not for this path; see /openapi.json", r.Method), httpCode)
	case http.StatusNotFound:
		writeError(w, dataflow.Errorf(dataflow.ReasonRequestInvalid, "there is no such path; see /openapi.json"), httpCode)
	default:
		writeError(w, dataflow.Errorf(dataflow.ReasonRequestInvalid, "the path is not well formed"), http.StatusBadRequest)
	}
}

// cutHeaders repeats a cut in headers.
func cutHeaders(h http.Header, c *weirv1.Cut) {
	if c == nil {
		return
	}
	id := strconv.FormatUint(c.GetCheckpointId(), 10)
	if !c.GetSpeculative() {
		h.Set("ETag", `"`+id+`"`)
	}
	h.Set("Weir-Cut", id)
	h.Set("Weir-Timeline", strconv.FormatUint(c.GetTimeline(), 10))
	h.Set("Weir-Incarnation", strconv.FormatUint(c.GetIncarnation(), 10))
	h.Set("Weir-Speculative", strconv.FormatBool(c.GetSpeculative()))
	h.Set("Weir-Age-Ms", strconv.FormatInt(c.GetAgeMs(), 10))
	h.Set("Weir-Behind-Rows", strconv.FormatUint(c.GetBehindRows(), 10))
	h.Set("Weir-Behind-Ms", strconv.FormatInt(c.GetBehindMs(), 10))
	if c.GetToken() != "" {
		h.Set("Weir-Session-Token", c.GetToken())
	}
}
