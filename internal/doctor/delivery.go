package doctor

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/aggregator"
	"provstream/internal/ingest"
	"provstream/internal/kafka"
	"provstream/internal/signer"
	"provstream/internal/topics"
)

// hanging is how long a transaction may be open: three times the services'
// transaction timeout.
const hanging = 30 * time.Second

// inputs of the services, without prefix; ingest's are the hook topics.
var inputs = map[string][]string{
	ingest.Service:     nil,
	aggregator.Service: {topics.Steps},
	signer.Service:     {topics.Runs, topics.Coverage},
}

var services = []string{ingest.Service, aggregator.Service, signer.Service}

// groups: does each service run, and do the records that it must read next
// still exist.
func (p *patient) groups(ctx context.Context) error {
	for _, service := range services {
		group := kafka.DefaultGroup(p.cfg.Flags.Prefix, service)
		if err := p.members(ctx, service, group); err != nil {
			return err
		}
		committed, err := p.c.Committed(ctx, group)
		if err != nil {
			return err
		}
		if len(committed) == 0 {
			continue
		}
		names, err := p.inputTopics(ctx, service)
		if err != nil || len(names) == 0 {
			return err
		}
		starts, err := p.c.Admin.ListStartOffsets(ctx, names...)
		if err != nil {
			return err
		}
		ends, err := p.c.Admin.ListCommittedOffsets(ctx, names...)
		if err != nil {
			return err
		}
		ends.Each(func(end kadm.ListedOffset) {
			start, _ := starts.Lookup(end.Topic, end.Partition)
			at, ok := committed.Lookup(end.Topic, end.Partition)
			switch {
			case end.Err != nil || start.Err != nil || !ok || at.At < 0:
			case at.At < start.Offset:
				p.lost(service, group, end, at.At, start.Offset)
			case at.At > end.Offset && end.Offset == 0:
				p.add(Error, "if it was created again, start a new deployment under another --prefix", "%s/%d is empty, but %s has read it up to %d: it was created again",
					end.Topic, end.Partition, group, at.At)
			}
		})
	}
	return nil
}

func (p *patient) lost(service, group string, end kadm.ListedOffset, at, start int64) {
	if service == ingest.Service {
		p.add(Error, "raise the topic's retention, or run more instances of ingest; prov.coverage will tell the gap",
			"%s/%d lost %d records before ingest read them", end.Topic, end.Partition, start-at)
		return
	}
	p.add(Error, "raise the topic's retention, and start a new deployment under another --prefix",
		"%s/%d begins at %d, but %s goes on at %d: the records between are gone", end.Topic, end.Partition, start, group, at)
}

func (p *patient) inputTopics(ctx context.Context, service string) ([]string, error) {
	if service == ingest.Service {
		return p.c.HookTopics(ctx)
	}
	var names []string
	for _, t := range inputs[service] {
		names = append(names, p.cfg.Flags.Topic(t))
	}
	return names, nil
}

