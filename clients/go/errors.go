package weir

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// answerError is an error of the server that came with a cut.
type answerError struct {
	err *dataflow.Error
	cut *weirv1.Cut
}

func (e *answerError) Error() string { return e.err.Error() }
func (e *answerError) Unwrap() error { return e.err }

// CutOf returns the cut that an error carries: that a row is absent is true as of a cut. Nil when there is none.
func CutOf(err error) *weirv1.Cut {
	var a *answerError
	if errors.As(err, &a) {
		return a.cut
	}
	return nil
}

// errorOf turns what gRPC returned into an error with a reason. What ended because ctx ended unwraps to ctx's error.
func (c *Client) errorOf(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	if e, cut, ours := wire.ErrorOf(st.Proto()); ours {
		if ctx.Err() != nil {
			e.Err = ctx.Err()
		}
		if cut != nil {
			return &answerError{err: e, cut: cut}
		}
		return e
	}
	switch st.Code() {
	case codes.Canceled:
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return dataflow.Errorf(dataflow.ReasonUnreachable, "the connection to %s was closed", c.where())
	case codes.DeadlineExceeded:
		return dataflow.Errorf(dataflow.ReasonDeadline, "no answer from %s in time: %w", c.where(), context.DeadlineExceeded)
	case codes.Unavailable:
		return dataflow.Errorf(dataflow.ReasonUnreachable, "no server answers at %s: %s", c.where(), transportCause(st.Message()))
	case codes.ResourceExhausted:
		return dataflow.Errorf(dataflow.ReasonTooLarge, "%s", st.Message())
	case codes.Unimplemented:
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "the server at %s does not know this call: %s", c.where(), st.Message()).
			WithHint("it may be older than this client")
	}
	return dataflow.Errorf(dataflow.ReasonInternal, "%s: %s", st.Code(), st.Message())
}

func (c *Client) where() string { return strings.Join(c.cfg.Addrs, ", ") }

// transportCause cuts gRPC's layers off a transport error: what remains is the operating system's word.
func transportCause(msg string) string {
	msg = strings.Trim(msg, `"`)
	for _, sep := range []string{"desc = ", "while dialing: "} {
		if i := strings.LastIndex(msg, sep); i >= 0 {
			msg = msg[i+len(sep):]
		}
	}
	return strings.Trim(strings.TrimPrefix(msg, "transport: "), `"`)
}

func invalidAddr(a string) error {
	return dataflow.Errorf(dataflow.ReasonRequestInvalid, "%q is not the address of a server", a).
		WithHint("write host:port, for example %s", DefaultAddr)
}
