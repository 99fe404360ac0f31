package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/codec"
	"provstream/internal/kafka"
	"provstream/internal/topics"
)

// Kafka reads a cluster, committed records only. What a partition holds is
// fixed by [Kafka.Partitions], in an order in which a deployment at work can be
// judged: what says how far a service has come (heads, the aggregator's state,
// coverage) before what it writes, and that before what it reads.
type Kafka struct {
	cluster *kafka.Cluster
	ends    map[Partition]int64
}

// NewKafka reads the topics of the deployment with this prefix.
func NewKafka(client *kgo.Client, prefix string) *Kafka {
	return &Kafka{cluster: &kafka.Cluster{Client: client, Admin: kadm.NewClient(client), Prefix: prefix}}
}

// flow is the order in which ends are fixed.
var flow = []string{
	topics.Checkpoints, topics.DAGs, topics.AggregatorState, topics.Runs, topics.Sessions, topics.Turns, topics.Coverage, topics.Steps, topics.DeadLetter,
}

// Partitions implements [Source].
func (k *Kafka) Partitions(ctx context.Context) ([]Partition, error) {
	names := make([]string, 0, len(flow))
	for _, base := range flow {
		names = append(names, k.cluster.Prefix+base)
	}
	hooks, err := k.cluster.HookTopics(ctx)
	if err != nil {
		return nil, err
	}
	names = append(names, hooks...)
	k.ends = map[Partition]int64{}
	var out []Partition
	for _, name := range names {
		starts, err := k.cluster.Admin.ListStartOffsets(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("start offsets of %s: %w", name, err)
		}
		ends, err := k.cluster.Admin.ListCommittedOffsets(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("end offsets of %s: %w", name, err)
		}
		if err := errors.Join(starts.Error(), ends.Error()); err != nil {
			return nil, fmt.Errorf("offsets of %s: %w; is it a topic of this deployment (--prefix)?", name, err)
		}
		for _, e := range ends[name] {
			s, _ := starts.Lookup(name, e.Partition)
			p := Partition{Topic: name, Base: strings.TrimPrefix(name, k.cluster.Prefix), Index: e.Partition, Start: s.Offset}
			k.ends[p] = e.Offset
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b Partition) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Index - b.Index)
	})
	return out, nil
}

// Read implements [Source].
func (k *Kafka) Read(ctx context.Context, p Partition, f func(*Record) error) error {
	end, ok := k.ends[p]
	if !ok {
		return fmt.Errorf("%s/%d is none of the partitions that were listed", p.Topic, p.Index)
	}
	if p.Start >= end {
		return nil
	}
	return k.cluster.Read(ctx, p.Topic, p.Index, p.Start, end, kafka.ReadCommitted, func(recs []*kgo.Record) error {
		for _, r := range recs {
			rec := &Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				rec.Headers = append(rec.Headers, codec.Header{Key: h.Key, Value: h.Value})
			}
			if err := f(rec); err != nil {
				return err
			}
		}
		return nil
	})
}
