package dataflow

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
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

// CheckProducerName says what is wrong with a producer's name, which is 1 to MaxProducerName bytes of valid UTF-8 without
// characters that do not print, as it is shown in messages and given on command lines: letters, marks, digits, signs and
// the blank. The error is REQUEST_INVALID.
func CheckProducerName(name string) error {
	switch {
	case name == "" || len(name) > MaxProducerName:
		return Errorf(ReasonRequestInvalid, "a producer's name has 1 to %d bytes; this has %d", MaxProducerName, len(name))
	case !utf8.ValidString(name):
		return Errorf(ReasonRequestInvalid, "a producer's name is UTF-8; %q is not", name)
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return Errorf(ReasonRequestInvalid, "a producer's name has characters that print; %q has %U", name, r)
		}
	}
	return nil
}
