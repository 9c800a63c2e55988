// Package jsonb reads, compares and builds the values of JSONB columns.
//
// # Normal form
//
// A JSONB value is held as text, the text that PostgreSQL prints for its jsonb: ", " between members and elements, ": "
// behind keys; the members of an object by length of their key and then by its bytes, the last of equal keys only;
// numbers in decimal without an exponent, zeros after the point kept (1.50), no negative zero; strings with \" \\ \b \f
// \n \r \t and \u00XX for other control characters as their only escapes. \u0000 is not a value, as TEXT cannot hold it.
//
// So equal texts are equal values. The reverse holds but for the zeros after the point of numbers: 1.0 and 1.00 are
// equal and print differently, here as in PostgreSQL; Equal knows.
//
// # Rules
//
// Append takes any text. All other functions take values in normal form, as Append gives it and as they cut out of one
// another. Given other bytes they find nothing or the wrong thing; they do not panic and they end.
//
// Values that a function returns share memory with the value that they were found in.
package jsonb
