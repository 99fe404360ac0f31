package aggregator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"provstream/internal/kafka"
)

// metrics of the aggregator:
//
//	provstream_aggregator_emitted_total{topic}            summaries and DAGs produced
//	provstream_aggregator_undecodable_total               records of prov.steps that are no step and no tick
//	provstream_aggregator_restored_records_total          records of prov.steps replayed by restores
//	provstream_aggregator_ticks_total                     ticks written
//	provstream_aggregator_tick_errors_total               ticks that could not be written
//	provstream_aggregator_clock_observe_errors_total      looks at the hook topics that failed
//	provstream_aggregator_clock_age_seconds               how far the last observed T lies behind now
//	provstream_aggregator_clock_blocked                   1 while a hook partition was never read by ingest
type metrics struct {
	emitted                          *prometheus.CounterVec
	undecodable, restored            prometheus.Counter
	ticks, tickErrors, observeErrors prometheus.Counter
	clockAge, clockBlocked           prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "provstream_aggregator_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "provstream_aggregator_" + name, Help: help})
	}
	m := &metrics{
		emitted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "provstream_aggregator_emitted_total", Help: "Summaries and DAGs produced.",
		}, []string{"topic"}),
		undecodable:   counter("undecodable_total", "Records of prov.steps that are no step and no tick."),
		restored:      counter("restored_records_total", "Records of prov.steps replayed by restores."),
		ticks:         counter("ticks_total", "Ticks written."),
		tickErrors:    counter("tick_errors_total", "Ticks that could not be written."),
		observeErrors: counter("clock_observe_errors_total", "Looks at the hook topics that failed."),
		clockAge:      gauge("clock_age_seconds", "How far the last observed time lies behind now."),
		clockBlocked:  gauge("clock_blocked", "1 while a hook partition with records was never read by ingest."),
	}
	if reg != nil {
		reg.MustRegister(m.emitted, m.undecodable, m.restored, m.ticks, m.tickErrors, m.observeErrors, m.clockAge, m.clockBlocked)
	}
	return m
}

func (m *metrics) observed(o kafka.Observation) {
	if !o.OK {
		m.clockBlocked.Set(1)
		return
	}
	m.clockBlocked.Set(0)
	m.clockAge.Set(time.Since(time.UnixMilli(o.T)).Seconds())
}

// forget drops the series of a partition that went.
func (m *metrics) forget(int32) {}
