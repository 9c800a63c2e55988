package bench

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Names of the benchmarks, in the order in which Run takes them.
var names = [...]string{"engine", "ingest", "get", "resp", "freshness", "live", "recover", "ysb", "group"}

// Names returns the names of all benchmarks.
func Names() []string { return slices.Clone(names[:]) }

// Config says what to run and how.
type Config struct {
	// Benchmarks are names of Names; empty = all.
	Benchmarks []string
	// Case leaves out the cases whose names do not have all of its words.
	Case string
	// Quick runs everything small and short: it shows that the benchmarks work, not how fast Weir is.
	Quick bool
	// Large adds engine cases with 20 million keys, which need some 10 GB of memory, and recoveries with 10 million.
	Large bool
	// Redis is the address of a Redis server that resp is compared with, and that a case of ysb copies its results to; "" =
	// neither is done.
	Redis string
	// NATS is the address of a NATS server with JetStream, one of a cluster of three or more, that the group's ingest is
	// compared with; "" = it is not.
	NATS string
	// Dir is where data directories are made; they are removed afterwards. Empty = the system's directory for temporary
	// files. It should be on the disk that is to be measured.
	Dir string
	// NodeCommand starts RunNode in a process of its own; arguments for it are appended (NodeFlags).
	NodeCommand []string
	// Profile is a directory for CPU and allocation profiles; "" = none.
	Profile string
	// Report takes the figures of a benchmark's case, when they have been found right.
	Report func([]Figure) error
	// Progress is told what is under way; optional.
	Progress func(what string)
}

func (c *Config) ensureDefaults() {
	if len(c.Benchmarks) == 0 {
		c.Benchmarks = Names()
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
}

func (c *Config) validate() error {
	var errs []error
	for _, n := range c.Benchmarks {
		if !slices.Contains(names[:], n) {
			errs = append(errs, fmt.Errorf("there is no benchmark %q; there are %v", n, names))
		}
	}
	if len(c.NodeCommand) == 0 {
		errs = append(errs, errors.New("NodeCommand: is empty"))
	}
	if c.Report == nil {
		errs = append(errs, errors.New("Report: is missing"))
	}
	return errors.Join(errs...)
}

// sizes are how long and how large a run is.
type sizes struct {
	window  time.Duration // one measurement
	windows int           // measurements of one kind
	settle  time.Duration // what passes before the first measurement counts
	keys    uint64        // of the tables that are read
	recover []uint64      // keys of the recover cases
	engine  []uint64      // keys of the engine cases
	group   []uint64      // keys of the group's cases
	kills   int           // per case of the group
	// campaigns of the ysb cases
	campaigns []uint64
}

// largeKeys is the number of keys of the large engine cases.
const largeKeys = 20_000_000

func (c *Config) sizes() sizes {
	if c.Quick {
		return sizes{
			window: 300 * time.Millisecond, windows: 1, settle: 200 * time.Millisecond, keys: 20_000,
			recover: []uint64{20_000}, engine: []uint64{1000, 50_000},
			campaigns: []uint64{100}, group: []uint64{20_000}, kills: 1,
		}
	}
	s := sizes{
		// A window holds one checkpoint of the default interval; three show the spread.
		window: time.Second, windows: 3, settle: time.Second, keys: 1_000_000,
		recover: []uint64{100_000, 1_000_000}, engine: []uint64{1000, 1_000_000},
		campaigns: []uint64{100, 1_000_000}, group: []uint64{100_000}, kills: 3,
	}
	if c.Large {
		s.engine = append(s.engine, largeKeys)
		s.recover = append(s.recover, 10_000_000)
		s.group = append(s.group, 10_000_000)
	}
	return s
}
