package doctor

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/kafka"
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
	var published []verify.Key
	for id, value := range newest {
		if value == nil {
			continue
		}
		k, err := verify.ParseJWK(value)
		if err != nil {
			p.add(Warning, "publish it again with `provctl keys publish`", "%s: the record of key %s is no key: %v", topic, id, err)
			continue
		}
		published = append(published, k)
		if k.Status == verify.StatusActive {
			active[k.Use]++
		}
	}
	for _, use := range []verify.Use{verify.UseDAG, verify.UseLog} {
		if active[use] == 0 {
			p.add(Warning, "run `provctl keys publish`", "%s has no active key with use %q: consumers cannot find what to pin", topic, use)
		}
	}
	if active[verify.UseLog] == 0 {
		return nil
	}
	return p.signers(ctx, published)
}

// signers: is each log's newest head signed by a key that is published. A signer
// that was given another key directory signs what no consumer trusts.
func (p *patient) signers(ctx context.Context, published []verify.Key) error {
	pinned, err := verify.NewKeys(published...)
	if err != nil {
		return err
	}
	for partition := range p.partitions(ctx) {
		heads, err := p.newestHeads(ctx, partition)
		if err != nil {
			return err
		}
		for _, origin := range slices.Sorted(mapsKeys(heads)) {
			var why *verify.Error
			if _, err := pinned.Checkpoint(heads[origin].note); errors.As(err, &why) && why.Kind == verify.UnknownKey {
				p.add(Error, "give the signer the key directory whose keys are published, or run `provctl keys publish` on its own and have consumers pin it",
					"the newest head of log %s is signed by a key that is not on %s", origin, p.cfg.Flags.Topic(topics.Keys))
			}
		}
	}
	return nil
}

// access: do these credentials have the rights of a role. The table is that of
// topics.ACLs, which `provctl topics acls` prints and applies.
func (p *patient) access(ctx context.Context) error {
	prefix := p.cfg.Flags.Prefix
	if !slices.Contains(topics.Roles, p.cfg.As) {
		return fmt.Errorf("no role is called %q", p.cfg.As)
	}
	visible, err := p.c.Admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	var names []topics.ACL // rights by prefix, on each topic that there is
	for _, a := range topics.ACLs(p.cfg.As, prefix) {
		switch a.Resource {
		case "topic":
			list := []topics.ACL{a}
			if a.Prefixed {
				list = p.named(a, visible)
			}
			names = append(names, list...)
		case "group":
			if err := p.groupRight(ctx, a); err != nil {
				return err
			}
		case "transactional-id":
			if err := p.transactionRight(ctx, a); err != nil {
				return err
			}
		}
	}
	lacking, err := p.c.LackingTopicRights(ctx, names)
	for _, a := range lacking {
		p.lacks(a)
	}
	return err
}

// named spells out a right by prefix for the topics that exist. A topic that one
// may not describe is not listed: the deployment's own are asked for by name.
func (p *patient) named(a topics.ACL, visible kadm.TopicDetails) (list []topics.ACL) {
	names := slices.Collect(maps.Keys(visible))
	for _, t := range topics.All() {
		names = append(names, p.cfg.Flags.Topic(t.Name))
	}
	names = append(names, p.cfg.Flags.Topic(topics.Decisions))
	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		if strings.HasPrefix(n, a.Name) {
			b := a
			b.Name, b.Prefixed = n, false
			list = append(list, b)
		}
	}
	if len(list) == 0 {
		p.add(Warning, p.grant(), "as %s: no topic %s* is to be seen: either there is none, or the right to %s is missing", p.cfg.As, a.Name, a.Operation)
	}
	return list
}

func (p *patient) lacks(a topics.ACL) {
	p.add(Error, p.grant(), "as %s: no right to %s on %s %s (%s)", p.cfg.As, a.Operation, a.Resource, a.Name, a.Why)
}

func (p *patient) grant() string {
	return "`provctl topics acls --role " + p.cfg.As + "` prints what is needed, `--apply` grants it"
}

func (p *patient) groupRight(ctx context.Context, a topics.ACL) error {
	d, err := p.describe(ctx, a.Name)
	if err == nil {
		err = d.Err
	}
	may := slices.ContainsFunc(d.AuthorizedOperations, func(op kadm.ACLOperation) bool { return strings.EqualFold(op.String(), a.Operation) })
	switch {
	case kafka.Refused(err), err == nil && len(d.AuthorizedOperations) != 0 && !may:
		p.lacks(a)
	case err != nil && !errors.Is(err, kerr.GroupIDNotFound):
		return err
	}
	return nil
}

// transactionRight asks about an id that begins as the right says. Brokers tell
// whether one may describe it, which who may write it may; no more.
func (p *patient) transactionRight(ctx context.Context, a topics.ACL) error {
	id := a.Name
	if a.Prefixed {
		id += "doctor"
	}
	described, err := p.c.Admin.DescribeTransactions(ctx, id)
	if err == nil {
		err = described[id].Err
	}
	switch {
	case kafka.Refused(err):
		p.lacks(a)
	case err != nil && !errors.Is(err, kerr.TransactionalIDNotFound) && !errors.Is(err, kerr.UnsupportedVersion):
		return err
	}
	return nil
}
