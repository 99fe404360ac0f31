package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/topics"
)

// Fatal marks an error that coming back does not cure: configuration, lost or
// foreign state, a bug. [Supervise] returns it.
func Fatal(err error) error {
	if err == nil {
		return nil
	}
	return &fatalError{err}
}

type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// IsFatal tells whether err, or one that it wraps, was marked by [Fatal].
func IsFatal(err error) bool {
	var f *fatalError
	return errors.As(err, &f)
}

// Cluster is a plain connection for requests that are not part of the loop:
// metadata, offsets, raw reads. It is safe for concurrent use.
type Cluster struct {
	Client *kgo.Client
	Admin  *kadm.Client
	Prefix string
	// ID is the cluster id that the brokers tell, for ce_source.
	ID string
	// Partitions is the common count of the partitioned prov.* topics.
	Partitions int32
}

// Open connects and checks what every service needs: that the topics of the
// table exist with one partition count, and that the brokers have transactions
// of version 2 (KIP-890).
func Open(ctx context.Context, f Flags, opts ...kgo.Opt) (*Cluster, error) {
	c, err := Connect(f, opts...)
	if err != nil {
		return nil, err
	}
	if err := c.check(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Connect is Open without its checks, and without ID and Partitions.
func Connect(f Flags, opts ...kgo.Opt) (*Cluster, error) {
	cl, err := f.Client(opts...)
	if err != nil {
		return nil, Fatal(err)
	}
	return &Cluster{Client: cl, Admin: kadm.NewClient(cl), Prefix: f.Prefix}, nil
}

// Close ends the connection.
func (c *Cluster) Close() { c.Client.Close() }

func (c *Cluster) check(ctx context.Context) error {
	var names []string
	for _, t := range topics.All() {
		names = append(names, c.Prefix+t.Name)
	}
	md, err := c.metadata(ctx, names...)
	if err != nil {
		return err
	}
	if md.ClusterID != nil {
		c.ID = *md.ClusterID
	}
	found := make(map[string]kmsg.MetadataResponseTopic)
	for _, t := range md.Topics {
		if t.Topic != nil {
			found[*t.Topic] = t
		}
	}
	create := "provctl topics create"
	if c.Prefix != "" {
		create += " --prefix " + c.Prefix
	}
	var missing, counts []string
	for _, t := range topics.All() {
		d, ok := found[c.Prefix+t.Name]
		err := kerr.ErrorForCode(d.ErrorCode)
		switch n := int32(len(d.Partitions)); {
		case !ok || errors.Is(err, kerr.UnknownTopicOrPartition):
			missing = append(missing, c.Prefix+t.Name)
		case err != nil:
			return fmt.Errorf("topic %s: %w", c.Prefix+t.Name, err)
		case t.Partitioned:
			counts = append(counts, fmt.Sprintf("%s %d", c.Prefix+t.Name, n))
			if c.Partitions == 0 {
				c.Partitions = n
			}
			if n != c.Partitions {
				c.Partitions = -1
			}
		}
	}
	if len(missing) != 0 {
		return Fatal(fmt.Errorf("missing topics: %s; run `%s`", strings.Join(missing, ", "), create))
	}
	if c.Partitions < 0 {
		return Fatal(fmt.Errorf("the partition counts differ (%s): partition p of one feeds partition p of the next, so they must be equal; "+
			"create a deployment under a new --prefix with `provctl topics create`, drain this one and switch", strings.Join(counts, ", ")))
	}
	return c.Features(ctx)
}

// Features demands transaction.version 2 where the brokers tell about it: a
// broker that lists no finalized features at all (kfake) is believed. Without
// it an old transaction's late write can land in the next one (KIP-890).
func (c *Cluster) Features(ctx context.Context) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "provstream", "1"
	resp, err := req.RequestWith(ctx, c.Client)
	if err != nil {
		return fmt.Errorf("ask the brokers for their features: %w", err)
	}
	if len(resp.FinalizedFeatures) == 0 {
		return nil
	}
	i := slices.IndexFunc(resp.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool { return f.Name == "transaction.version" })
	if i >= 0 && resp.FinalizedFeatures[i].MaxVersionLevel >= 2 {
		return nil
	}
	return Fatal(errors.New("the brokers' feature transaction.version is below 2: exactly-once needs KIP-890 (Apache Kafka 4.0 or later); " +
		"run `kafka-features.sh upgrade --feature transaction.version=2`"))
}

// Committed are a group's committed offsets and their metadata, read as
// stable: an open transaction that carries offsets is waited for. A group that
// does not exist has none.
//
// Asked for all partitions of a group, brokers leave out those whose first commit
// is still in an open transaction. Who must wait for that too uses [Cluster.CommittedOf].
func (c *Cluster) Committed(ctx context.Context, group string) (kadm.OffsetResponses, error) {
	return waitStable(ctx, group, func() (kadm.OffsetResponses, error) {
		return c.Admin.FetchOffsets(kadm.RequireStable(ctx), group)
	})
}

// CommittedOf is Committed for these partitions by name; the offset of one
// without a commit is -1.
func (c *Cluster) CommittedOf(ctx context.Context, group string, partitions map[string][]int32) (kadm.OffsetResponses, error) {
	if len(partitions) == 0 {
		return nil, nil // to ask for none is to ask for all
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for topic, list := range partitions {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic, t.Partitions = topic, list
		g.Topics = append(g.Topics, t)
	}
	return waitStable(ctx, group, func() (kadm.OffsetResponses, error) {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.RequireStable = true
		req.Groups = append(req.Groups, g)
		resp, err := req.RequestWith(ctx, c.Client)
		if err != nil {
			return nil, err
		}
		return offsetsOf(resp)
	})
}

// offsetsOf reads the answer about one group. A topic that is gone has no commit.
func offsetsOf(resp *kmsg.OffsetFetchResponse) (kadm.OffsetResponses, error) {
	if len(resp.Groups) != 1 {
		return nil, fmt.Errorf("%d groups in an answer about one", len(resp.Groups))
	}
	g := resp.Groups[0]
	if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
		return nil, err
	}
	offsets := make(kadm.OffsetResponses)
	for _, t := range g.Topics {
		for _, p := range t.Partitions {
			err := kerr.ErrorForCode(p.ErrorCode)
			if errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID) {
				continue
			}
			o := kadm.OffsetResponse{Offset: kadm.Offset{Topic: t.Topic, Partition: p.Partition, At: p.Offset, LeaderEpoch: p.LeaderEpoch}, Err: err}
			if p.Metadata != nil {
				o.Metadata = *p.Metadata
			}
			offsets.Add(o)
		}
	}
	return offsets, nil
}

