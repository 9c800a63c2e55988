package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says what a flag takes where the flag package would repeat a parser's message.
func flagError(_ *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && strings.ContainsAny(unknown.GetSpecifiedName(), "0123456789") && len(unknown.GetSpecifiedName()) == 1 {
		value := "-" + unknown.GetSpecifiedShortnames()
		return usagef("%.60s begins like a flag; write -- before the keys, behind all flags: -- %.60s", value, value)
	}
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	return usagef("--%s: %v", bad.GetFlag().Name, describeValue(bad))
}

// describeValue says why a flag cannot have a value, without the flag's name.
func describeValue(bad *pflag.InvalidValueError) error {
	value := bad.GetValue()
	if errors.Is(bad, strconv.ErrRange) {
		return fmt.Errorf("%.60q is out of range", value)
	}
	switch bad.GetFlag().Value.Type() {
	case "int", "int32", "int64", "uint", "uint32", "uint64":
		return fmt.Errorf("%.60q is not a whole number", value)
	case "float64":
		return fmt.Errorf("%.60q is not a number", value)
	case "bool":
		return fmt.Errorf("%.60q is neither true nor false", value)
	case "duration":
		return fmt.Errorf("%.60q is not a length of time such as 500ms, 10s or 1m30s", value)
	}
	return errors.Unwrap(bad) // Weir's own kinds of flags say what they take
}
