package dataflow

// Form is how the values of a type are held in memory: which slice of a vector has them. Types of one form share the
// code that moves values about without looking into them.
type Form uint8

const (
	// FormNone is the form of TypeUnknown, whose values are all NULL.
	FormNone Form = iota
	// FormInt is an int64 per row: BOOLEAN, BIGINT, TIMESTAMPTZ, DATE.
	FormInt
	// FormFloat is a float64 per row: DOUBLE PRECISION.
	FormFloat
	// FormDecimal is a decimal per row: NUMERIC.
	FormDecimal
	// FormBytes is a run of bytes per row: TEXT, JSONB, BYTEA.
	FormBytes
	// FormInterval is an Interval per row: INTERVAL.
	FormInterval
	// FormList is a run of elements per row: arrays.
	FormList
)

// forms is read only. An array instead of a switch: Form is called per row.
var forms = [256]Form{
	TypeBool: FormInt, TypeBigInt: FormInt, TypeTimestamp: FormInt, TypeDate: FormInt,
	TypeDouble:  FormFloat,
	TypeNumeric: FormDecimal,
	TypeText:    FormBytes, TypeJSONB: FormBytes, TypeBytea: FormBytes,
	TypeInterval:  FormInterval,
	TypeTextArray: FormList, TypeBigIntArray: FormList, TypeDoubleArray: FormList, TypeBoolArray: FormList,
	TypeTimestampArray: FormList, TypeNumericArray: FormList, TypeDateArray: FormList, TypeJSONBArray: FormList,
	TypeByteaArray: FormList, TypeIntervalArray: FormList,
}

// Form returns how values of the type are held.
func (t Type) Form() Form { return forms[t] }

// elements is read only.
var elements = map[Type]Type{
	TypeTextArray: TypeText, TypeBigIntArray: TypeBigInt, TypeDoubleArray: TypeDouble, TypeBoolArray: TypeBool,
	TypeTimestampArray: TypeTimestamp, TypeNumericArray: TypeNumeric, TypeDateArray: TypeDate, TypeJSONBArray: TypeJSONB,
	TypeByteaArray: TypeBytea, TypeIntervalArray: TypeInterval,
}

// Elem returns the type of an array's elements; TypeUnknown for what is no array.
func (t Type) Elem() Type { return elements[t] }

// ArrayOf returns the type of arrays of t; TypeUnknown where there is none.
func ArrayOf(t Type) Type {
	for a, e := range elements {
		if e == t {
			return a
		}
	}
	return TypeUnknown
}

// Ordered reports whether values of the type can be sorted and be part of a key.
func (t Type) Ordered() bool {
	switch t {
	case TypeBool, TypeBigInt, TypeDouble, TypeText, TypeTimestamp, TypeNumeric, TypeBytea, TypeInterval, TypeDate:
		return true
	}
	return false
}
