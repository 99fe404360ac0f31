package signer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/evidence"
	"provstream/internal/kafka"
	"provstream/internal/merkle"
	"provstream/internal/topics"
)

// HeaderNext is a header of checkpoints: the offset of the input partition that
// was committed with it. A restart compares: between it and the committed offset
// there may be markers of transactions, and no record.
const HeaderNext = "provstream.next"

// task owns the log of one input partition.
type task struct {
	s         *service
	topic     string
	partition int32
	coverage  bool // the input is prov.coverage, whose records are logged, not signed
	log       *evidence.Log

	// What the open transaction has read.
	records []*kgo.Record
	values  [][]byte

	slab kafka.Slab

	source []byte // ce_source of the signed DAGs
}

var (
	ceSpecVersion = []byte("1.0")
	ceType        = []byte("provstream.dag.v1")
	ceContentType = []byte("application/json")
)

// open restores a partition's log: the newest committed checkpoint of its
// origin, checked by package evidence, must belong to the committed offset.
func (s *service) open(ctx context.Context, in kafka.Input) (kafka.Task, error) {
	t := &task{s: s, topic: in.Topic, partition: in.Partition, coverage: in.Topic == s.cfg.Topic(topics.Coverage)}
	logged := topics.DAGs
	if t.coverage {
		logged = topics.Coverage
	}
	logTopic := s.cfg.Topic(logged)
	t.source = []byte("kafka://" + s.cluster.ID + "/" + logTopic + "/" + strconv.Itoa(int(in.Partition)))
	origin := merkle.Origin(s.cfg.Deployment, logTopic, in.Partition)
	head, err := s.newestCheckpoint(ctx, origin, in.Partition)
	if err != nil {
		return nil, err
	}
	const cure = "put back what was reset, or start a new deployment under another --prefix; to go on would fork the log"
	checkpoints := s.cfg.Topic(topics.Checkpoints)
	switch {
	case head == nil && in.Committed >= 0:
		// Markers and aborted records alone have been passed, it may be.
		err := s.onlyMarkers(ctx, in, 0)
		if err == nil {
			t.log, err = evidence.NewLog(origin)
			return t, err
		}
		if !errors.Is(err, errUnsigned) {
			return nil, err
		}
		return nil, kafka.Fatal(fmt.Errorf("group %s has committed offset %d of %s/%d, but %s/%d has no checkpoint of %s: --deployment was changed, or the topic was emptied; %s",
			s.cfg.Group, in.Committed, in.Topic, in.Partition, checkpoints, in.Partition, origin, cure))
	case head == nil:
		t.log, err = evidence.NewLog(origin)
		return t, err
	}
	t.log, err = evidence.Restore(s.ring.current(), origin, head.Value, header(head, evidence.HeaderFrontier))
	if err != nil {
		return nil, kafka.Fatal(fmt.Errorf("%s/%d@%d: %w", checkpoints, in.Partition, head.Offset, err))
	}
	next, err := strconv.ParseInt(string(header(head, HeaderNext)), 10, 64)
	if err == nil {
		err = s.onlyMarkers(ctx, in, next)
	}
	if errors.Is(err, errUnsigned) {
		return nil, kafka.Fatal(fmt.Errorf("the newest checkpoint of %s (%s/%d@%d) was committed with offset %q of %s/%d, but group %s has committed %d: "+
			"the group's offsets were reset, or checkpoints were lost; %s",
			origin, checkpoints, in.Partition, head.Offset, header(head, HeaderNext), in.Topic, in.Partition, s.cfg.Group, in.Committed, cure))
	}
	if err != nil {
		return nil, err
	}
	s.metrics.head(origin, t.log.Size(), head.Timestamp)
	s.cfg.Logger.Info("log restored", "origin", origin, "size", t.log.Size())
	return t, nil
}

// errUnsigned says that the committed offset does not belong to the checkpoint.
var errUnsigned = errors.New("records between the newest checkpoint and the committed offset")

// onlyMarkers checks that no record stands between the offset that belongs to
// the newest checkpoint and the committed one.
func (s *service) onlyMarkers(ctx context.Context, in kafka.Input, next int64) error {
	switch {
	case next == in.Committed:
		return nil
	case next > in.Committed:
		return errUnsigned
	}
	err := s.cluster.Read(ctx, in.Topic, in.Partition, next, in.Committed, kafka.ReadCommitted, func([]*kgo.Record) error { return errUnsigned })
	if errors.Is(err, kafka.ErrOffsetOutOfRange) {
		return errUnsigned // nobody can tell any more
	}
	return err
}

