package weir

import (
	"context"
	"errors"
	"fmt"
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
	where := c.where()
	var of *nodeError
	if errors.As(err, &of) {
		where = of.addr
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
		return dataflow.Errorf(dataflow.ReasonUnreachable, "the connection to %s was closed", where)
	case codes.DeadlineExceeded:
		return dataflow.Errorf(dataflow.ReasonDeadline, "no answer from %s in time: %w", where, context.DeadlineExceeded)
	case codes.Unavailable:
		if strings.Contains(st.Message(), "keepalive ping failed") {
			return &dataflow.Error{Reason: dataflow.ReasonUnreachable, Err: errSilent,
				Message: fmt.Sprintf("the server at %s has said nothing for %s", where, pingAfter+pingTimeout)}
		}
		return dataflow.Errorf(dataflow.ReasonUnreachable, "the connection to %s has ended: %s", where, transportCause(st.Message()))
	case codes.ResourceExhausted:
		return dataflow.Errorf(dataflow.ReasonTooLarge, "%s", st.Message())
	case codes.Unimplemented:
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "the server at %s does not know this call: %s", where, st.Message()).
			WithHint("it may be older than this client")
	}
	return dataflow.Errorf(dataflow.ReasonInternal, "%s: %s", st.Code(), st.Message())
}

func (c *Client) where() string { return strings.Join(c.cfg.Addrs, ", ") }

// transportCause cuts gRPC's layers off a transport error: what remains is the operating system's word, or what the end of a
// connection means.
func transportCause(msg string) string {
	const preface = "error reading server preface: " // nothing in gRPC has come
	msg = strings.Trim(msg, `"`)
	for _, sep := range []string{"desc = ", "while dialing: ", "connect: "} {
		if i := strings.LastIndex(msg, sep); i >= 0 {
			msg = msg[i+len(sep):]
		}
	}
	msg = strings.Trim(strings.TrimPrefix(msg, "transport: "), `"`)
	cause, first := strings.CutPrefix(msg, preface)
	switch {
	case first && (strings.Contains(cause, "timeout") || strings.Contains(cause, "use of closed network connection")): // closed by gRPC, after connectTimeout
		return silent
	case first && strings.Contains(cause, "HTTP/1"):
		return "what answers there speaks HTTP and no gRPC"
	case first && strings.Contains(cause, "http2: "):
		return "what answers there speaks no gRPC; it may be the port for Redis clients, or another program's"
	case first:
		return "it ends the connection without a word, as a server does that starts or stops"
	case strings.HasSuffix(msg, "EOF"):
		return "the server has closed it, or is gone"
	}
	return msg
}

func invalidAddr(a string) error {
	return dataflow.Errorf(dataflow.ReasonRequestInvalid, "%q is not the address of a server", a).
		WithHint("write host:port, for example %s", DefaultAddr)
}
