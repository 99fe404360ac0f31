package aggregator

import (
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/kafka"
	"provstream/internal/lineage"
	"provstream/internal/window"
)

// metrics of the aggregator:
//
//	provstream_aggregator_emitted_total{topic}            summaries and DAGs produced
//	provstream_aggregator_undecodable_total               records of prov.steps that are no step and no tick
//	provstream_aggregator_restored_records_total          records of prov.steps replayed by restores
//	provstream_aggregator_restore_seconds                 how long restores took
//	provstream_aggregator_ticks_total                     ticks written
//	provstream_aggregator_tick_errors_total               ticks that could not be written
//	provstream_aggregator_clock_observe_errors_total      looks at the hook topics that failed
//	provstream_aggregator_clock_age_seconds               how far the observed time lies behind now; grows while none can be observed
//	provstream_aggregator_clock_blocked                   1 while a hook partition was never read by ingest
//	provstream_aggregator_clock_holder_seconds{topic,partition}  how far the hook partition that holds the clock back holds it back
//	provstream_aggregator_copies_total                    steps and decisions dropped as copies
//	provstream_aggregator_late_total                      steps and decisions that came after their run had ended
//	provstream_aggregator_seals_total{reason}             segments sealed
//	provstream_aggregator_anomalies_total{code}           anomalies told by final summaries
//	provstream_aggregator_open_runs{partition}            runs with an open segment
//	provstream_aggregator_remembered_runs{partition}      runs held, the sealed ones included
//	provstream_aggregator_open_steps{partition}           records of open segments
//	provstream_aggregator_remembered_ids{partition}       hashes remembered of sealed segments
//	provstream_aggregator_oldest_open_run_timestamp_seconds{partition}  last record of the open run that is silent for longest; absent without one
//	provstream_aggregator_log_clock_timestamp_seconds{partition}        the log's clock
//	provstream_aggregator_replay_records{partition}       records of prov.steps that a restore would read
//	provstream_aggregator_state_bytes_total{partition}    written to prov.aggregator.state
//	provstream_aggregator_restore_remaining_records{partition}  of a restore that is under way
type metrics struct {
	emitted                          *prometheus.CounterVec
	undecodable, restored            prometheus.Counter
	restore                          prometheus.Histogram
	ticks, tickErrors, observeErrors prometheus.Counter
	clockBlocked                     prometheus.Gauge
	holder                           *prometheus.GaugeVec
	copies, late                     prometheus.Counter
	seals, anomalies                 *prometheus.CounterVec

	// by partition
	openRuns, runs, openSteps, ids, oldest, logClock, replay, remaining *prometheus.GaugeVec
	stateBytes                                                          *prometheus.CounterVec

	health *kafka.Health

	mu      sync.Mutex
	observe int64 // ms; 0 before the first observation
}

func newMetrics(reg prometheus.Registerer, health *kafka.Health) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "provstream_aggregator_" + name, Help: help})
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "provstream_aggregator_" + name, Help: help}, labels)
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "provstream_aggregator_" + name, Help: help}, labels)
	}
	m := &metrics{
		emitted:     counters("emitted_total", "Summaries and DAGs produced.", "topic"),
		undecodable: counter("undecodable_total", "Records of prov.steps that are no step and no tick."),
		restored:    counter("restored_records_total", "Records of prov.steps replayed by restores."),
		restore: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "provstream_aggregator_restore_seconds", Help: "How long restores of a partition took.",
			Buckets: prometheus.ExponentialBuckets(.01, 4, 8),
		}),
		ticks:         counter("ticks_total", "Ticks written."),
		tickErrors:    counter("tick_errors_total", "Ticks that could not be written."),
		observeErrors: counter("clock_observe_errors_total", "Looks at the hook topics that failed."),
		clockBlocked: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "provstream_aggregator_clock_blocked", Help: "1 while a hook partition with records was never read by ingest.",
		}),
		holder:     gauges("clock_holder_seconds", "How far the hook partition that holds the clock back holds it back.", "topic", "partition"),
		copies:     counter("copies_total", "Steps and decisions dropped as copies."),
		late:       counter("late_total", "Steps and decisions that came after their run had ended."),
		seals:      counters("seals_total", "Segments sealed, by reason.", "reason"),
		anomalies:  counters("anomalies_total", "Anomalies told by final summaries, by code.", "code"),
		openRuns:   gauges("open_runs", "Runs with an open segment.", "partition"),
		runs:       gauges("remembered_runs", "Runs held, the sealed ones that are still remembered included.", "partition"),
		openSteps:  gauges("open_steps", "Records of open segments.", "partition"),
		ids:        gauges("remembered_ids", "Hashes remembered of sealed segments.", "partition"),
		oldest:     gauges("oldest_open_run_timestamp_seconds", "Last record of the open run that is silent for longest.", "partition"),
		logClock:   gauges("log_clock_timestamp_seconds", "The log's clock.", "partition"),
		replay:     gauges("replay_records", "Records of prov.steps that a restore would read.", "partition"),
		remaining:  gauges("restore_remaining_records", "Records of prov.steps that a restore under way has still to read.", "partition"),
		stateBytes: counters("state_bytes_total", "Bytes written to prov.aggregator.state.", "partition"),
		health:     health,
	}
	// So that the first of each is an increase.
	for _, why := range window.Reasons() {
		m.seals.WithLabelValues(why.String())
	}
	for _, code := range lineage.Codes() {
		m.anomalies.WithLabelValues(code.String())
	}
	if reg != nil {
		reg.MustRegister(m.emitted, m.undecodable, m.restored, m.restore, m.ticks, m.tickErrors, m.observeErrors, m.clockBlocked, m.holder,
			m.copies, m.late, m.seals, m.anomalies, m.openRuns, m.runs, m.openSteps, m.ids, m.oldest, m.logClock, m.replay, m.remaining, m.stateBytes,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "provstream_aggregator_clock_age_seconds", Help: "How far the observed time lies behind now; it grows while none can be observed.",
			}, m.clockAge))
	}
	return m
}

