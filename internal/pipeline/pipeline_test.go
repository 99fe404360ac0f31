package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

func open(t *testing.T, c *kafkatest.Cluster) (*kafka.Cluster, kafka.Flags) {
	t.Helper()
	flags := kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix, Extra: c.Opts}
	cluster, err := kafka.Open(t.Context(), flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster, flags
}

// The marker of a transaction is an offset and no record: a group that has read
// all records is not behind, though its offset is.
func TestLagCountsNoMarkers(t *testing.T) {
	c := kafkatest.Any(t, kafkatest.Options{Partitions: 1})
	cluster, flags := open(t, c)
	topic := flags.Topic(topics.Runs)
	p, err := flags.Client(kgo.TransactionalID(c.Prefix+"t"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := p.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	group := c.Prefix + "reader"
	for _, want := range []struct{ at, lag int64 }{{0, 4}, {2, 2}, {3, 0}, {4, 0}} {
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 0, want.at, -1)
		if err := cluster.Admin.CommitAllOffsets(t.Context(), group, offsets); err != nil {
			t.Fatal(err)
		}
		if lag, err := Lag(t.Context(), cluster, group, topic); err != nil || lag != want.lag {
			t.Errorf("at offset %d: lag %d (%v), want %d", want.at, lag, err, want.lag)
		}
	}
	if lag, err := Lag(t.Context(), cluster, c.Prefix+"nobody", topic); err != nil || lag != 4 {
		t.Errorf("a group that never committed: lag %d (%v)", lag, err)
	}
}

// A run is open until the last word about it is final.
func TestTrackerKnowsWhatIsOpen(t *testing.T) {
	c := kafkatest.Any(t, kafkatest.Options{Partitions: 2})
	cluster, flags := open(t, c)
	producer, err := flags.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	send := func(base, key, value string) {
		t.Helper()
		r := &kgo.Record{Topic: flags.Topic(base), Value: []byte(value)}
		if key != "" {
			r.Key = []byte(key)
		}
		if err := producer.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	track := Track(cluster)
	check := func(open, runs int) {
		t.Helper()
		if n, err := track.Open(t.Context()); err != nil || n != open || track.Runs() != runs {
			t.Errorf("%d of %d runs are open (%v), want %d of %d", n, track.Runs(), err, open, runs)
		}
	}
	check(0, 0)
	send(topics.Steps, "a/1", `{"type":"step"}`)
	send(topics.Steps, "", `{"tick":1764000000000}`)
	send(topics.Steps, "a/2", `{"type":"step"}`)
	check(2, 2)
	send(topics.Sessions, "a/1", `{"final":false}`)
	check(2, 2)
	send(topics.Sessions, "a/1", `{"final":true}`)
	check(1, 2)
	send(topics.Sessions, "a/2", `{"final":true}`)
	send(topics.Sessions, "a/1", `{"final":false}`) // something late came
	check(1, 2)
	send(topics.Sessions, "a/1", `{`)
	if _, err := track.Open(t.Context()); err == nil || !strings.Contains(err.Error(), "session summary") {
		t.Errorf("a cut summary gives %v", err)
	}
}

// The first service that fails for good ends the pipeline and says why; a stop
// is no failure.
func TestPipelineEndsWithItsServices(t *testing.T) {
	c := kafkatest.Loopback(t, kafkatest.Options{NoTopics: true})
	p := New(t.Context(), Config{Flags: kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix}})
	p.Start(Ingest)
	never := func(context.Context) (bool, error) { return false, nil }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Wait(ctx, 10*time.Millisecond, never); err == nil || !strings.Contains(err.Error(), "ingest: ") || !strings.Contains(err.Error(), "provctl topics create") {
		t.Errorf("without topics: %v", err)
	}
	if err := p.Stop(); err == nil {
		t.Error("the failure is forgotten")
	}

	c = kafkatest.Loopback(t, kafkatest.Options{})
	p = New(t.Context(), Config{Flags: kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix}})
	p.Start(Ingest)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := p.Wait(short, 10*time.Millisecond, never); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a wait in vain: %v", err)
	}
	if p.Health(Ingest) == nil || p.Health(Signer) != nil {
		t.Error("health of what runs, and of nothing else")
	}
	if err := p.Stop(); err != nil {
		t.Errorf("a stop is an error: %v", err)
	}
}
