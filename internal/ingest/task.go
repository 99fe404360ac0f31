package ingest

import (
	"crypto/sha256"
	"hash"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/kafka"
	"provstream/internal/topics"
	"provstream/verify"
)

// task reads one hook partition.
type task struct {
	s          *service
	topic      string
	partition  int32
	partitions int32 // of prov.steps and the others

	// next is the offset up to which coverage has been told, at that of the record
	// to be read next; what the partition lost is told as a gap.
	next, at int64
	// recordedAt is the largest recorded_at so far; known after the first
	// record that is no marker.
	recordedAt int64
	known      bool

	batch batch
	slab  kafka.Slab
	rec   codec.Record
	raw   acs.Hash
	out   *kafka.Out
	emit  func(runKey, value []byte)

	stepsTopic, deadLetterTopic, coverageTopic string
	counters                                   *topicCounters
}

// batch is what one transaction has read of the partition so far.
type batch struct {
	open bool
	counts
	hashes hash.Hash
}

// counts are of records that were read.
type counts struct {
	records, bytes, steps, rejected, deadLetters, dropped, redriven int64
}

func (c *counts) add(d *counts) {
	c.records += d.records
	c.bytes += d.bytes
	c.steps += d.steps
	c.rejected += d.rejected
	c.deadLetters += d.deadLetters
	c.dropped += d.dropped
	c.redriven += d.redriven
}

func (s *service) open(c *kafka.Cluster, in kafka.Input) (kafka.Task, error) {
	t := &task{
		s: s, topic: in.Topic, partition: in.Partition, partitions: c.Partitions, next: max(0, in.Committed), at: max(0, in.Committed),
		stepsTopic: s.cfg.Topic(topics.Steps), deadLetterTopic: s.cfg.Topic(topics.DeadLetter), coverageTopic: s.cfg.Topic(topics.Coverage),
		counters: s.metrics.topic(in.Topic),
	}
	t.recordedAt, t.known = kafka.ParseRecordedAtMetadata(in.Metadata)
	if in.Committed >= 0 && in.Metadata == "" {
		// Ingest commits nothing without metadata. What is read again, or skipped,
		// stands in coverage as read twice or by nobody.
		s.cfg.Logger.Warn("the group's offset of a hook partition was set by somebody else", "topic", in.Topic, "partition", in.Partition, "offset", in.Committed)
		s.metrics.resets.Inc()
	}
	t.batch.hashes = sha256.New()
	t.emit = func(runKey, value []byte) {
		r := t.slab.Record()
		r.Topic = t.stepsTopic
		r.Partition = topics.Partition(runKey, t.partitions)
		r.Key, r.Value = t.slab.Bytes(runKey), t.slab.Bytes(value)
		t.out.Produce(r)
	}
	return t, nil
}

// Process implements [kafka.Task].
func (t *task) Process(records []*kgo.Record, out *kafka.Out) error {
	reader := <-t.s.readers
	began := time.Now()
	defer func() {
		t.s.metrics.batch.Observe(time.Since(began).Seconds())
		t.s.readers <- reader
	}()
	t.begin(out)
	if first := records[0].Offset; first < t.at {
		// The topic was truncated, or deleted and created again: its offsets
		// begin anew. What was read of the old one stands.
		t.s.cfg.Logger.Warn("the offsets of a hook partition went back", "topic", t.topic, "partition", t.partition, "expected", t.at, "found", first)
		t.s.metrics.resets.Inc()
		if err := t.Flush(t.at, out); err != nil {
			return err
		}
		t.next = first
	}
	t.batch.open = true
	last := records[len(records)-1].Offset
	now := nowMs() // everything here was fetched before
	var n counts
	for _, r := range records {
		if r.Attrs.IsControl() {
			r.Recycle()
			continue
		}
		if at := min(r.Timestamp.UnixMilli(), now); !t.known || at > t.recordedAt {
			t.recordedAt, t.known = at, true
		}
		if kept := t.read(reader, r, now, &n); !kept {
			r.Recycle()
		}
	}
	t.batch.add(&n)
	t.counters.add(&n)
	t.at = last + 1
	return nil
}

// begin readies the task for the output of a transaction.
func (t *task) begin(out *kafka.Out) {
	t.out = out
	t.slab.For(out)
}

// read reads a record; kept is true when its memory is part of what is produced.
func (t *task) read(reader *codec.Reader, r *kgo.Record, now int64, n *counts) (kept bool) {
	rec := &t.rec
	rec.Topic, rec.Partition, rec.Offset, rec.Timestamp = r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli()
	rec.Key, rec.Value = r.Key, r.Value
	rec.Headers = rec.Headers[:0]
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, codec.Header{Key: h.Key, Value: h.Value})
	}
	res := reader.Read(rec, now, t.emit)
	t.raw = res.RawHash // not from res itself: what an interface sees goes to the heap
	t.batch.hashes.Write(t.raw[:])
	n.records++
	n.bytes += int64(len(r.Value))
	n.steps += int64(res.Steps)
	n.rejected += int64(res.Rejected)
	n.dropped += int64(res.Dropped)
	if attempts(r) > 0 {
		n.redriven++
	}
	if res.DeadLetter != nil {
		n.deadLetters++
		t.s.metrics.deadLetters.WithLabelValues(t.topic, res.DeadLetter.Kind).Inc()
		t.out.Produce(t.deadLetter(r, res.DeadLetter))
	}
	return res.DeadLetter != nil
}

// Gap implements [kafka.Task]: offsets that are gone before they were read are
// part of the evidence. What the transaction has read before them is told first.
func (t *task) Gap(from, to int64, out *kafka.Out) error {
	if err := t.Flush(from, out); err != nil {
		return err
	}
	t.begin(out)
	t.s.cfg.Logger.Error("records were lost before ingest read them", "topic", t.topic, "partition", t.partition, "from", from, "to", to)
	t.s.metrics.gaps.WithLabelValues(t.topic).Add(float64(to - from))
	t.coverage(verify.Coverage{From: from, To: to, Gap: true})
	t.next, t.at = to, to
	return nil
}

// Flush implements [kafka.Task]: the coverage of this transaction.
func (t *task) Flush(next int64, out *kafka.Out) error {
	if !t.batch.open {
		return nil
	}
	t.begin(out)
	b := &t.batch
	c := verify.Coverage{
		From: t.next, To: next, Records: b.records, Steps: b.steps, Rejected: b.rejected, DeadLetters: b.deadLetters, Dropped: b.dropped,
	}
	b.hashes.Sum(c.ValuesHash[:0])
	t.coverage(c)
	b.hashes.Reset()
	t.batch = batch{hashes: b.hashes}
	t.next, t.at = next, next
	return nil
}

// Metadata implements [kafka.Task].
func (t *task) Metadata() string {
	if !t.known {
		return "-" // see open
	}
	return kafka.RecordedAtMetadata(t.recordedAt)
}

// Close implements [kafka.Task].
func (t *task) Close() {}

// coverage writes a record of prov.coverage, placed by its key as a step is.
func (t *task) coverage(c verify.Coverage) {
	c.Topic, c.Partition = t.topic, t.partition
	key := t.topic + "/" + strconv.Itoa(int(t.partition))
	r := t.slab.Record()
	r.Topic, r.Partition = t.coverageTopic, topics.Partition([]byte(key), t.partitions)
	r.Key, r.Value = []byte(key), c.Append(nil)
	t.out.Produce(r)
}