// newestCheckpoint reads prov.checkpoints/p back from its end, in windows that
// grow, until it has met a committed record of the origin. Reading up to the
// high watermark under read_committed waits for the last stable offset, so that
// a transaction whose offsets are committed already and whose marker has not
// reached this topic yet is not overlooked.
func (s *service) newestCheckpoint(ctx context.Context, origin string, partition int32) (*kgo.Record, error) {
	topic := s.cfg.Topic(topics.Checkpoints)
	b, err := s.cluster.Bounds(ctx, topic, partition)
	if err != nil {
		return nil, err
	}
	var newest *kgo.Record
	end := b.End
	for window := int64(256); newest == nil && end > b.Start; window *= 4 {
		from := max(b.Start, end-window)
		err := s.cluster.Read(ctx, topic, partition, from, end, kafka.ReadCommitted, func(recs []*kgo.Record) error {
			for _, r := range recs {
				if string(r.Key) == origin {
					newest = r
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		end = from
	}
	return newest, nil
}

func header(r *kgo.Record, key string) []byte {
	for _, h := range r.Headers {
		if h.Key == key {
			return h.Value
		}
	}
	return nil
}

// Process implements [kafka.Task]: what is read is signed at the end of the
// transaction, when the head that its proofs lead to is known.
func (t *task) Process(records []*kgo.Record, _ *kafka.Out) error {
	for _, r := range records {
		if r.Attrs.IsControl() {
			r.Recycle()
			continue
		}
		t.records = append(t.records, r)
		t.values = append(t.values, r.Value)
	}
	return nil
}

// Gap implements [kafka.Task]: a log cannot lack a leaf.
func (t *task) Gap(from, to int64, _ *kafka.Out) error {
	return kafka.Fatal(fmt.Errorf("offsets [%d, %d) of %s/%d were deleted before they were signed: the log %s would lack them; "+
		"raise the topic's retention, and start a new deployment under another --prefix", from, to, t.topic, t.partition, t.log.Origin()))
}

// Flush implements [kafka.Task].
func (t *task) Flush(next int64, out *kafka.Out) error {
	if len(t.values) == 0 {
		return nil
	}
	ring := t.s.ring.current()
	started := time.Now()
	var b *evidence.Batch
	var err error
	if t.coverage {
		b, err = t.log.LogCoverage(ring, t.values)
	} else {
		b, err = t.log.SignDAGs(ring, t.values, started.UnixMilli())
	}
	if err != nil {
		var bad *evidence.RecordError
		if errors.As(err, &bad) {
			return kafka.Fatal(fmt.Errorf("%s/%d@%d is refused, nothing was signed: %w; only provstream may write this topic: check its ACLs",
				t.topic, t.partition, t.records[bad.Position].Offset, bad.Err))
		}
		return fmt.Errorf("log %s: %w", t.log.Origin(), err)
	}
	t.s.metrics.signing.Observe(time.Since(started).Seconds())
	t.slab.For(out)
	for i := range b.Records {
		t.s.metrics.signatures.WithLabelValues(b.Records[i].KeyID).Inc()
		out.Produce(t.signed(&b.Records[i], t.slab.Bytes(t.records[i].Key)))
	}
	out.Produce(t.checkpoint(&b.Checkpoint, next))
	t.s.metrics.head(t.log.Origin(), b.Checkpoint.Size, started)
	// The log moves on now; if the transaction aborts, this task is dropped
	// and the next one restores the log as it is committed.
	t.log = b.Log
	for _, r := range t.records {
		r.Recycle() // nothing of them is in what was produced
	}
	clear(t.records)
	clear(t.values)
	t.records, t.values = t.records[:0], t.values[:0]
	return nil
}

// signed is the record of prov.dags, with the headers of a CloudEvent in binary
// mode and the proof that it stands in the log.
func (t *task) signed(r *evidence.Record, key []byte) *kgo.Record {
	out := t.slab.Record()
	out.Topic, out.Partition, out.Key, out.Value = t.s.cfg.Topic(topics.DAGs), t.partition, key, r.Value
	out.Headers = []kgo.RecordHeader{
		{Key: "ce_specversion", Value: ceSpecVersion},
		{Key: "ce_id", Value: []byte(r.TenantID + "/" + r.ID)},
		{Key: "ce_type", Value: ceType},
		{Key: "ce_source", Value: t.source},
		{Key: "ce_time", Value: []byte(r.CreatedAt)},
		{Key: "content-type", Value: ceContentType},
		{Key: evidence.HeaderProof, Value: r.Proof},
	}
	return out
}

func (t *task) checkpoint(c *evidence.Checkpoint, next int64) *kgo.Record {
	r := &kgo.Record{
		Topic: t.s.cfg.Topic(topics.Checkpoints), Partition: t.partition, Key: []byte(t.log.Origin()), Value: c.Note,
		Headers: []kgo.RecordHeader{
			{Key: evidence.HeaderFrontier, Value: c.Frontier},
			{Key: HeaderNext, Value: strconv.AppendInt(nil, next, 10)},
		},
	}
	if c.Consistency != nil {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: evidence.HeaderConsistency, Value: c.Consistency})
	}
	return r
}

// Metadata implements [kafka.Task].
func (t *task) Metadata() string { return "" }

// Close implements [kafka.Task].
func (t *task) Close() {
	if t.log != nil {
		t.s.metrics.forget(t.log.Origin())
	}
}