// describe waits a little for a coordinator that is only being made: on a new
// cluster the first question about a group makes the topic that it is kept in.
func (p *patient) describe(ctx context.Context, group string) (kadm.DescribedGroup, error) {
	for tries := 0; ; tries++ {
		described, err := p.c.Admin.DescribeGroups(ctx, group)
		d := described[group]
		if err == nil {
			err = d.Err
		}
		if tries == 20 || !kerr.IsRetriable(err) {
			if d.Group == "" && err != nil {
				return d, err
			}
			return d, nil
		}
		select {
		case <-ctx.Done():
			return d, ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// members tells whether an instance of the service runs.
func (p *patient) members(ctx context.Context, service, group string) error {
	d, err := p.describe(ctx, group)
	if err != nil {
		return err
	}
	switch {
	case errors.Is(d.Err, kerr.GroupIDNotFound), d.Err == nil && d.State == "Dead":
		p.add(Warning, "start it; with another --group this check does not see it", "%s has never run: there is no group %s", service, group)
	case d.Err != nil:
		return d.Err
	case len(d.Members) == 0:
		p.add(Error, "start it", "no instance of %s runs: group %s has no member", service, group)
	case d.State != "Stable":
		p.add(Warning, "run doctor again; if it stays so, look for instances that come and go", "group %s is %s", group, d.State)
	}
	return nil
}

// state: does what the aggregator stored belong to its committed offsets.
func (p *patient) state(ctx context.Context) error {
	var cfg aggregator.Config
	cfg.Flags = p.cfg.Flags
	for partition := range p.partitions(ctx) {
		i, err := aggregator.Inspect(ctx, p.c, cfg, partition, false)
		if err != nil {
			return err
		}
		if i.Clock != nil {
			if ahead := time.Until(time.UnixMilli(*i.Clock)); ahead > p.cfg.Tolerance {
				p.add(Error, "synchronise the clocks of the aggregator's hosts (NTP); see docs/operations.md: ProvstreamClockAhead",
					"partition %d: the log's clock is %s ahead of this host's: nothing is sealed by time until then", partition, ahead.Round(time.Millisecond))
			}
		}
		if i.Fault != "" {
			p.add(Error, "see docs/operations.md: Lost state topic, Lost offsets", "partition %d: %s", partition, i.Fault)
		}
	}
	return nil
}

// logs: do the signer's offsets belong to the newest heads that it has signed.
func (p *patient) logs(ctx context.Context) error {
	group := kafka.DefaultGroup(p.cfg.Flags.Prefix, signer.Service)
	input := map[string]string{p.cfg.Flags.Topic(topics.DAGs): p.cfg.Flags.Topic(topics.Runs), p.cfg.Flags.Topic(topics.Coverage): p.cfg.Flags.Topic(topics.Coverage)}
	type head struct {
		origin, topic string
		partition     int32
		next          int64
	}
	var heads []head
	for partition := range p.partitions(ctx) {
		newest, err := p.newestHeads(ctx, partition)
		if err != nil {
			return err
		}
		for _, origin := range slices.Sorted(mapsKeys(newest)) {
			// The origin is <deployment>/<topic>/<partition>.
			if parts := strings.Split(origin, "/"); len(parts) >= 3 && input[parts[len(parts)-2]] != "" {
				heads = append(heads, head{origin, input[parts[len(parts)-2]], partition, newest[origin].next})
			}
		}
	}
	// After the heads: a signer at work commits meanwhile.
	committed, err := p.c.Committed(ctx, group)
	if err != nil {
		return err
	}
	for _, h := range heads {
		at := int64(-1)
		if o, ok := committed.Lookup(h.topic, h.partition); ok {
			at = o.At
		}
		if at < h.next {
			p.add(Error, "see docs/operations.md: Lost offsets", "the newest head of log %s was signed up to offset %d of %s/%d, but group %s goes on at %d: its offsets were reset",
				h.origin, h.next, h.topic, h.partition, group, at)
		}
	}
	return nil
}

// headsRead are the last checkpoints of a partition that are read: the newest of
// each of its two logs is among them.
const headsRead = 1000

// newestHead is the newest checkpoint of a log.
type newestHead struct {
	next int64 // offset of its input that it was signed up to
	note []byte
}

// newestHeads are the newest checkpoints of a partition, by origin.
func (p *patient) newestHeads(ctx context.Context, partition int32) (map[string]newestHead, error) {
	topic := p.cfg.Flags.Topic(topics.Checkpoints)
	b, err := p.c.Bounds(ctx, topic, partition)
	if err != nil {
		return nil, err
	}
	heads := make(map[string]newestHead)
	err = p.c.Read(ctx, topic, partition, max(b.Start, b.End-headsRead), b.End, kafka.ReadCommitted, func(records []*kgo.Record) error {
		for _, r := range records {
			for _, h := range r.Headers {
				if next, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil && h.Key == signer.HeaderNext {
					heads[string(r.Key)] = newestHead{next, r.Value}
				}
			}
		}
		return nil
	})
	return heads, err
}

func (p *patient) partitions(ctx context.Context) int32 {
	details, err := p.c.Admin.ListTopics(ctx, p.cfg.Flags.Topic(topics.Steps))
	if err != nil {
		return 0
	}
	p.c.Partitions = int32(len(details[p.cfg.Flags.Topic(topics.Steps)].Partitions))
	return p.c.Partitions
}

// transactions: does one hang and hold back everyone who reads committed
// records.
func (p *patient) transactions(ctx context.Context) error {
	listed, err := p.c.Admin.ListTransactions(ctx, nil, []string{"Ongoing"})
	if errors.Is(err, kerr.UnsupportedVersion) {
		return nil
	}
	if err != nil {
		return err
	}
	ids := listed.TransactionalIDs()
	if len(ids) == 0 {
		return nil
	}
	described, err := p.c.Admin.DescribeTransactions(ctx, ids...)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(mapsKeys(described)) {
		d := described[id]
		age := time.Since(time.UnixMilli(d.StartTimestamp))
		if d.Err != nil || d.State != "Ongoing" || age < hanging {
			continue
		}
		for topic := range d.Topics {
			if strings.HasPrefix(topic, p.cfg.Flags.Prefix+"prov.") || kafka.IsHookTopic(p.cfg.Flags.Prefix, topic) {
				p.add(Error, "find its producer and end it, or run kafka-transactions.sh abort on each of its partitions",
					"the transaction of %s is open for %s and holds back all readers of %s", id, age.Round(time.Second), topic)
			}
		}
	}
	return nil
}
