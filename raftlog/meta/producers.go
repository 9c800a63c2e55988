package meta

import (
	"maps"

	"github.com/weirdb/weir/dataflow"
)

// producers maps producer names to epochs. There may be many, and each open changes one, so the table is cut into
// buckets and an open copies one bucket. The zero value is empty; a value is immutable.
type producers struct {
	buckets *[producerBuckets]map[string]producer
	n       int
	oldest  int64 // no producer was opened before; only to find out cheaply whether one may be forgotten
}

// Why not fewer: a copied bucket should hold thousandths of the names. Why not more: the array itself is copied too.
const producerBuckets = 256

type producer struct {
	epoch    dataflow.ProducerEpoch
	instance string
	opened   int64 // µs since 1970, in the meta log's time
}

func producerBucket(name string) int { return int(dataflow.HashKey([]byte(name)) % producerBuckets) }

func (t producers) get(name string) producer {
	if t.buckets == nil {
		return producer{}
	}
	return t.buckets[producerBucket(name)][name]
}

// with returns the table with one entry set.
func (t producers) with(name string, p producer) producers {
	next := new([producerBuckets]map[string]producer)
	if t.buckets != nil {
		*next = *t.buckets
	}
	i := producerBucket(name)
	bucket := maps.Clone(next[i])
	if bucket == nil {
		bucket = make(map[string]producer)
	}
	n, oldest := t.n, t.oldest
	if _, known := bucket[name]; !known {
		n++
	}
	if t.n == 0 {
		oldest = p.opened
	}
	bucket[name] = p
	next[i] = bucket
	return producers{buckets: next, n: n, oldest: min(oldest, p.opened)}
}

// put sets an entry in place; only for building a table that nobody has seen yet.
func (t *producers) put(name string, p producer) {
	if t.buckets == nil {
		t.buckets = new([producerBuckets]map[string]producer)
	}
	i := producerBucket(name)
	if t.buckets[i] == nil {
		t.buckets[i] = make(map[string]producer)
	}
	if _, known := t.buckets[i][name]; !known {
		t.n++
	}
	if t.n == 1 {
		t.oldest = p.opened
	}
	t.oldest = min(t.oldest, p.opened)
	t.buckets[i][name] = p
}

// forget returns the table without the producers that were opened before a time, and the largest epoch of these.
func (t producers) forget(before int64) (rest producers, epoch dataflow.ProducerEpoch) {
	if t.n == 0 || t.oldest >= before {
		return t, 0
	}
	for _, bucket := range t.buckets {
		for name, p := range bucket {
			if p.opened < before {
				epoch = max(epoch, p.epoch)
			} else {
				rest.put(name, p)
			}
		}
	}
	return rest, epoch
}

// names returns all names in unspecified order.
func (t producers) names() []string {
	out := make([]string, 0, t.n)
	if t.buckets != nil {
		for _, b := range t.buckets {
			for name := range b {
				out = append(out, name)
			}
		}
	}
	return out
}

// producersBefore is when a producer must have been opened, at least, to be remembered at a time (µs since 1970).
func producersBefore(now int64) int64 { return now - dataflow.ProducerTTL.Microseconds() }
