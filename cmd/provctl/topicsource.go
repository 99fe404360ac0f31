package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/audit"
	"provstream/internal/kafka"
)

// evidenceCluster connects for reading alone: an auditor may see a few topics
// only, so nothing but those is asked for.
func evidenceCluster(f kafka.Flags) (*kafka.Cluster, error) {
	client, err := f.Client()
	if err != nil {
		return nil, err
	}
	return &kafka.Cluster{Client: client, Admin: kadm.NewClient(client), Prefix: f.Prefix}, nil
}

// partitionsOf lists the partitions of a topic.
func partitionsOf(ctx context.Context, c *kafka.Cluster, topic string) ([]int32, error) {
	md, err := c.Admin.Metadata(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	d := md.Topics[topic]
	if errors.Is(d.Err, kerr.UnknownTopicOrPartition) || d.Err == nil && len(d.Partitions) == 0 {
		return nil, fmt.Errorf("topic %s does not exist on this cluster (or may not be described): check --brokers and --prefix", topic)
	}
	if d.Err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, d.Err)
	}
	var ps []int32
	for p := range d.Partitions {
		ps = append(ps, p)
	}
	slices.Sort(ps)
	return ps, nil
}

// topicSource reads a topic, committed records only, partition by partition
// from its first offset to where it ended when its partition's turn came.
func topicSource(c *kafka.Cluster, topic string) audit.Source {
	return func(ctx context.Context, emit func(audit.Item) error) error {
		ps, err := partitionsOf(ctx, c, topic)
		if err != nil {
			return err
		}
		for _, p := range ps {
			b, err := c.Bounds(ctx, topic, p)
			if err != nil {
				return err
			}
			if b.Start >= b.End {
				continue
			}
			err = c.Read(ctx, topic, p, b.Start, b.End, kafka.ReadCommitted, func(recs []*kgo.Record) error {
				for _, r := range recs {
					if err := emit(audit.Item{Record: auditRecord(r)}); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func auditRecord(r *kgo.Record) *audit.Record {
	out := &audit.Record{Placed: true, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Keyed: r.Key != nil, Key: r.Key, Value: r.Value}
	out.Headers = make(map[string][]byte, len(r.Headers))
	for _, h := range r.Headers {
		out.Headers[h.Key] = h.Value
	}
	return out
}

// fileSource opens a file of records, or stdin for "-".
func (g *globals) fileSource(path string) (source audit.Source, closeIt func(), err error) {
	if path == "-" {
		return audit.Lines(g.stdin), func() {}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	return audit.Lines(f), func() { f.Close() }, nil
}

// keptFile is the file of a topic in a folder that demo --keep left.
func keptFile(dir, topic string) string { return filepath.Join(dir, topic+".jsonl") }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// isDir tells a folder from a file.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
