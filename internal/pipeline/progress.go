package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/codec"
	"provstream/internal/kafka"
	"provstream/internal/topics"
)

// Lag is how many records of the topics a group has not committed yet, in
// offsets. The ends are looked up first, so 0 means that everything that was
// there at the call is done.
func Lag(ctx context.Context, c *kafka.Cluster, group string, names ...string) (int64, error) {
	ends, err := c.Admin.ListCommittedOffsets(ctx, names...)
	if err != nil {
		return 0, fmt.Errorf("ends of %v: %w", names, err)
	}
	starts, err := c.Admin.ListStartOffsets(ctx, names...)
	if err != nil {
		return 0, fmt.Errorf("starts of %v: %w", names, err)
	}
	committed, err := c.Admin.FetchOffsets(ctx, group)
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
			if o, ok := committed.Lookup(topic, p); ok && o.Err == nil && o.At > at {
				at = o.At
			}
			n, err := behind(ctx, c, topic, p, at, end.Offset)
			if err != nil {
				return 0, err
			}
			lag += n
		}
	}
	return lag, nil
}

// fewOffsets may be nothing but the markers of transactions, which a consumer
// that does not keep control records never commits past.
const fewOffsets = 64

// behind is the distance of two offsets, 0 when no record stands between them.
func behind(ctx context.Context, c *kafka.Cluster, topic string, p int32, at, end int64) (int64, error) {
	if end <= at {
		return 0, nil
	}
	if end-at > fewOffsets {
		return end - at, nil
	}
	records := false
	err := c.Read(ctx, topic, p, at, end, kafka.ReadCommitted, func([]*kgo.Record) error { records = true; return nil })
	if records {
		return end - at, err
	}
	return 0, err
}

// IngestLag is what ingest has not read of the hook topics.
func IngestLag(ctx context.Context, c *kafka.Cluster) (int64, error) {
	hooks, err := c.HookTopics(ctx)
	if err != nil || len(hooks) == 0 {
		return 0, err
	}
	return Lag(ctx, c, kafka.DefaultGroup(c.Prefix, Ingest), hooks...)
}

// AggregatorLag is what the aggregator has not read of prov.steps.
func AggregatorLag(ctx context.Context, c *kafka.Cluster) (int64, error) {
	return Lag(ctx, c, kafka.DefaultGroup(c.Prefix, Aggregator), c.Prefix+topics.Steps)
}

// SignerLag is what the signer has not read of prov.runs and prov.coverage.
func SignerLag(ctx context.Context, c *kafka.Cluster) (int64, error) {
	return Lag(ctx, c, kafka.DefaultGroup(c.Prefix, Signer), c.Prefix+topics.Runs, c.Prefix+topics.Coverage)
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

// State is how far the pipeline has come.
type State struct {
	Ingest, Aggregator, Signer int64 // offsets to go
	Runs, Open                 int
}

// Drained tells whether everything that stood in the hook topics has come out at
// the other end: read by all three services, every run sealed and signed.
func (s State) Drained() bool { return s.Ingest+s.Aggregator+s.Signer == 0 && s.Open == 0 }

func (s State) String() string {
	return fmt.Sprintf("offsets to go: ingest %d, aggregator %d, signer %d; %d of %d runs are open", s.Ingest, s.Aggregator, s.Signer, s.Open, s.Runs)
}

// State looks along the data flow, so that what it finds done upstream was in
// sight downstream.
func (t *Tracker) State(ctx context.Context) (s State, err error) {
	if s.Ingest, err = IngestLag(ctx, t.c); err != nil {
		return s, err
	}
	if s.Aggregator, err = AggregatorLag(ctx, t.c); err != nil {
		return s, err
	}
	if s.Open, err = t.Open(ctx); err != nil {
		return s, err
	}
	s.Runs = t.Runs()
	s.Signer, err = SignerLag(ctx, t.c)
	return s, err
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
