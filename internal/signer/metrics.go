package signer

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"provstream/verify"
)

// metrics of the signer:
//
//	provstream_signer_signatures_total{key_id}               DAGs signed
//	provstream_signer_batch_seconds                          signing, proving and checking a batch
//	provstream_signer_log_size{origin}                       leaves of the log, with the last head made
//	provstream_signer_checkpoint_timestamp_seconds{origin}   when that head was made
//	provstream_signer_key_info{key_id,use,tenant,status}     1 for each key in use and each public key that is kept
//	provstream_signer_key_reloads_total{result}              looks at a changed key directory; result is loaded or refused
type metrics struct {
	signatures    *prometheus.CounterVec
	signing       prometheus.Histogram
	size, created *prometheus.GaugeVec
	keyInfo       *prometheus.GaugeVec
	reloads       *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		signatures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "provstream_signer_signatures_total", Help: "DAGs signed, by key; repeats after an abort included.",
		}, []string{"key_id"}),
		signing: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "provstream_signer_batch_seconds", Help: "Signing, proving and checking the batch of a transaction.",
			Buckets: prometheus.ExponentialBuckets(.0005, 4, 8),
		}),
		size: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "provstream_signer_log_size", Help: "Leaves of the log, with the last head made.",
		}, []string{"origin"}),
		created: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "provstream_signer_checkpoint_timestamp_seconds", Help: "When the last head was made.",
		}, []string{"origin"}),
		keyInfo: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "provstream_signer_key_info", Help: "1 for each key in use and each public key that is kept.",
		}, []string{"key_id", "use", "tenant", "status"}),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "provstream_signer_key_reloads_total", Help: "Looks at a changed key directory, by result.",
		}, []string{"result"}),
	}
	m.reloads.WithLabelValues("loaded")
	m.reloads.WithLabelValues("refused")
	if reg != nil {
		reg.MustRegister(m.signatures, m.signing, m.size, m.created, m.keyInfo, m.reloads)
	}
	return m
}

func (m *metrics) head(origin string, size int64, at time.Time) {
	m.size.WithLabelValues(origin).Set(float64(size))
	m.created.WithLabelValues(origin).Set(float64(at.UnixMilli()) / 1000)
}

// keys tells which keys there are.
func (m *metrics) keys(public []verify.Key) {
	m.keyInfo.Reset()
	for _, k := range public {
		m.keyInfo.WithLabelValues(k.ID, string(k.Use), k.Tenant, string(k.Status)).Set(1)
	}
}

// forget drops the series of a log whose partition went.
func (m *metrics) forget(origin string) {
	m.size.DeleteLabelValues(origin)
	m.created.DeleteLabelValues(origin)
}
