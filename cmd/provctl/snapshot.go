package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/codec"
	"provstream/internal/fleet"
	"provstream/internal/kafka"
	"provstream/internal/reconcile"
	"provstream/internal/topics"
)

// snapshot is everything that stands in a deployment's topics at one moment, as
// a committed reader sees it, in memory.
type snapshot struct {
	prefix string
	topics []topicRecords // hook topics by name, then the table's order
}

type topicRecords struct {
	base       string
	partitions []partitionRecords
}

type partitionRecords struct {
	start   int64
	records []*kgo.Record
}

// takeSnapshot reads every topic of the deployment.
func takeSnapshot(ctx context.Context, c *kafka.Cluster) (*snapshot, error) {
	names, err := c.HookTopics(ctx)
	if err != nil {
		return nil, err
	}
	s := &snapshot{prefix: c.Prefix}
	for _, n := range names {
		s.topics = append(s.topics, topicRecords{base: strings.TrimPrefix(n, c.Prefix)})
	}
	for _, t := range topics.All() {
		s.topics = append(s.topics, topicRecords{base: t.Name})
	}
	for i := range s.topics {
		if err := s.topics[i].read(ctx, c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (t *topicRecords) read(ctx context.Context, c *kafka.Cluster) error {
	topic := c.Prefix + t.base
	details, err := c.Admin.ListTopics(ctx, topic)
	if err != nil {
		return fmt.Errorf("topic %s: %w", topic, err)
	}
	for p := range int32(len(details[topic].Partitions)) {
		b, err := c.Bounds(ctx, topic, p)
		if err != nil {
			return err
		}
		pr := partitionRecords{start: b.Start}
		if b.Start < b.End {
			err = c.Read(ctx, topic, p, b.Start, b.End, kafka.ReadCommitted, func(records []*kgo.Record) error {
				pr.records = append(pr.records, records...)
				return nil
			})
			if err != nil {
				return err
			}
		}
		t.partitions = append(t.partitions, pr)
	}
	return nil
}

// each calls f with the records of a topic of the table, partition by partition
// in the order of their offsets.
func (s *snapshot) each(base string, f func(*kgo.Record) error) error {
	for _, t := range s.topics {
		if t.base != base {
			continue
		}
		for _, p := range t.partitions {
			for _, r := range p.records {
				if err := f(r); err != nil {
					return fmt.Errorf("%s/%d@%d: %w", r.Topic, r.Partition, r.Offset, err)
				}
			}
		}
	}
	return nil
}

// keep writes each topic to dir as <topic>.jsonl, an empty file for a topic
// without records.
func (s *snapshot) keep(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, t := range s.topics {
		if err := t.keep(filepath.Join(dir, s.prefix+t.base+".jsonl")); err != nil {
			return err
		}
	}
	return nil
}

func (t *topicRecords) keep(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	var line []byte
	for _, p := range t.partitions {
		for _, r := range p.records {
			rec := fleet.Record{Topic: r.Topic, Key: r.Key, TimeMs: r.Timestamp.UnixMilli(), Value: r.Value}
			for _, h := range r.Headers {
				rec.Headers = append(rec.Headers, fleet.Header{Key: h.Key, Value: h.Value})
			}
			line = fleet.AppendKept(line[:0], &rec, r.Partition, r.Offset)
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
	}
	return w.Flush()
}

// Partitions implements [reconcile.Source].
func (s *snapshot) Partitions(context.Context) ([]reconcile.Partition, error) {
	var out []reconcile.Partition
	for _, t := range s.topics {
		for i, p := range t.partitions {
			out = append(out, reconcile.Partition{Topic: s.prefix + t.base, Base: t.base, Index: int32(i), Start: p.start})
		}
	}
	return out, nil
}

// Read implements [reconcile.Source].
func (s *snapshot) Read(ctx context.Context, p reconcile.Partition, f func(*reconcile.Record) error) error {
	i := slices.IndexFunc(s.topics, func(t topicRecords) bool { return t.base == p.Base })
	if i < 0 || int(p.Index) >= len(s.topics[i].partitions) {
		return fmt.Errorf("no partition %s/%d", p.Topic, p.Index)
	}
	for _, r := range s.topics[i].partitions[p.Index].records {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rec := reconcile.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, codec.Header{Key: h.Key, Value: h.Value})
		}
		if err := f(&rec); err != nil {
			return err
		}
	}
	return nil
}
