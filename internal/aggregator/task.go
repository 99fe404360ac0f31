package aggregator

import (
	"fmt"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/dag"
	"provstream/internal/kafka"
	"provstream/internal/topics"
	"provstream/internal/window"
)

// task owns the state of one partition.
type task struct {
	s         *service
	partition int32
	window    *window.Partition
	clock     *partitionClock
	outputs   [3]output // by window.Kind

	next     int64   // offset of the record to be processed next
	loaded   int     // records that the restore took from snapshots
	replayed int     // records that the restore read from prov.steps
	saveAll  bool    // the next flush saves every run
	written  int64   // seals under pressure are written up to this offset
	seals    []seals // the records of those that a replay may meet

	stateTopic string
	stateBytes prometheus.Counter

	step acs.Step
	slab kafka.Slab
	out  *kafka.Out
	emit func(window.Emission)
	told told
}

// output is where records of one kind go, and their headers that never change.
type output struct {
	topic          string
	source, ceType []byte
	count          func()
}

var (
	ceSpecVersion = []byte("1.0")
	ceContentType = []byte("application/json")
	ceTypes       = [3]string{window.Turn: "provstream.turn.v1", window.Session: "provstream.session.v1", window.Run: "provstream.dag.v1"}
	outputTopics  = [3]string{window.Turn: topics.Turns, window.Session: topics.Sessions, window.Run: topics.Runs}
)

func (s *service) newTask(partition int32, w *window.Partition) *task {
	t := &task{
		s: s, partition: partition, window: w,
		stateTopic: s.cfg.Topic(topics.AggregatorState), stateBytes: s.metrics.stateBytes.WithLabelValues(strconv.Itoa(int(partition))),
	}
	for kind, base := range outputTopics {
		topic := s.cfg.Topic(base)
		t.outputs[kind] = output{
			topic:  topic,
			source: []byte("kafka://" + s.cluster.ID + "/" + topic + "/" + strconv.Itoa(int(partition))),
			ceType: []byte(ceTypes[kind]),
			count:  s.metrics.emitted.WithLabelValues(topic).Inc,
		}
	}
	t.emit = t.produce
	return t
}

// attach makes the task one that the ticker serves.
func (t *task) attach(next int64, steps bool) *task {
	t.next = next
	t.clock = t.s.ticker.add(t.partition)
	t.window.SetAlloc(t.slab.Make)
	t.publish(steps)
	return t
}

// Process implements [kafka.Task].
func (t *task) Process(records []*kgo.Record, out *kafka.Out) error {
	t.begin(out)
	t.next = records[len(records)-1].Offset + 1
	t.publish(t.feed(records, t.emit))
	for _, r := range records {
		r.Recycle() // the machine keeps nothing of them
	}
	return nil
}

// begin readies the task for the output of a transaction.
func (t *task) begin(out *kafka.Out) {
	t.out = out
	t.slab.For(out)
}

// feed hands records to the machine; live work and restore are the same code.
// It tells whether a step or a decision was among them.
func (t *task) feed(records []*kgo.Record, emit func(window.Emission)) (steps bool) {
	for _, r := range records {
		if r.Attrs.IsControl() {
			continue
		}
		if tick, ok := codec.DecodeTick(r.Value); ok {
			t.window.Tick(r.Offset, tick, emit)
			continue
		}
		if err := codec.DecodeStepInPlace(&t.step, r.Value); err != nil {
			// Only ingest and the ticker write here: this is a foreign hand or
			// another version. It must not stop the log.
			t.s.metrics.undecodable.Inc()
			t.s.cfg.Logger.Error("a record is no step and no tick; it is skipped", "topic", r.Topic, "partition", r.Partition, "offset", r.Offset, "error", err)
			continue
		}
		steps = true
		t.window.Apply(r.Offset, &t.step, emit)
	}
	return steps
}

// produce turns an emission into a record of the same partition number, with
// the headers of a CloudEvent in binary mode (CloudEvents Kafka binding 1.0,
// §3.2).
func (t *task) produce(e window.Emission) {
	o := &t.outputs[e.Kind]
	o.count()
	r := t.slab.Record()
	r.Topic, r.Partition = o.topic, t.partition
	r.Key, r.Value = t.slab.Text(e.Key), e.Value
	h := t.slab.Headers(6)
	h[0] = kgo.RecordHeader{Key: "ce_specversion", Value: ceSpecVersion}
	h[1] = kgo.RecordHeader{Key: "ce_id", Value: t.slab.Text(e.ID)}
	h[2] = kgo.RecordHeader{Key: "ce_type", Value: o.ceType}
	h[3] = kgo.RecordHeader{Key: "ce_source", Value: o.source}
	h[4] = kgo.RecordHeader{Key: "ce_time", Value: dag.AppendTime(t.slab.Make(len("2006-01-02T15:04:05.000Z"))[:0], e.Time)}
	h[5] = kgo.RecordHeader{Key: "content-type", Value: ceContentType}
	r.Headers = h
	t.out.Produce(r)
}

// Gap implements [kafka.Task]: without the lost records the state would be
// that of another log.
func (t *task) Gap(from, to int64, _ *kafka.Out) error {
	if from == 0 {
		if _, ok := t.window.Clock(); !ok {
			// Nothing was ever read here: the partition starts where its log does.
			t.s.cfg.Logger.Warn("prov.steps begins behind offset 0 and nothing of it was read before", "partition", t.partition, "begins", to)
			return nil
		}
	}
	return kafka.Fatal(fmt.Errorf("offsets [%d, %d) of %s/%d were deleted before they were read: the runs in them cannot be completed; "+
		"raise the topic's retention, and start a new deployment under another --prefix", from, to, t.s.cfg.Topic(topics.Steps), t.partition))
}

// Flush implements [kafka.Task]: the partition's record in the state topic.
func (t *task) Flush(next int64, out *kafka.Out) error {
	t.report(next)
	return t.writeState(next, out)
}

// Metadata implements [kafka.Task].
func (t *task) Metadata() string { return "" }

// Close implements [kafka.Task].
func (t *task) Close() { t.s.ticker.remove(t.partition, t.clock) }

// publish tells the ticker what the machine waits for.
func (t *task) publish(steps bool) {
	now := partitionClock{open: int64(t.window.OpenRecords()), next: t.next, fresh: steps}
	now.clock, now.known = t.window.Clock()
	now.due, now.timer = t.window.NextTimer()
	t.s.ticker.update(t.clock, now)
}
