package weir

import (
	"time"

	"github.com/weirdb/weir/dataflow"
)

// Defaults of ProducerConfig.
const (
	DefaultProducerRetryFor = 60 * time.Second
	// DefaultBatchBytes is the size of one shard log entry: smaller ones cost a write to disk each, larger ones hold up
	// what is behind them.
	DefaultBatchBytes  = dataflow.MaxEntryBytes
	DefaultLinger      = 5 * time.Millisecond
	DefaultBufferBytes = 16 << 20
	DefaultInFlight    = 64
)

// ProducerConfig configures a Producer. The zero value of a field means its default.
type ProducerConfig struct {
	// Name makes the rows count once across processes: a process that is killed and reads its input again from the
	// beginning, under the same name, goes on where it was. The last batches that the log knows are sent again and compared
	// (SEQUENCE_REUSED when they differ); rows before them are taken for the same. One process at a time may use a name on a stream; a newer one
	// fences the older. See dataflow.CheckProducerName for what a name is. Empty: a random name, so that every process counts by itself.
	Name string
	// RetryFor is how long a server may be away before the producer gives up. Default 60 s; negative = no second try.
	RetryFor time.Duration
	// BatchBytes is how many bytes of one shard's rows are sent at once. Default 256 KiB.
	BatchBytes int
	// Linger is how long a row may wait for others to be sent with. Default 5 ms.
	Linger time.Duration
	// BufferBytes bounds the rows that are not acknowledged; when it is full, Append waits. Default 16 MiB.
	BufferBytes int
	// InFlight is how many batches may be under way. Default 64.
	InFlight int
}

// EnsureDefaults fills what is not set.
func (c *ProducerConfig) EnsureDefaults() {
	if c.RetryFor == 0 {
		c.RetryFor = DefaultProducerRetryFor
	}
	if c.BatchBytes == 0 {
		c.BatchBytes = DefaultBatchBytes
	}
	if c.Linger == 0 {
		c.Linger = DefaultLinger
	}
	if c.BufferBytes == 0 {
		c.BufferBytes = DefaultBufferBytes
	}
	if c.InFlight == 0 {
		c.InFlight = DefaultInFlight
	}
}

// Validate reports what is out of range.
func (c *ProducerConfig) Validate() error {
	if c.Name != "" {
		if err := dataflow.CheckProducerName(c.Name); err != nil {
			return dataflow.Errorf(dataflow.ReasonRequestInvalid, "Name: %w", err)
		}
	}
	switch {
	case dataflow.IsAnonymousProducer(c.Name):
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "Name: %q begins with %s, as the names of producers without one do, which are soon forgotten",
			c.Name, dataflow.AnonymousProducer).WithHint("choose another name")
	case c.BatchBytes < 1 || c.BatchBytes > dataflow.MaxBatchBytes:
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "BatchBytes: %d is not between 1 and %d", c.BatchBytes, dataflow.MaxBatchBytes)
	case c.Linger < 0 || c.BufferBytes < 1 || c.InFlight < 1:
		return dataflow.Errorf(dataflow.ReasonRequestInvalid, "Linger, BufferBytes and InFlight must be positive")
	}
	return nil
}
