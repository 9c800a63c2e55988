package api

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// metrics are the figures of the services. Names are an interface: they do not change between releases.
type metrics struct {
	requests  *prometheus.CounterVec   // weir_rpc_requests_total
	duration  *prometheus.HistogramVec // weir_rpc_duration_seconds
	inFlight  prometheus.Gauge         // weir_rpc_in_flight
	panics    prometheus.Counter       // weir_rpc_panics_total
	rows      prometheus.Counter       // weir_ingest_rows_total
	duplicate prometheus.Counter       // weir_ingest_duplicate_rows_total
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_rpc_requests_total",
			Help: "Requests answered, by method and gRPC code."}, []string{"method", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "weir_rpc_duration_seconds",
			Help:    "Time from a request to its answer, of streams to their end.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 14)}, []string{"method"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_rpc_in_flight", Help: "Requests being handled."}),
		panics:   prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_rpc_panics_total", Help: "Requests that ended in a panic."}),
		rows:     prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_rows_total", Help: "Rows acknowledged, without duplicates."}),
		duplicate: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_ingest_duplicate_rows_total",
			Help: "Rows recognised as already written."}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.inFlight, m.panics, m.rows, m.duplicate} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) ingested(rows, duplicates uint64) {
	m.rows.Add(float64(rows))
	m.duplicate.Add(float64(duplicates))
}

func (m *metrics) done(method string, code codes.Code, took time.Duration) {
	m.requests.WithLabelValues(method, code.String()).Inc()
	m.duration.WithLabelValues(method).Observe(took.Seconds())
}
