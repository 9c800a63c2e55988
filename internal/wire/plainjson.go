package wire

import (
	"bytes"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/weirdb/weir/dataflow/expr"
	weirv1 "github.com/weirdb/weir/proto/weir/v1"
)

// AppendJSON appends a message of weir.v1 as plain JSON, the form of HTTP and the command line. It differs from
// protobuf's JSON where that is not what people write by hand: 64-bit integers are numbers, rows are objects, enum
// values drop their type's prefix, positions are offsets by stream, names are as in the proto. Every field is there,
// zero or not, except messages and optional fields that are unset; the order is the proto's, so the bytes are stable.
func AppendJSON(dst []byte, m proto.Message) []byte {
	switch m := m.(type) {
	case *weirv1.Cut:
		return AppendCutJSON(dst, m)
	case *timestamppb.Timestamp:
		return AppendTimestampJSON(dst, m.AsTime().UnixMicro())
	case *durationpb.Duration:
		return AppendStringJSON(dst, m.AsDuration().Round(time.Microsecond).String())
	}
	if m == nil || !m.ProtoReflect().IsValid() {
		return append(dst, "null"...)
	}
	w := objectWriter{dst: append(dst, '{')}
	r := m.ProtoReflect()
	fields := r.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.HasPresence() && !r.Has(f) {
			continue
		}
		w.name(string(f.Name()))
		w.dst = appendField(w.dst, f, r.Get(f))
	}
	return append(w.dst, '}')
}

func appendField(dst []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch {
	case f.IsMap():
		return appendMap(dst, f, v.Map())
	case f.IsList():
		l := v.List()
		if f.Message() != nil && f.Message().FullName() == (*weirv1.Position)(nil).ProtoReflect().Descriptor().FullName() {
			ps := make([]*weirv1.Position, l.Len())
			for i := range ps {
				ps[i], _ = l.Get(i).Message().Interface().(*weirv1.Position)
			}
			return appendPositionsJSON(dst, ps)
		}
		dst = append(dst, '[')
		for i := range l.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendScalar(dst, f, l.Get(i))
		}
		return append(dst, ']')
	}
	return appendScalar(dst, f, v)
}

func appendMap(dst []byte, f protoreflect.FieldDescriptor, m protoreflect.Map) []byte {
	keys := make([]string, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k.String())
		return true
	})
	slices.Sort(keys)
	dst = append(dst, '{')
	for i, k := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendStringJSON(dst, k), ':')
		dst = appendScalar(dst, f.MapValue(), m.Get(protoreflect.ValueOfString(k).MapKey()))
	}
	return append(dst, '}')
}

func appendScalar(dst []byte, f protoreflect.FieldDescriptor, v protoreflect.Value) []byte {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return AppendJSON(dst, v.Message().Interface())
	case protoreflect.EnumKind:
		return AppendStringJSON(dst, enumName(f.Enum(), v.Enum()))
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, v.Bool())
	case protoreflect.StringKind:
		return AppendStringJSON(dst, v.String())
	case protoreflect.BytesKind:
		return appendBytes(dst, f, v.Bytes())
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return expr.AppendDoubleJSON(dst, v.Float())
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return strconv.AppendUint(dst, v.Uint(), 10)
	default:
		return strconv.AppendInt(dst, v.Int(), 10)
	}
}

// appendBytes writes rows, which are JSON already; an absent one is null. Other bytes are base64.
func appendBytes(dst []byte, f protoreflect.FieldDescriptor, b []byte) []byte {
	switch f.Name() {
	case "row", "rows":
		if len(b) == 0 {
			return append(dst, "null"...)
		}
		return append(dst, bytes.TrimSpace(b)...)
	}
	return AppendStringJSON(dst, base64.StdEncoding.EncodeToString(b))
}

// enumName writes PIPELINE_STATE_RUNNING of PipelineState as RUNNING, and guarantees as the option that asks for them.
func enumName(e protoreflect.EnumDescriptor, n protoreflect.EnumNumber) string {
	v := e.Values().ByNumber(n)
	if v == nil {
		return strconv.Itoa(int(n))
	}
	name := strings.TrimPrefix(string(v.Name()), enumPrefix(string(e.Name())))
	if e.Name() == "Guarantee" {
		return strings.ToLower(name)
	}
	return name
}

// enumPrefix returns PIPELINE_STATE_ for PipelineState.
func enumPrefix(name string) string {
	var b strings.Builder
	for i, r := range name {
		if i > 0 && r >= 'A' && r <= 'Z' {
			b.WriteByte('_')
		}
		b.WriteRune(r)
	}
	return strings.ToUpper(b.String()) + "_"
}
