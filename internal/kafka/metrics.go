package kafka

import (
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

// loopMetrics of every service; service is a label:
//
//	provstream_transactions_total{service,result}     result is committed, aborted, failed or fenced
//	provstream_transaction_duration_seconds{service}  from the first record to the commit
//	provstream_transaction_end_seconds{service}       of it, flush and commit
//	provstream_input_records_total{service}           records consumed, repeats after an abort included
//	provstream_output_records_total{service}          records produced
//	provstream_output_bytes_total{service}            bytes of their keys and values
//	provstream_restarts_total{service}                lives of the loop after the first
//	provstream_partitions{service,state}              state is open or opening
//	provstream_ready{service}                         1 while /ready answers 200
//	provstream_consumer_lag_records{service,topic,partition}   not committed yet, of owned partitions
//	provstream_consumer_lag_seconds{service,topic,partition}   how long ago the oldest of them came
//	provstream_consumer_held_seconds{service,topic,partition}  for how long an open transaction has kept records from readers
//
// and, of the client that consumes and produces, those of kprom with the prefix
// provstream_kafka_.
type loopMetrics struct {
	transactions                    *prometheus.CounterVec
	duration, end                   prometheus.Observer
	input, output, outputBytes      prometheus.Counter
	restarts                        prometheus.Counter
	partitionsOpen, partitionsStart prometheus.Gauge
	lagRecords, lagSeconds, held    *prometheus.GaugeVec

	reg     prometheus.Registerer
	service string
}

// results of a transaction, as label values.
const (
	resultCommitted = "committed"
	resultAborted   = "aborted"
	resultFailed    = "failed"
	resultFenced    = "fenced"
)

func newLoopMetrics(reg prometheus.Registerer, service string) *loopMetrics {
	label := prometheus.Labels{"service": service}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "provstream_" + name, Help: help, ConstLabels: label})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "provstream_" + name, Help: help, ConstLabels: label,
			Buckets: []float64{.005, .01, .025, .05, .1, .15, .2, .3, .5, 1, 2.5, 5, 10},
		})
	}
	transactions := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "provstream_transactions_total", Help: "Transactions that ended, by result.", ConstLabels: label,
	}, []string{"result"})
	duration := histogram("transaction_duration_seconds", "From the first record of a transaction to its end.")
	end := histogram("transaction_end_seconds", "Flush and commit of a transaction.")
	partitions := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "provstream_partitions", Help: "Input partitions that this instance owns.", ConstLabels: label,
	}, []string{"state"})
	byPartition := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "provstream_consumer_" + name, Help: help, ConstLabels: label}, []string{"topic", "partition"})
	}
	for _, r := range []string{resultCommitted, resultAborted, resultFailed, resultFenced} {
		transactions.WithLabelValues(r) // so that a rate of it is 0 and not nothing
	}
	m := &loopMetrics{
		reg: reg, service: service,
		lagRecords:   byPartition("lag_records", "Records of an owned partition that are not committed yet."),
		lagSeconds:   byPartition("lag_seconds", "How long ago the oldest record that is not committed came."),
		held:         byPartition("held_seconds", "For how long, at least, an open transaction has kept records of an owned partition from everybody who reads committed ones."),
		transactions: transactions, duration: duration, end: end,
		input:           counter("input_records_total", "Records consumed, repeats after an abort included."),
		output:          counter("output_records_total", "Records produced."),
		outputBytes:     counter("output_bytes_total", "Bytes of keys and values produced."),
		restarts:        counter("restarts_total", "Lives of the loop after the first."),
		partitionsOpen:  partitions.WithLabelValues("open"),
		partitionsStart: partitions.WithLabelValues("opening"),
	}
	if reg != nil {
		reg.MustRegister(transactions, duration, end, m.input, m.output, m.outputBytes, m.restarts, partitions, m.lagRecords, m.lagSeconds, m.held)
	}
	return m
}

// watch makes the gauge that repeats what /ready says.
func (m *loopMetrics) watch(h *Health) {
	if m.reg == nil || h == nil {
		return
	}
	m.reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "provstream_ready", Help: "1 while the service does its work.", ConstLabels: prometheus.Labels{"service": m.service},
	}, func() float64 {
		if h.Status().NotReady() == "" {
			return 1
		}
		return 0
	}))
}

// clientHooks are the metrics of one client; it takes them along when it is closed.
func (m *loopMetrics) clientHooks() []kgo.Hook {
	if m.reg == nil {
		return nil
	}
	return []kgo.Hook{kprom.NewMetrics("provstream", kprom.Subsystem("kafka"), kprom.Registerer(m.reg),
		kprom.WithStaticLabel(prometheus.Labels{"service": m.service}), kprom.FetchAndProduceDetail(kprom.ByTopic, kprom.Batches, kprom.Records, kprom.CompressedBytes, kprom.UncompressedBytes),
		kprom.Histograms(kprom.ReadWait, kprom.ReadTime, kprom.WriteWait, kprom.WriteTime, kprom.RequestDurationE2E, kprom.RequestThrottled))}
}

func (m *loopMetrics) setLag(key Partition, records int64, seconds, held float64) {
	p := strconv.Itoa(int(key.Partition))
	m.lagRecords.WithLabelValues(key.Topic, p).Set(float64(records))
	m.lagSeconds.WithLabelValues(key.Topic, p).Set(seconds)
	m.held.WithLabelValues(key.Topic, p).Set(held)
}

func (m *loopMetrics) dropLag(key Partition) {
	p := strconv.Itoa(int(key.Partition))
	m.lagRecords.DeleteLabelValues(key.Topic, p)
	m.lagSeconds.DeleteLabelValues(key.Topic, p)
	m.held.DeleteLabelValues(key.Topic, p)
}

// fenced tells whether an error says that another process took over.
func fenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.FencedInstanceID)
}

func (m *loopMetrics) transaction(e TransactionEnd) {
	result := resultCommitted
	switch {
	case fenced(e.Err):
		result = resultFenced
	case e.Err != nil:
		result = resultFailed
	case !e.Committed:
		result = resultAborted
	}
	m.transactions.WithLabelValues(result).Inc()
	m.duration.Observe(e.Duration.Seconds())
	m.end.Observe(e.End.Seconds())
	m.input.Add(float64(e.Records))
	m.output.Add(float64(e.Produced))
	m.outputBytes.Add(float64(e.Bytes))
}
