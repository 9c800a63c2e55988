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
func flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "" && strings.Contains(cmd.Use, "[KEY...]") {
		value := "-" + unknown.GetSpecifiedShortnames()
		return usagef("%.60s is no flag of %s; a key that begins with - goes behind --, after all flags: -- %.60s", value, cmd.CommandPath(), value)
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

// unknownCommand writes cobra's suggestions behind the message, where it would put them on lines of their own.
func unknownCommand(err error) error {
	message, names, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if !ok {
		return err
	}
	return fmt.Errorf("%s; is it %s?", message, strings.Join(strings.Fields(names), " or "))
}

// given says how many arguments there were.
func given(n int) string {
	switch n {
	case 0:
		return "no argument was given"
	case 1:
		return "1 argument was given"
	}
	return fmt.Sprintf("%d arguments were given", n)
}
