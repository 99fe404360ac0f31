package ingest

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of ingest:
//
//	provstream_ingest_records_total{topic}            hook records read
//	provstream_ingest_bytes_total{topic}              bytes of their values
//	provstream_ingest_steps_total{topic}              records written to prov.steps
//	provstream_ingest_rejected_total{topic}           of them, those of envelopes that were rejected and still tell whose they are
//	provstream_ingest_dropped_total{topic}            elements dropped by rule
//	provstream_ingest_redriven_total{topic}           records that were dead letters before
//	provstream_ingest_batch_seconds                   reading the records of one poll of one partition
//	provstream_ingest_dead_letters_total{topic,kind}  records with a dead letter
//	provstream_ingest_lost_offsets_total{topic}       offsets gone before they were read
//	provstream_ingest_resets_total                    hook partitions whose offsets began anew, or were set from outside
type metrics struct {
	records, bytes, steps, dropped *prometheus.CounterVec
	rejected, redriven             *prometheus.CounterVec
	deadLetters, gaps              *prometheus.CounterVec
	resets                         prometheus.Counter
	batch                          prometheus.Histogram

	mu     sync.Mutex
	topics map[string]*topicCounters
}

// topicCounters are the counters of one topic, looked up once.
type topicCounters struct {
	records, bytes, steps, dropped, rejected, redriven prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "provstream_ingest_" + name, Help: help}, labels)
	}
	m := &metrics{
		records:  vec("records_total", "Hook records read.", "topic"),
		bytes:    vec("bytes_total", "Bytes of the values of hook records read.", "topic"),
		steps:    vec("steps_total", "Records written to prov.steps.", "topic"),
		dropped:  vec("dropped_total", "Elements that are dropped by rule: pings, their answers, ServerHello results.", "topic"),
		rejected: vec("rejected_total", "Steps of envelopes that were rejected and still tell whose they are.", "topic"),
		redriven: vec("redriven_total", "Records that were dead letters before.", "topic"),
		batch: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "provstream_ingest_batch_seconds", Help: "Reading the records of one poll of one partition.",
			Buckets: prometheus.ExponentialBuckets(.0001, 4, 8),
		}),
		deadLetters: vec("dead_letters_total", "Records with a dead letter, by its kind.", "topic", "kind"),
		gaps:        vec("lost_offsets_total", "Offsets that were gone before they were read.", "topic"),
		resets:      prometheus.NewCounter(prometheus.CounterOpts{Name: "provstream_ingest_resets_total", Help: "Hook partitions whose offsets began anew, or whose committed offset was set by somebody else."}),
		topics:      make(map[string]*topicCounters),
	}
	if reg != nil {
		reg.MustRegister(m.records, m.bytes, m.steps, m.dropped, m.deadLetters, m.gaps, m.resets, m.rejected, m.redriven, m.batch)
	}
	return m
}

func (m *metrics) topic(name string) *topicCounters {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.topics[name]
	if c == nil {
		c = &topicCounters{
			records: m.records.WithLabelValues(name), bytes: m.bytes.WithLabelValues(name),
			steps: m.steps.WithLabelValues(name), dropped: m.dropped.WithLabelValues(name),
			rejected: m.rejected.WithLabelValues(name), redriven: m.redriven.WithLabelValues(name),
		}
		m.gaps.WithLabelValues(name)
		m.topics[name] = c
	}
	return c
}

// add counts what a batch has read.
func (c *topicCounters) add(n *counts) {
	c.records.Add(float64(n.records))
	c.bytes.Add(float64(n.bytes))
	c.steps.Add(float64(n.steps))
	c.dropped.Add(float64(n.dropped))
	c.rejected.Add(float64(n.rejected))
	c.redriven.Add(float64(n.redriven))
}
