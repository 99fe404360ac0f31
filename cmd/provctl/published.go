package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/kafka"
	"provstream/internal/keys"
	"provstream/internal/merkle"
	"provstream/internal/topics"
	"provstream/verify"
)

// published is prov.keys, and the sizes of the logs that bound a key's life.
type published struct {
	cluster    *kafka.Cluster
	flags      kafka.Flags
	deployment string
}

func openPublished(_ context.Context, f kafka.Flags, deployment string) (*published, error) {
	c, err := evidenceCluster(f)
	if err != nil {
		return nil, err
	}
	return &published{c, f, deployment}, nil
}

func (p *published) close() { p.cluster.Close() }

// read returns the newest record of each key.
func (p *published) read(ctx context.Context) ([]verify.Key, error) {
	topic := p.flags.Topic(topics.Keys)
	if _, err := partitionsOf(ctx, p.cluster, topic); err != nil {
		return nil, err
	}
	b, err := p.cluster.Bounds(ctx, topic, 0)
	if err != nil || b.Start >= b.End {
		return nil, err
	}
	newest := map[string]verify.Key{}
	err = p.cluster.Read(ctx, topic, 0, b.Start, b.End, kafka.ReadCommitted, func(recs []*kgo.Record) error {
		for _, r := range recs {
			if len(r.Value) == 0 {
				delete(newest, string(r.Key))
				continue
			}
			k, err := verify.ParseJWK(r.Value)
			if err != nil {
				return fmt.Errorf("%s/0@%d: %w", topic, r.Offset, err)
			}
			if string(r.Key) != k.ID {
				return fmt.Errorf("%s/0@%d: the record key %q is not the key's id %s", topic, r.Offset, r.Key, k.ID)
			}
			newest[k.ID] = k
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var list []verify.Key
	for _, id := range sortedKeys(newest) {
		list = append(list, newest[id])
	}
	return list, nil
}

func (p *published) publish(ctx context.Context, list []verify.Key) error {
	for _, k := range list {
		r := &kgo.Record{
			Topic: p.flags.Topic(topics.Keys), Key: []byte(k.ID), Value: k.JWK(),
			Headers: []kgo.RecordHeader{{Key: "content-type", Value: []byte("application/jwk+json")}},
		}
		if err := p.cluster.Client.ProduceSync(ctx, r).FirstErr(); err != nil {
			return fmt.Errorf("write to %s: %w", r.Topic, err)
		}
	}
	return nil
}

// sizes are the present sizes of the logs that a key of that use signs in, by
// origin: what the newest committed checkpoints say, checked with the log keys
// of the directory. A DAG key's logs are those of the DAGs.
func (p *published) sizes(ctx context.Context, use verify.Use, dir string) (map[string]int64, error) {
	list, err := keys.List(dir)
	if err != nil {
		return nil, err
	}
	var logKeys []verify.Key
	for _, e := range list {
		if e.Use == verify.UseLog {
			logKeys = append(logKeys, e.Key)
		}
	}
	pinned, err := verify.NewKeys(logKeys...)
	if err != nil {
		return nil, err
	}
	topic := p.flags.Topic(topics.Checkpoints)
	partitions, err := partitionsOf(ctx, p.cluster, topic)
	if err != nil {
		return nil, err
	}
	sizes := map[string]int64{}
	for _, n := range partitions {
		origins := []string{merkle.Origin(p.deployment, p.flags.Topic(topics.DAGs), n)}
		if use == verify.UseLog {
			origins = append(origins, merkle.Origin(p.deployment, p.flags.Topic(topics.Coverage), n))
		}
		for _, origin := range origins {
			sizes[origin] = 0
		}
		if err := p.newest(ctx, topic, n, origins, pinned, sizes); err != nil {
			return nil, err
		}
	}
	return sizes, nil
}

// newest reads back from the end until every origin was met.
func (p *published) newest(ctx context.Context, topic string, partition int32, origins []string, pinned *verify.Keys, sizes map[string]int64) error {
	b, err := p.cluster.Bounds(ctx, topic, partition)
	if err != nil {
		return err
	}
	missing := slices.Clone(origins)
	end := b.End
	for window := int64(256); len(missing) > 0 && end > b.Start; window *= 4 {
		from := max(b.Start, end-window)
		found := map[string][]byte{}
		err := p.cluster.Read(ctx, topic, partition, from, end, kafka.ReadCommitted, func(recs []*kgo.Record) error {
			for _, r := range recs {
				if slices.Contains(missing, string(r.Key)) {
					found[string(r.Key)] = r.Value
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		for origin, value := range found {
			c, err := pinned.Checkpoint(value)
			if err != nil {
				return fmt.Errorf("newest checkpoint of %s: %w", origin, err)
			}
			if c.Origin != origin {
				return fmt.Errorf("newest checkpoint of %s is of %s", origin, strings.TrimSpace(c.Origin))
			}
			sizes[origin] = c.Size
			missing = slices.DeleteFunc(missing, func(o string) bool { return o == origin })
		}
		end = from
	}
	return nil
}
