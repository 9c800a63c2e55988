package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// errVoid says that a benchmark ran and its result was wrong (B2).
var errVoid = errors.New("void")

func voidf(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errVoid}, args...)...)
}

// Void reports whether err is about a wrong result, not about a run that did not come to an end.
func Void(err error) bool { return errors.Is(err, errVoid) }

// runner is one invocation.
type runner struct {
	cfg  Config
	size sizes
	dir  string // of this invocation; removed at the end
	dirs int    // made in it
}

// Run runs benchmarks and reports their figures, after those of the machine. The first failure or void result ends it.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(cfg.Dir, "weir-bench-")
	if err != nil {
		return fmt.Errorf("make a directory for the data: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r := &runner{cfg: cfg, size: cfg.sizes(), dir: dir}
	if err := cfg.Report(machine()); err != nil {
		return err
	}
	syncs := canarySyncs
	if cfg.Quick {
		syncs /= 10
	}
	found, err := canaries(dir, syncs)
	if err != nil {
		return err
	}
	if err := cfg.Report(found); err != nil {
		return err
	}
	benchmarks := map[string]func(context.Context) error{
		"engine": r.engine, "ingest": r.ingest, "get": r.get, "resp": r.resp, "freshness": r.freshness, "live": r.live, "recover": r.recover, "ysb": r.ysb, "group": r.group,
	}
	for _, name := range cfg.Benchmarks {
		if err := benchmarks[name](ctx); err != nil {
			return fmt.Errorf("bench %s: %w", name, err)
		}
	}
	return nil
}

// dataDir returns a new empty directory.
func (r *runner) dataDir() string {
	r.dirs++
	return filepath.Join(r.dir, fmt.Sprint(r.dirs))
}

// wants reports whether a case is to be run.
func (r *runner) wants(name string) bool {
	words := strings.Fields(name)
	for _, w := range strings.Fields(r.cfg.Case) {
		if !slices.Contains(words, w) {
			return false
		}
	}
	return true
}

// progress says what is under way.
func (r *runner) progress(format string, args ...any) {
	r.cfg.Progress(fmt.Sprintf(format, args...))
}
