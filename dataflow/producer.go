package dataflow

import (
	"strings"
	"time"
)

// AnonymousProducer begins the names of producers whose sessions end with their process: the rest is random, so that
// nobody ever opens such a name again to go on. Their epoch is always 1, the meta log does not keep them, and the shards
// soon forget them.
const AnonymousProducer = "anonymous-"

// How long a producer is remembered after it was last heard of, in the time of the log that remembers it. What is
// forgotten stands at row 0 again: a producer that sends its rows from the beginning counts them twice.
const (
	// ProducerTTL is longer than an ingest that is run again stays away.
	ProducerTTL = 7 * 24 * time.Hour
	// AnonymousProducerTTL is longer than a process tries to send its rows again. Not as long as ProducerTTL, because every
	// run of an ingest without a name leaves one behind in every shard. A process that lives longer says so by opening the
	// same name again (AnonymousProducerRenew).
	AnonymousProducerTTL = time.Hour
	// AnonymousProducerRenew is how often an anonymous producer should open its name again while it lives.
	AnonymousProducerRenew = 10 * time.Minute
)

// IsAnonymousProducer reports whether a producer's name is one of those that are used by one process only.
func IsAnonymousProducer(name string) bool { return strings.HasPrefix(name, AnonymousProducer) }
