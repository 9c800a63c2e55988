package resp

import (
	"log/slog"
	"time"
)

// Config describes a Server. Backend is needed.
type Config struct {
	Backend Backend
	// MaxConns is how many connections are served at once; others are told so and closed. Default 1,024.
	MaxConns int
	// Version is what INFO says of the node.
	Version string
	Logger  *slog.Logger // default slog.Default()
}

// DefaultMaxConns is the default of Config.MaxConns. Why not larger: each may hold a command of maxCommand. Why not
// smaller: pools of many processes hold hundreds.
const DefaultMaxConns = 1024

const (
	// readBytes is the size of a connection's read buffer, and flushBytes how much is answered before it is written.
	readBytes  = 16 << 10
	flushBytes = 64 << 10
	// maxAnswer bounds the answer to one command, largeAnswer how large it may be without one of largeAnswers places.
	maxAnswer    = 64 << 20
	largeAnswer  = 1 << 20
	largeAnswers = 4
	// sliceBytes is how much of an answer is written at once: progress is seen in these steps.
	sliceBytes = 64 << 10
	// stuckTime is how long a client may take nothing of an answer, and up to a tick more: it is looked at stuckTicks times
	// in it. Longer than a busy client pauses, shorter than what it pins is missed.
	stuckTime  = 30 * time.Second
	stuckTicks = 2
	// acceptRetry is how long the server rests when it cannot take a connection, for example for want of files.
	acceptRetry = 100 * time.Millisecond
)

func (c *Config) ensureDefaults() {
	if c.MaxConns == 0 {
		c.MaxConns = DefaultMaxConns
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
}
