package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	weir "github.com/weirdb/weir/clients/go"
	"github.com/weirdb/weir/dataflow"
)

// clientFlags are the flags of every verb that talks to a server.
type clientFlags struct {
	addr     string
	discover bool
	output   string
	timeout  time.Duration
	retryFor time.Duration
}

// choice is a flag value that must be one of a few words.
type choice struct {
	value *string
	words []string
}

func (f choice) String() string {
	if f.value == nil {
		return ""
	}
	return *f.value
}
func (f choice) Type() string { return strings.Join(f.words, "|") }
func (f choice) Set(s string) error {
	for _, w := range f.words {
		if s == w {
			*f.value = s
			return nil
		}
	}
	return fmt.Errorf("must be %s", strings.Join(f.words, " or "))
}

// choose adds a flag that takes one of words; the first is the default unless def says otherwise.
func choose(cmd *cobra.Command, p *string, name, short, def, help string, words ...string) {
	*p = def
	cmd.Flags().VarP(choice{p, words}, name, short, help)
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(toCompletions(words), cobra.ShellCompDirectiveNoFileComp)) // fails only for a flag that is not there
}

func toCompletions(words []string) []cobra.Completion {
	return append([]cobra.Completion(nil), words...)
}

// clientRetryFor is how long a verb tries to reach a server: long enough for one that restarts, not so long that a
// person wonders.
const clientRetryFor = 2 * time.Second

// addClientFlags adds --addr, --timeout and -o.
func (c *cli) addClientFlags(cmd *cobra.Command) {
	addr := c.getenv("WEIR_ADDR")
	if addr == "" {
		addr = weir.DefaultAddr
	}
	c.client.retryFor = clientRetryFor
	cmd.Flags().StringVar(&c.client.addr, "addr", addr, "address of a node of the group, or of several, separated by commas (or WEIR_ADDR)")
	cmd.Flags().BoolVar(&c.client.discover, "discover", true, "learn from the node that answers where the others are, and go to one of them when it fails; --discover=false keeps to --addr")
	cmd.Flags().DurationVar(&c.client.timeout, "timeout", 0, "give up after this time; 0 = the verb's own limits")
	choose(cmd, &c.client.output, "output", "o", "table", "how to print", "table", "json")
}

// clientVerb completes a command that talks to a server.
func (c *cli) clientVerb(cmd *cobra.Command, args cobra.PositionalArgs, body func(ctx context.Context, w *weir.Client, args []string) error) *cobra.Command {
	c.addClientFlags(cmd)
	if use := strings.Fields(cmd.Use); len(use) > 1 {
		cmd.ValidArgsFunction = c.completeNames(use[1])
	}
	return c.verb(cmd, args, func(ctx context.Context, args []string) (err error) {
		if c.client.timeout < 0 {
			return usagef("--timeout %s is negative", c.client.timeout)
		}
		if err := checkTexts(cmd, args); err != nil {
			return err
		}
		w, err := c.open()
		if err != nil {
			return usage(err)
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		if c.client.timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.client.timeout)
			defer cancel()
		}
		return body(ctx, w, args)
	})
}

// checkTexts refuses arguments and flags that are not UTF-8, which no name, key or SQL is. The name of a file may be.
func checkTexts(cmd *cobra.Command, args []string) (err error) {
	for _, a := range args {
		if _, statErr := os.Stat(a); !utf8.ValidString(a) && statErr != nil {
			return usagef("argument %q is not UTF-8", a)
		}
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !utf8.ValidString(f.Value.String()) && f.Name != "file" {
			err = usagef("--%s %q is not UTF-8", f.Name, f.Value.String())
		}
	})
	return err
}

func (c *cli) json() bool { return c.client.output == "json" }

// readFlags are the flags of every read.
type readFlags struct {
	isolation  string
	minToken   string
	session    string
	maxWait    time.Duration
	staleness  time.Duration
	checkpoint string
	numbers    string
}

func (f *readFlags) add(cmd *cobra.Command) {
	choose(cmd, &f.isolation, "isolation", "", "read-committed", "read the last committed cut, or the newest processed rows, which a recovery may take back",
		"read-committed", "read-uncommitted")
	cmd.Flags().StringVar(&f.minToken, "min-token", "", "wait for state that covers this token of an ingest")
	cmd.Flags().StringVar(&f.session, "session-token", "", "never read an older cut than the one with this token (cut.token of an earlier answer)")
	cmd.Flags().DurationVar(&f.maxWait, "max-wait", 0, "how long to wait for --min-token and --session-token (default 10s)")
	cmd.Flags().DurationVar(&f.staleness, "max-staleness", 0, "refuse an answer that lacks rows which were acknowledged longer ago than this (default: none is too stale)")
	cmd.Flags().StringVar(&f.checkpoint, "checkpoint", "", "read this kept checkpoint instead of the newest")
	choose(cmd, &f.numbers, "numbers", "", "json", "print BIGINT and NUMERIC in JSON as numbers or as strings", "json", "string")
}

func (f *readFlags) options() (weir.ReadOptions, error) {
	o := weir.ReadOptions{MinToken: f.minToken, SessionToken: f.session, MaxWait: f.maxWait, MaxStaleness: f.staleness, NumbersAsStrings: f.numbers == "string"}
	if f.staleness < 0 {
		return o, usagef("--max-staleness %s is negative", f.staleness)
	}
	if f.isolation == "read-uncommitted" {
		o.Isolation = dataflow.ReadUncommitted
	}
	if f.checkpoint != "" {
		id, err := parseCheckpoint(f.checkpoint)
		if err != nil {
			return o, err
		}
		o.Checkpoint = &id
	}
	return o, nil
}

func parseCheckpoint(s string) (dataflow.CheckpointID, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, usagef("%q is not the number of a checkpoint", s)
	}
	return dataflow.CheckpointID(n), nil
}

// parseOptions reads --set k=v, or the arguments of pipeline set.
func parseOptions(pairs []string) (map[string]string, error) {
	out := make(map[string]string, len(pairs))
	for _, p := range pairs {
		k, v, ok := strings.Cut(p, "=")
		k = strings.TrimSpace(k)
		if !ok || k == "" {
			return nil, usagef("%q is not option=value", p)
		}
		if _, twice := out[k]; twice {
			return nil, usagef("option %s is set twice", k)
		}
		out[k] = strings.TrimSpace(v)
	}
	return out, nil
}

// keyParts turns arguments into key parts: text for the server to parse, and \N for NULL, as in PostgreSQL's COPY.
func keyParts(args []string) dataflow.Row {
	row := make(dataflow.Row, len(args))
	for i, a := range args {
		row[i] = keyPart(a)
	}
	return row
}

func keyPart(a string) dataflow.Value {
	if a == `\N` {
		return dataflow.NullValue(dataflow.TypeUnknown)
	}
	return weir.Literal(a)
}

const keyHelp = `A key part is text that the server parses as the column's type; \N is NULL.`
