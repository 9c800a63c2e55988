package api

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/status"

	"github.com/weirdb/weir/dataflow"
	"github.com/weirdb/weir/internal/wire"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// cutError is an error whose answer carries a cut: that a row is absent is true as of that cut.
type cutError struct {
	err error
	cut *weirv1.Cut
}

func (e *cutError) Error() string { return e.err.Error() }
func (e *cutError) Unwrap() error { return e.err }

// asStatus turns whatever a handler returned into a gRPC status with details. A status, as of a failed Send, stays.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	var own *dataflow.Error
	if _, ok := status.FromError(err); ok && !errors.As(err, &own) {
		return err
	}
	var c *cutError
	if errors.As(err, &c) {
		return status.FromProto(wire.Status(c.err, c.cut)).Err()
	}
	return status.FromProto(wire.Status(err, nil)).Err()
}

// invalid returns REQUEST_INVALID for one field of the request.
func invalid(field, format string, args ...any) error {
	return wrong(dataflow.ReasonRequestInvalid, field, format, args...)
}

// wrong returns an error about one field of the request.
func wrong(r dataflow.Reason, field, format string, args ...any) error {
	why := fmt.Sprintf(format, args...)
	e := dataflow.Errorf(r, "%s: %s", field, why)
	e.Violations = []dataflow.Violation{{Field: field, Description: why}}
	return e
}

// checkName refuses what cannot be a name, before anything is looked up by it.
func checkName(field, name string) error {
	switch {
	case name == "":
		return invalid(field, "is missing")
	case !dataflow.ValidName(name):
		return wrong(dataflow.ReasonNameInvalid, field, "%s is not a name: [a-z_][a-z0-9_]{0,62}", short(name))
	}
	return nil
}

// short quotes a user's text for a message, cut to a readable length.
func short(s string) string {
	const most = 70
	if len(s) > most {
		return fmt.Sprintf("%q…", s[:most])
	}
	return fmt.Sprintf("%q", s)
}
