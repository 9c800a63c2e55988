package gateway

import (
	"net/url"
	"sync"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/grpc-ecosystem/grpc-gateway/v2/utilities"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirdb/weir/internal/wire"
)

// marshaler writes answers of generated routes as plain JSON and reads bodies strictly: an unknown field is an error.
type marshaler struct{ runtime.JSONPb }

func newMarshaler() *marshaler {
	return &marshaler{runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: false},
	}}
}

// Marshal implements runtime.Marshaler.
func (m *marshaler) Marshal(v any) ([]byte, error) {
	if p, ok := v.(proto.Message); ok {
		return append(wire.AppendJSON(nil, p), '\n'), nil
	}
	return m.JSONPb.Marshal(v)
}

// ContentType implements runtime.Marshaler.
func (*marshaler) ContentType(any) string { return "application/json" }

// strictParameters fills a request from the URL's parameters and refuses those that it does not have.
type strictParameters struct{}

// parseStrictly has strictParameters used. The library keeps its parser in a variable of the process, not of a ServeMux,
// so it is set once, before the first gateway serves: several nodes may live in one process.
var parseStrictly = sync.OnceFunc(func() { runtime.NewServeMux(runtime.SetQueryParameterParser(strictParameters{})) })

// Parse implements runtime.QueryParameterParser.
func (strictParameters) Parse(target proto.Message, values url.Values, filter *utilities.DoubleArray) error {
	for name, all := range values {
		if err := checkParameter(target, name, all); err != nil {
			return err
		}
	}
	for name, all := range values { // one by one, so that an error can name the parameter
		if err := (&runtime.DefaultQueryParser{}).Parse(target, url.Values{name: all}, filter); err != nil {
			return bad(name, "%s: %.60q is not a value of this parameter", name, all[0])
		}
	}
	return nil
}