// waitStable asks until the answer is final.
func waitStable(ctx context.Context, group string, ask func() (kadm.OffsetResponses, error)) (kadm.OffsetResponses, error) {
	for {
		offsets, err := ask()
		if err == nil {
			err = offsets.Error()
		}
		switch {
		case err == nil:
			return offsets, nil
		case errors.Is(err, kerr.GroupIDNotFound):
			return nil, nil
		case !kerr.IsRetriable(err): // a coordinator that moves, or loads, or is only being made
			return nil, fmt.Errorf("committed offsets of %s: %w", group, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("committed offsets of %s: %w (last: %w)", group, ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// metadata asks the brokers, past the client's cache; no topics are all.
func (c *Cluster) metadata(ctx context.Context, topics ...string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, c.Client)
	if err != nil {
		return nil, fmt.Errorf("ask the brokers for topics: %w", err)
	}
	return resp, nil
}

// hookPartitions are the hook topics that exist now, and acs.decisions.
func (c *Cluster) hookPartitions(ctx context.Context) ([]kmsg.MetadataResponseTopic, error) {
	all, err := c.metadata(ctx)
	if err != nil {
		return nil, err
	}
	var hooks []kmsg.MetadataResponseTopic
	for _, t := range all.Topics {
		if t.Topic == nil || !IsHookTopic(c.Prefix, *t.Topic) {
			continue
		}
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition): // deleted since
		case err != nil:
			return nil, fmt.Errorf("topic %s: %w", *t.Topic, err)
		default:
			hooks = append(hooks, t)
		}
	}
	return hooks, nil
}

// IsHookTopic tells whether ingest reads the topic.
func IsHookTopic(prefix, topic string) bool {
	base, ok := strings.CutPrefix(topic, prefix)
	if !ok {
		return false
	}
	hook, ok := strings.CutPrefix(base, topics.HookPrefix)
	return base == topics.Decisions || ok && hook != ""
}
