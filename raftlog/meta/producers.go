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
}

// Why not fewer: a copied bucket should hold thousandths of the names. Why not more: the array itself is copied too.
const producerBuckets = 256

type producer struct {
	epoch    dataflow.ProducerEpoch
	instance string
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
	n := t.n
	if _, known := bucket[name]; !known {
		n++
	}
	bucket[name] = p
	next[i] = bucket
	return producers{buckets: next, n: n}
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
	t.buckets[i][name] = p
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
