package kafka

import (
	"github.com/prometheus/client_golang/prometheus"
)

// loopMetrics of every service; service is a label:
//
//	provstream_transactions_total{service,result}     result is committed, aborted or failed
//	provstream_transaction_duration_seconds{service}  from the first record to the commit
//	provstream_transaction_end_seconds{service}       of it, flush and commit
//	provstream_input_records_total{service}           records consumed, repeats after an abort included
//	provstream_output_records_total{service}          records produced
//	provstream_output_bytes_total{service}            bytes of their keys and values
//	provstream_restarts_total{service}                lives of the loop after the first
//	provstream_partitions{service,state}              state is open or opening
type loopMetrics struct {
	transactions                    *prometheus.CounterVec
	duration, end                   prometheus.Observer
	input, output, outputBytes      prometheus.Counter
	restarts                        prometheus.Counter
	partitionsOpen, partitionsStart prometheus.Gauge
}

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
	m := &loopMetrics{
		transactions: transactions, duration: duration, end: end,
		input:           counter("input_records_total", "Records consumed, repeats after an abort included."),
		output:          counter("output_records_total", "Records produced."),
		outputBytes:     counter("output_bytes_total", "Bytes of keys and values produced."),
		restarts:        counter("restarts_total", "Lives of the loop after the first."),
		partitionsOpen:  partitions.WithLabelValues("open"),
		partitionsStart: partitions.WithLabelValues("opening"),
	}
	if reg != nil {
		reg.MustRegister(transactions, duration, end, m.input, m.output, m.outputBytes, m.restarts, partitions)
	}
	return m
}

func (m *loopMetrics) transaction(e TransactionEnd) {
	result := "committed"
	switch {
	case e.Err != nil:
		result = "failed"
	case !e.Committed:
		result = "aborted"
	}
	m.transactions.WithLabelValues(result).Inc()
	m.duration.Observe(e.Duration.Seconds())
	m.end.Observe(e.End.Seconds())
	m.input.Add(float64(e.Records))
	m.output.Add(float64(e.Produced))
	m.outputBytes.Add(float64(e.Bytes))
}
