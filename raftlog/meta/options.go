package meta

import (
	"time"

	"github.com/weirdb/weir/dataflow"
	metav1 "github.com/weirdb/weir/proto/weir/meta/v1"
)

// An entry that creates something says the value of every option, so that a member whose program has other defaults, or a
// later program that reads the log again, comes to the same state (P1). What an entry does not say, because the option did
// not exist when it was written, has the value of base…Options. These never change: an option that is added is its zero
// value there, which must mean what was so before.

func basePipelineOptions() dataflow.PipelineOptions {
	return dataflow.PipelineOptions{
		Interval: time.Second, Timeout: 10 * time.Minute, MaxConcurrent: 1, TolerableFailures: 10, Retained: 3,
		Guarantee: dataflow.GuaranteeExactlyOnce,
	}
}

func baseStreamOptions() dataflow.StreamOptions {
	return dataflow.StreamOptions{Retention: 7 * 24 * time.Hour, Grace: 7 * 24 * time.Hour}
}

// allPipelineOptions returns what opts come to with this program's defaults. Options that are not valid are left as they
// are: applying the entry refuses them.
func allPipelineOptions(opts []dataflow.Option) []dataflow.Option {
	o, err := dataflow.DefaultPipelineOptions().With(opts)
	if err != nil {
		return opts
	}
	return o.List()
}

// allStreamOptions is allPipelineOptions for a stream's.
func allStreamOptions(opts []dataflow.Option) []dataflow.Option {
	o, err := dataflow.DefaultStreamOptions().With(opts)
	if err != nil {
		return opts
	}
	return o.List()
}

func decodePipelineOptions(opts []*metav1.Option) (dataflow.PipelineOptions, error) {
	return basePipelineOptions().With(decodeOptions(opts))
}

func decodeStreamOptions(opts []*metav1.Option) (dataflow.StreamOptions, error) {
	return baseStreamOptions().With(decodeOptions(opts))
}
