package doctor

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/aggregator"
	"provstream/internal/ingest"
	"provstream/internal/kafka"
	"provstream/internal/signer"
	"provstream/internal/topics"
	"provstream/verify"
)

func mapsKeys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }

// clocks: does any hook record come from the future. With LogAppendTime it is a
// broker's clock that is ahead of this host's, with CreateTime a producer's.
func (p *patient) clocks(ctx context.Context) error {
	names, err := p.c.HookTopics(ctx)
	if err != nil || len(names) == 0 {
		return err
	}
	newest, err := p.c.Admin.ListMaxTimestampOffsets(ctx, names...)
	if err != nil {
		return err
	}
	now := time.Now()
	ahead := make(map[string]time.Duration)
	newest.Each(func(o kadm.ListedOffset) {
		if o.Err == nil && o.Offset >= 0 && o.Timestamp > 0 {
			if d := time.UnixMilli(o.Timestamp).Sub(now); d > p.cfg.Tolerance {
				ahead[o.Topic] = max(ahead[o.Topic], d)
			}
		}
	})
	for _, topic := range slices.Sorted(mapsKeys(ahead)) {
		p.add(Warning, "synchronise the clocks (NTP); with message.timestamp.type=LogAppendTime producers cannot do this",
			"%s has a record from %s ahead of this host's clock: a broker, a producer or this host is off", topic, ahead[topic].Round(time.Millisecond))
	}
	return nil
}

// keys: are the public halves published that consumers look for.
func (p *patient) keys(ctx context.Context) error {
	topic := p.cfg.Flags.Topic(topics.Keys)
	b, err := p.c.Bounds(ctx, topic, 0)
	if err != nil {
		return err
	}
	newest := make(map[string][]byte)
	err = p.c.Read(ctx, topic, 0, b.Start, b.End, kafka.ReadCommitted, func(records []*kgo.Record) error {
		for _, r := range records {
			newest[string(r.Key)] = r.Value
		}
		return nil
	})
	if err != nil {
		return err
	}
	active := make(map[verify.Use]int)
	for id, value := range newest {
		if value == nil {
			continue
		}
		k, err := verify.ParseJWK(value)
		if err != nil {
			p.add(Warning, "publish it again with `provctl keys publish`", "%s: the record of key %s is no key: %v", topic, id, err)
			continue
		}
		if k.Status == verify.StatusActive {
			active[k.Use]++
		}
	}
	for _, use := range []verify.Use{verify.UseDAG, verify.UseLog} {
		if active[use] == 0 {
			p.add(Warning, "run `provctl keys publish`", "%s has no active key with use %q: consumers cannot find what to pin", topic, use)
		}
	}
	return nil
}

// rights are what a service does with each topic: the least that it needs.
var rights = map[string]map[string][]kadm.ACLOperation{
	ingest.Service: {
		topics.Steps: {kadm.OpWrite, kadm.OpDescribe}, topics.DeadLetter: {kadm.OpWrite, kadm.OpDescribe}, topics.Coverage: {kadm.OpWrite, kadm.OpDescribe},
		topics.Decisions: {kadm.OpRead, kadm.OpDescribe},
	},
	aggregator.Service: {
		topics.Steps: {kadm.OpRead, kadm.OpWrite, kadm.OpDescribe}, topics.Turns: {kadm.OpWrite, kadm.OpDescribe}, topics.Sessions: {kadm.OpWrite, kadm.OpDescribe},
		topics.Runs: {kadm.OpWrite, kadm.OpDescribe}, topics.AggregatorState: {kadm.OpRead, kadm.OpWrite, kadm.OpDescribe}, topics.Decisions: {kadm.OpDescribe},
	},
	signer.Service: {
		topics.Runs: {kadm.OpRead, kadm.OpDescribe}, topics.Coverage: {kadm.OpRead, kadm.OpDescribe},
		topics.DAGs: {kadm.OpWrite, kadm.OpDescribe}, topics.Checkpoints: {kadm.OpRead, kadm.OpWrite, kadm.OpDescribe},
	},
}

// access: may these credentials do what the service does.
func (p *patient) access(ctx context.Context) error {
	need, ok := rights[p.cfg.As]
	if !ok {
		return fmt.Errorf("no service is called %q", p.cfg.As)
	}
	var names []string
	for base := range need {
		names = append(names, p.cfg.Flags.Topic(base))
	}
	details, err := p.c.Admin.ListTopics(kadm.WithAuthorizedOps(ctx), names...)
	if err != nil {
		return err
	}
	for _, base := range slices.Sorted(mapsKeys(need)) {
		d := details[p.cfg.Flags.Topic(base)]
		var missing []string
		for _, op := range need[base] {
			if d.Err != nil || !slices.Contains(d.AuthorizedOperations, op) {
				missing = append(missing, strings.ToUpper(op.String()))
			}
		}
		if len(missing) != 0 {
			p.add(Error, "`provctl topics acls` prints what each service needs", "as %s: no right to %s on topic %s", p.cfg.As, strings.Join(missing, ", "), p.cfg.Flags.Topic(base))
		}
	}
	return nil
}
