package wire

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirdb/weir/dataflow"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// Domain is ErrorInfo.domain of every error of Weir.
const Domain = "weir"

// hintKey is the ErrorInfo.metadata key that carries Error.Hint.
const hintKey = "hint"

// maxWireViolations bounds the violations that one status carries: gRPC sends a status as a header, whose size is bounded.
const maxWireViolations = 50

// CodeOf maps a kind to the code that clients branch on.
func CodeOf(k dataflow.Kind) code.Code {
	switch k {
	case dataflow.KindInvalid:
		return code.Code_INVALID_ARGUMENT
	case dataflow.KindNotFound:
		return code.Code_NOT_FOUND
	case dataflow.KindExists:
		return code.Code_ALREADY_EXISTS
	case dataflow.KindPrecondition:
		return code.Code_FAILED_PRECONDITION
	case dataflow.KindOverloaded:
		return code.Code_RESOURCE_EXHAUSTED
	case dataflow.KindUnavailable, dataflow.KindUnknown:
		return code.Code_UNAVAILABLE
	case dataflow.KindDeadline:
		return code.Code_DEADLINE_EXCEEDED
	case dataflow.KindCorrupt:
		return code.Code_DATA_LOSS
	}
	return code.Code_INTERNAL
}

// AsError returns err as a *dataflow.Error. A context's end becomes DEADLINE, or nil for a cancelled request, which has
// nobody left to read a reason. Anything else is INTERNAL with a message that says nothing of the inside.
func AsError(err error) *dataflow.Error {
	var e *dataflow.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return dataflow.Errorf(dataflow.ReasonDeadline, "the request's deadline passed")
	case errors.Is(err, context.Canceled):
		return nil
	}
	e = dataflow.Errorf(dataflow.ReasonInternal, "internal error; the server's log has more")
	e.Err = err
	return e
}

// Status returns err as a google.rpc.Status with details: exactly one ErrorInfo, and BadRequest, RetryInfo, ResourceInfo
// and a Cut where they apply. cut may be nil.
func Status(err error, cut *weirv1.Cut) *spb.Status {
	e := AsError(err)
	if e == nil {
		return &spb.Status{Code: int32(code.Code_CANCELLED), Message: "the request was cancelled"}
	}
	st := &spb.Status{Code: int32(CodeOf(e.Reason.Kind())), Message: validText(e.Error())}
	info := &errdetails.ErrorInfo{Reason: string(e.Reason), Domain: Domain, Metadata: map[string]string{}}
	for k, v := range e.Metadata {
		info.Metadata[validText(k)] = validText(v)
	}
	if e.Hint != "" {
		info.Metadata[hintKey] = validText(e.Hint)
	}
	add := func(m proto.Message) {
		if a, err := anypb.New(m); err == nil {
			st.Details = append(st.Details, a)
		}
	}
	add(info)
	if len(e.Violations) > 0 {
		br := &errdetails.BadRequest{}
		for i, v := range e.Violations {
			if i == maxWireViolations {
				break
			}
			br.FieldViolations = append(br.FieldViolations, &errdetails.BadRequest_FieldViolation{
				Field: validText(v.Field), Description: validText(v.Description)})
		}
		add(br)
	}
	if e.RetryAfter > 0 {
		add(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.RetryAfter)})
	}
	if typ := resourceType(e.Reason); typ != "" && e.Metadata[typ] != "" {
		add(&errdetails.ResourceInfo{ResourceType: typ, ResourceName: validText(e.Metadata[typ])})
	}
	if cut != nil {
		add(cut)
	}
	return st
}

// ErrorOf rebuilds the error, and the cut if there is one, that Status made a status of. ok is false when the status
// does not come from Weir, as when the connection broke.
func ErrorOf(st *spb.Status) (e *dataflow.Error, cut *weirv1.Cut, ok bool) {
	e = &dataflow.Error{Message: st.GetMessage()}
	for _, d := range st.GetDetails() {
		m, err := d.UnmarshalNew()
		if err != nil {
			continue // a detail of a newer version
		}
		switch m := m.(type) {
		case *errdetails.ErrorInfo:
			if m.Domain != Domain {
				continue
			}
			ok = true
			e.Reason = dataflow.Reason(m.Reason)
			for k, v := range m.Metadata {
				if k == hintKey {
					e.Hint = v
				} else {
					e = e.WithMeta(k, v)
				}
			}
		case *errdetails.BadRequest:
			for _, v := range m.FieldViolations {
				e.Violations = append(e.Violations, dataflow.Violation{Field: v.Field, Description: v.Description})
			}
		case *errdetails.RetryInfo:
			e.RetryAfter = m.RetryDelay.AsDuration()
		case *weirv1.Cut:
			cut = m
		}
	}
	if !ok {
		return nil, cut, false
	}
	if e.Hint != "" {
		e.Message = strings.TrimSuffix(e.Message, " ("+e.Hint+")")
	}
	return e, cut, true
}

// RetryAfter returns RetryInfo.retry_delay of a status; 0 when there is none.
func RetryAfter(st *spb.Status) time.Duration {
	for _, d := range st.GetDetails() {
		var r errdetails.RetryInfo
		if d.MessageIs(&r) && d.UnmarshalTo(&r) == nil {
			return r.RetryDelay.AsDuration()
		}
	}
	return 0
}

// resourceType returns the type of the thing that a NOT_FOUND or EXISTS error is about; the error's metadata has its
// name under the same word.
func resourceType(r dataflow.Reason) string {
	switch r {
	case dataflow.ReasonPipelineNotFound, dataflow.ReasonPipelineExists, dataflow.ReasonPipelineState, dataflow.ReasonPipelineRecovering:
		return "pipeline"
	case dataflow.ReasonTableNotFound:
		return "table"
	case dataflow.ReasonStreamNotFound, dataflow.ReasonStreamConflict, dataflow.ReasonStreamInUse, dataflow.ReasonStreamSealed:
		return "stream"
	case dataflow.ReasonCheckpointNotFound, dataflow.ReasonCheckpointExpired:
		return "checkpoint"
	}
	return ""
}

// validText makes s a proto3 string: a message that quotes a user's bytes must not make the status unsendable.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
