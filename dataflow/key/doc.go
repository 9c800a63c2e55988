// Package key encodes keys as bytes: one canonical form for hashing, storage, page tokens and clients in every language.
// Equal values have equal encodings, and bytes compare as the values do in PostgreSQL's ORDER BY … ASC NULLS LAST, text
// by bytes. testdata/golden.txt has vectors for other languages.
//
// # Format, version 1
//
// A key is its parts in order, one after the other. A part begins with a tag, 0x10 + the type's number (dataflow.Type),
// or 0xF0 for NULL of any type. Then:
//
//	BOOLEAN           one byte, 0 or 1
//	BIGINT            8 bytes big-endian, sign bit flipped
//	TIMESTAMPTZ       as BIGINT: microseconds since 1970 UTC
//	DATE              as BIGINT: days since 1970-01-01
//	INTERVAL          16 bytes big-endian, sign bit flipped: its length in microseconds, a month being 30 days and a day
//	                  24 hours
//	DOUBLE PRECISION  8 bytes big-endian IEEE 754; all bits flipped if negative, else the sign bit. -0 is 0, every NaN is
//	                  0x7FF8000000000000 (greater than Infinity, as in PostgreSQL)
//	TEXT              the UTF-8 bytes, then 0x00. A zero byte inside, which TEXT does not have, would be 0x00 0xFF
//	BYTEA             as TEXT; each 0x00 inside is 0x00 0xFF
//	NUMERIC           a class byte: 0x01 -Infinity, 0x02 negative, 0x03 zero, 0x04 positive, 0x05 Infinity, 0x06 NaN.
//	                  For positive numbers 0.d1d2d3… × 10^e with d1 ≠ 0 and no trailing zeros follow:
//	                    e     0x80+e if -64 < e < 64, else 0x00 (e negative) or 0xFF and e as 4 bytes big-endian, sign
//	                          bit flipped
//	                    d     digits in pairs, the last filled up with a 0, each pair as pair+1; then 0x00
//	                  Negative numbers have the same bytes of the absolute value, all flipped.
//
// So 1.0 and 1.00 are one key. A decoded NUMERIC has no trailing zeros after the point: which of several equal values
// was there first is not kept. Nor is it of intervals: 1 month, 30 days and 720 hours are one key, which decodes to the
// one with the most months, then the most days: 1 month. JSONB and arrays are no keys.
//
// No tag is 0xFF, which makes the end of TEXT unambiguous, and no encoding of a part is a prefix of another of the same
// type.
package key
