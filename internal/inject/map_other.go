//go:build !linux

package inject

import "errors"

// Open maps a page of faults, on Linux only: nothing but tests needs it.
func Open(string) (*Faults, error) {
	return nil, errors.New("pages of faults are there on Linux only")
}
