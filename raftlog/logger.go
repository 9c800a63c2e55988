package raftlog

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// newRaftLogger returns a logger for hashicorp/raft that writes to l. The library is chatty: its Info is our Debug. In a
// group of one its warnings are, too: it warns of having no leader before it elects itself, at every start.
func newRaftLogger(l *slog.Logger, alone bool) hclog.Logger {
	h := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	h.RegisterSink(&slogSink{l: l, alone: alone})
	return h
}

// slogSink hands hclog's records to slog.
type slogSink struct {
	l     *slog.Logger
	alone bool
}

var _ hclog.SinkAdapter = (*slogSink)(nil)

// Accept implements hclog.SinkAdapter.
func (s *slogSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	lv := slog.LevelDebug
	switch {
	case level >= hclog.Error:
		lv = slog.LevelError
	case level == hclog.Warn && !s.alone:
		lv = slog.LevelWarn
	case level < hclog.Info:
		return // its Debug and Trace repeat what Info says
	}
	if !s.l.Enabled(context.Background(), lv) {
		return
	}
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			if format, ok := f[0].(string); ok {
				args[i] = fmt.Sprintf(format, f[1:]...)
			}
		}
	}
	s.l.Log(context.Background(), lv, msg, args...)
}
