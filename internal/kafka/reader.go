package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrOffsetOutOfRange says that a partition no longer (or not yet) holds the
// offset that a read asked for.
var ErrOffsetOutOfRange = errors.New("offset is not in the log")

// Isolation of a raw read.
type Isolation int8

// ReadUncommitted sees everything up to the high watermark, ReadCommitted only
// what committed transactions and plain producers wrote.
const (
	ReadUncommitted Isolation = 0
	ReadCommitted   Isolation = 1
)

// Bounds are the ends of a partition's log.
type Bounds struct {
	Start int64 // first offset that is there
	End   int64 // high watermark
}

// Bounds of one partition, read uncommitted: what stands below End was written
// before the call.
func (c *Cluster) Bounds(ctx context.Context, topic string, partition int32) (Bounds, error) {
	start, err := c.Admin.ListStartOffsets(ctx, topic)
	if err != nil {
		return Bounds{}, fmt.Errorf("start offset of %s/%d: %w", topic, partition, err)
	}
	end, err := c.Admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return Bounds{}, fmt.Errorf("end offset of %s/%d: %w", topic, partition, err)
	}
	s, ok1 := start.Lookup(topic, partition)
	e, ok2 := end.Lookup(topic, partition)
	if !ok1 || !ok2 {
		return Bounds{}, fmt.Errorf("offsets of %s/%d: no such partition", topic, partition)
	}
	if err := errors.Join(s.Err, e.Err); err != nil {
		return Bounds{}, fmt.Errorf("offsets of %s/%d: %w", topic, partition, err)
	}
	return Bounds{Start: s.Offset, End: e.Offset}, nil
}

// Read hands the records of a partition from one offset up to, not including,
// another to fn, in order, a fetch at a time. It returns when it has passed
// offset to-1, whether or not a visible record stands there: what a consumer's
// poll cannot tell. Under [ReadCommitted] it therefore waits until every
// transaction below `to` is decided.
//
// The records and their bytes may be kept. An offset that was deleted is
// [ErrOffsetOutOfRange].
func (c *Cluster) Read(ctx context.Context, topic string, partition int32, from, to int64, iso Isolation, fn func([]*kgo.Record) error) error {
	r := rawReader{c: c, topic: topic, partition: partition, iso: iso}
	// One fetch is always under way while fn works on the one before: two
	// goroutines, one slot.
	type part struct {
		recs []*kgo.Record
		err  error
	}
	ctx, cancel := context.WithCancel(ctx)
	parts := make(chan part, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(parts)
		for next := from; next < to; {
			recs, n, err := r.fetch(ctx, next)
			for len(recs) != 0 && recs[len(recs)-1].Offset >= to {
				recs = recs[:len(recs)-1]
			}
			select {
			case parts <- part{recs, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			next = n
		}
	}()
	defer func() { cancel(); <-done }()
	for p := range parts {
		if p.err != nil {
			return fmt.Errorf("read %s/%d: %w", topic, partition, p.err)
		}
		if len(p.recs) == 0 {
			continue
		}
		if err := fn(p.recs); err != nil {
			return err
		}
	}
	return ctx.Err()
}

type rawReader struct {
	c         *Cluster
	topic     string
	partition int32
	iso       Isolation

	known  bool
	id     [16]byte
	leader int32
}

const (
	// The limit of a fetch is above that of its one partition: kfake forgets to
	// list aborted transactions where the former ends a response.
	rawFetchBytes = 64 << 20
	rawPartBytes  = 8 << 20
	rawFetchWait  = 500 * time.Millisecond
)

// fetch returns what stands at offset and after, and the offset to go on at.
// Faults of leadership and of the connection are waited out until ctx ends.
func (r *rawReader) fetch(ctx context.Context, offset int64) ([]*kgo.Record, int64, error) {
	for backoff := 20 * time.Millisecond; ; backoff = min(2*backoff, time.Second) {
		recs, next, err := r.try(ctx, offset)
		switch {
		case err == nil:
			return recs, next, nil
		case errors.Is(err, kerr.OffsetOutOfRange):
			return nil, offset, fmt.Errorf("%w: %d", ErrOffsetOutOfRange, offset)
		case ctx.Err() != nil:
			return nil, offset, ctx.Err()
		case errors.Is(err, kerr.UnknownTopicOrPartition) && backoff >= time.Second:
			return nil, offset, err // not a topic that is only just being created
		case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kgo.ErrClientClosed), errors.Is(err, kerr.CorruptMessage):
			return nil, offset, err
		}
		r.known = false
		select {
		case <-ctx.Done():
			return nil, offset, fmt.Errorf("%w (last: %w)", ctx.Err(), err)
		case <-time.After(backoff):
		}
	}
}

func (r *rawReader) try(ctx context.Context, offset int64) ([]*kgo.Record, int64, error) {
	if !r.known {
		if err := r.locate(ctx); err != nil {
			return nil, 0, err
		}
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = int32(rawFetchWait.Milliseconds())
	req.MinBytes = 1
	req.MaxBytes = rawFetchBytes
	req.IsolationLevel = int8(r.iso)
	req.SessionEpoch = -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = r.topic, r.id
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = r.partition, offset, rawPartBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)

	kresp, err := r.c.Client.Broker(int(r.leader)).Request(ctx, req)
	if err != nil {
		return nil, 0, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, offset, nil // nothing new within the wait
	}
	opts := kgo.ProcessFetchPartitionOpts{Offset: offset, Topic: r.topic, Partition: r.partition}
	opts.IsolationLevel = kgo.ReadUncommitted()
	if r.iso == ReadCommitted {
		opts.IsolationLevel = kgo.ReadCommitted()
	}
	fp, next := kgo.ProcessFetchPartition(opts, &resp.Topics[0].Partitions[0], kgo.DefaultDecompressor(), nil)
	if fp.Err != nil {
		return nil, offset, fp.Err
	}
	if len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
		// Nothing stands between offset and the end: a compacted topic may lack
		// its last records.
		end := fp.HighWatermark
		if r.iso == ReadCommitted {
			end = fp.LastStableOffset
		}
		next = end
	}
	return fp.Records, max(next, offset), nil
}

// locate finds the partition's leader.
func (r *rawReader) locate(ctx context.Context) error {
	md, err := r.c.metadata(ctx, r.topic)
	if err != nil {
		return err
	}
	for _, t := range md.Topics {
		if t.Topic == nil || *t.Topic != r.topic {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
		for _, p := range t.Partitions {
			if p.Partition != r.partition {
				continue
			}
			if p.Leader < 0 {
				return kerr.LeaderNotAvailable
			}
			r.known, r.id, r.leader = true, t.TopicID, p.Leader
			return nil
		}
	}
	return kerr.UnknownTopicOrPartition
}