// clockAge is 0 before the first observation.
func (m *metrics) clockAge() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.observe == 0 {
		return 0
	}
	return time.Since(time.UnixMilli(m.observe)).Seconds()
}

func (m *metrics) observed(o kafka.Observation) {
	m.holder.Reset()
	age := 0.0
	if o.Holder != nil && o.OK {
		age = max(0, time.Since(time.UnixMilli(o.Holder.Holds)).Seconds())
		m.holder.WithLabelValues(o.Holder.Topic, strconv.Itoa(int(o.Holder.Partition))).Set(age)
	}
	if !o.OK {
		if o.Holder == nil {
			m.health.Note("clock", "stands still: no hook topic is to be seen")
		} else {
			m.clockBlocked.Set(1)
			m.health.Note("clock", fmt.Sprintf("stands still: ingest has never committed an offset of %s/%d, which has records", o.Holder.Topic, o.Holder.Partition))
		}
		return
	}
	m.clockBlocked.Set(0)
	m.mu.Lock()
	m.observe = o.T
	m.mu.Unlock()
	text := time.UnixMilli(o.T).UTC().Format(time.RFC3339)
	if o.Holder != nil {
		text += fmt.Sprintf(", held back %.0f s by %s/%d, which ingest has not read to its end", age, o.Holder.Topic, o.Holder.Partition)
	}
	m.health.Note("clock", text)
}

// told is what of a partition's statistics was added to the counters already.
type told struct {
	stats window.Stats
	at    time.Time
	cost  time.Duration
}

// baseline takes what a restore has counted again as told.
func (t *task) baseline() { t.told.stats = t.window.Stats() }

// report turns a partition's statistics into metrics. Looking at them costs time
// in proportion to the open runs, so it looks less often the longer that takes.
func (t *task) report(next int64) {
	now := time.Now()
	if now.Sub(t.told.at) < 50*t.told.cost {
		return
	}
	st := t.window.Stats()
	m, last, p := t.s.metrics, t.told.stats, strconv.Itoa(int(t.partition))
	m.copies.Add(float64(st.Copies - last.Copies))
	m.late.Add(float64(st.Late - last.Late))
	for _, why := range window.Reasons() {
		m.seals.WithLabelValues(why.String()).Add(float64(st.Seals[why] - last.Seals[why]))
	}
	for code, n := range st.Anomalies {
		if d := n - last.Anomalies[code]; d > 0 {
			m.anomalies.WithLabelValues(code).Add(float64(d))
		}
	}
	m.openRuns.WithLabelValues(p).Set(float64(st.OpenRuns))
	m.runs.WithLabelValues(p).Set(float64(st.Runs))
	m.openSteps.WithLabelValues(p).Set(float64(st.OpenSteps))
	m.ids.WithLabelValues(p).Set(float64(st.RememberedIDs))
	if st.OpenRuns == 0 {
		m.oldest.DeleteLabelValues(p)
	} else {
		m.oldest.WithLabelValues(p).Set(float64(st.OldestOpen) / 1000)
	}
	low, _, _ := t.window.Low(next)
	m.replay.WithLabelValues(p).Set(float64(next - low))
	if clock, ok := t.window.Clock(); ok {
		m.logClock.WithLabelValues(p).Set(float64(clock) / 1000)
	}
	t.told = told{stats: st, at: now, cost: time.Since(now)}
}

// restoring follows one restore.
type restoring struct {
	m         *metrics
	partition int32
	began     time.Time
}

func (m *metrics) restoreBegins(partition int32, records int64) *restoring {
	r := &restoring{m: m, partition: partition, began: time.Now()}
	m.remaining.WithLabelValues(strconv.Itoa(int(partition))).Set(float64(records))
	return r
}

// read tells of records on the way to an offset.
func (r *restoring) read(records []*kgo.Record, to int64) {
	if len(records) == 0 {
		return
	}
	r.m.restored.Add(float64(len(records)))
	r.m.remaining.WithLabelValues(strconv.Itoa(int(r.partition))).Set(float64(to - records[len(records)-1].Offset - 1))
}

func (r *restoring) done() {
	r.m.remaining.DeleteLabelValues(strconv.Itoa(int(r.partition)))
	r.m.restore.Observe(time.Since(r.began).Seconds())
}

// forget drops the series of a partition that went. Counters stay: a rate over
// them is over what this process has done.
func (m *metrics) forget(partition int32) {
	p := strconv.Itoa(int(partition))
	for _, g := range []*prometheus.GaugeVec{m.openRuns, m.runs, m.openSteps, m.ids, m.oldest, m.logClock, m.replay, m.remaining} {
		g.DeleteLabelValues(p)
	}
}
