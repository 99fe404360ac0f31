package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/codec"
	"provstream/internal/kafka"
	"provstream/internal/topics"
)

// Lag is how many offsets of the topics a group has not committed yet. The ends
// are looked up first, so 0 means that everything that was there at the call is
// done.
func Lag(ctx context.Context, adm *kadm.Client, group string, names ...string) (int64, error) {
	ends, err := adm.ListCommittedOffsets(ctx, names...)
	if err != nil {
		return 0, fmt.Errorf("ends of %v: %w", names, err)
	}
	starts, err := adm.ListStartOffsets(ctx, names...)
	if err != nil {
		return 0, fmt.Errorf("starts of %v: %w", names, err)
	}
	committed, err := adm.FetchOffsets(ctx, group)
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return 0, fmt.Errorf("committed offsets of %s: %w", group, err)
	}
	var lag int64
	for topic, partitions := range ends {
		for p, end := range partitions {
			if end.Err != nil {
				return 0, fmt.Errorf("end of %s/%d: %w", topic, p, end.Err)
			}
			at := int64(0)
			if s, ok := starts.Lookup(topic, p); ok && s.Err == nil {
				at = s.Offset
			}
			if c, ok := committed.Lookup(topic, p); ok && c.Err == nil && c.At > at {
				at = c.At
			}
			lag += max(0, end.Offset-at)
		}
	}
	return lag, nil
}

// IngestLag is what ingest has not read of the hook topics.
func IngestLag(ctx context.Context, c *kafka.Cluster) (int64, error) {
	hooks, err := c.HookTopics(ctx)
	if err != nil || len(hooks) == 0 {
		return 0, err
	}
	return Lag(ctx, c.Admin, kafka.DefaultGroup(c.Prefix, Ingest), hooks...)
}

// AggregatorLag is what the aggregator has not read of prov.steps.
func AggregatorLag(ctx context.Context, c *kafka.Cluster) (int64, error) {
	return Lag(ctx, c.Admin, kafka.DefaultGroup(c.Prefix, Aggregator), c.Prefix+topics.Steps)
}

// SignerLag is what the signer has not read of prov.runs and prov.coverage.
func SignerLag(ctx context.Context, c *kafka.Cluster) (int64, error) {
	return Lag(ctx, c.Admin, kafka.DefaultGroup(c.Prefix, Signer), c.Prefix+topics.Runs, c.Prefix+topics.Coverage)
}

// Follower reads a topic to its present end, again and again, from where it
// stopped the last time.
type Follower struct {
	c     *kafka.Cluster
	topic string
	next  map[int32]int64
}

// Follow starts at the beginning of a topic of the table.
func Follow(c *kafka.Cluster, base string) *Follower {
	return &Follower{c: c, topic: c.Prefix + base, next: map[int32]int64{}}
}

// Read hands the committed records that came since the last call to f.
func (f *Follower) Read(ctx context.Context, each func(*kgo.Record) error) error {
	ends, err := f.c.Admin.ListCommittedOffsets(ctx, f.topic)
	if err != nil {
		return fmt.Errorf("ends of %s: %w", f.topic, err)
	}
	for p := range int32(len(ends[f.topic])) {
		end := ends[f.topic][p]
		if end.Err != nil {
			return fmt.Errorf("end of %s/%d: %w", f.topic, p, end.Err)
		}
		if end.Offset <= f.next[p] {
			continue
		}
		err := f.c.Read(ctx, f.topic, p, f.next[p], end.Offset, kafka.ReadCommitted, func(records []*kgo.Record) error {
			for _, r := range records {
				if err := each(r); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		f.next[p] = end.Offset
	}
	return nil
}

// Tracker knows which runs have begun and which are sealed, from what stands in
// prov.steps and prov.sessions. It holds a run open until a final session
// summary stands in the log that is newer than its last step.
type Tracker struct {
	c               *kafka.Cluster
	steps, sessions *Follower
	final           map[string]bool // by run key
}

// Track starts at the beginning of the logs.
func Track(c *kafka.Cluster) *Tracker {
	return &Tracker{c: c, steps: Follow(c, topics.Steps), sessions: Follow(c, topics.Sessions), final: map[string]bool{}}
}

// Runs is the number of runs that have begun.
func (t *Tracker) Runs() int { return len(t.final) }

// Open updates the tracker and returns the number of runs that are not sealed.
func (t *Tracker) Open(ctx context.Context) (int, error) {
	err := t.steps.Read(ctx, func(r *kgo.Record) error {
		if _, tick := codec.DecodeTick(r.Value); !tick {
			if _, ok := t.final[string(r.Key)]; !ok {
				t.final[string(r.Key)] = false
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = t.sessions.Read(ctx, func(r *kgo.Record) error {
		final, err := isFinal(r.Value)
		t.final[string(r.Key)] = final
		return err
	})
	if err != nil {
		return 0, err
	}
	open := 0
	for _, final := range t.final {
		if !final {
			open++
		}
	}
	return open, nil
}

// Drained tells whether everything that stands in the hook topics has come out
// at the other end: read by all three services, every run sealed and signed.
func (t *Tracker) Drained(ctx context.Context) (bool, error) {
	for _, lag := range []func(context.Context, *kafka.Cluster) (int64, error){IngestLag, AggregatorLag} {
		if n, err := lag(ctx, t.c); n > 0 || err != nil {
			return false, err
		}
	}
	if n, err := t.Open(ctx); n > 0 || err != nil {
		return false, err
	}
	n, err := SignerLag(ctx, t.c)
	return n == 0, err
}

// isFinal reads the member final of a session summary.
func isFinal(value []byte) (bool, error) {
	var s struct {
		Final bool `json:"final"`
	}
	if err := json.Unmarshal(value, &s); err != nil {
		return false, fmt.Errorf("session summary: %w", err)
	}
	return s.Final, nil
}
