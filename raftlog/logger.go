package raftlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// newRaftLogger returns a logger for hashicorp/raft that writes to l. The library is chatty: its Info is our Debug. In a
// group of one its warnings are, too: it warns of having no leader before it elects itself, at every start. What it repeats of
// members that do not answer, the group says once. While hush is set, everything is our Debug.
func newRaftLogger(l *slog.Logger, alone bool, hush *atomic.Bool) hclog.Logger {
	h := hclog.NewInterceptLogger(&hclog.LoggerOptions{Output: io.Discard, Level: hclog.Off})
	h.RegisterSink(&slogSink{l: l, alone: alone, hush: hush})
	return h
}

// slogSink hands hclog's records to slog.
type slogSink struct {
	l     *slog.Logger
	alone bool
	hush  *atomic.Bool
}

// repeated are the beginnings of the library's messages about members that do not answer, one per call, and of those about
// members that have elected another leader or want to, which is no failure.
var repeated = []string{"peer has newer term", "rejecting pre-vote request since we have a leader", "failed to heartbeat", "failed to appendEntries", "failed to pipeline appendEntries", "failed to make request",
	"failed to start pipeline", "failed to contact", "failed to send snapshot", "failed to install snapshot"}

func isRepeated(msg string) bool {
	for _, r := range repeated {
		if strings.HasPrefix(msg, r) {
			return true
		}
	}
	return false
}

// isCutShort reports whether a message is about an entry that the log has no more. A leader finds that of a member that lags,
// which then gets a snapshot, and one that was deposed of entries that its successor has taken back.
func isCutShort(args []any) bool {
	return slices.ContainsFunc(args, func(a any) bool {
		err, ok := a.(error)
		return ok && errors.Is(err, raft.ErrLogNotFound)
	})
}

var _ hclog.SinkAdapter = (*slogSink)(nil)

// Accept implements hclog.SinkAdapter.
func (s *slogSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	lv := slog.LevelDebug
	switch {
	case s.hush.Load() || isRepeated(msg) || isCutShort(args):
	case level >= hclog.Error:
		lv = slog.LevelError
	case level == hclog.Warn && !s.alone:
		lv = slog.LevelWarn
	}
	// Its own Debug and Trace repeat what its Info says.
	if level < hclog.Info || !s.l.Enabled(context.Background(), lv) {
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
