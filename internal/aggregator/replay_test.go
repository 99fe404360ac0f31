package aggregator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/aggregator"
	"provstream/internal/codec"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// A restart at any moment reads at most --replay-records and one batch of
// prov.steps, however many steps are open and whichever runs they belong to: of
// old sessions that go on, and of new ones.
func TestReplayIsBounded(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{Partitions: 1, Nodes: 1}, func(t *testing.T, c *kafkatest.Cluster) {
		const replay, batch, rounds = 1000, 300, 20
		w := newWorld(t, c)
		w.window.TurnIdle, w.window.SessionIdle = time.Hour, time.Hour // nothing is to end
		w.replay = replay
		stop := w.startAggregator(t, "a")
		defer stop()
		sent := 0
		most := 0
		for round := range rounds {
			var records []*kgo.Record
			for i := range batch {
				session := i % 7 // goes on all the time
				if i%2 == 0 {
					session = 100 + sent/50
				}
				records = append(records, w.step("default", session, sent))
				sent++
			}
			records = append(records, &kgo.Record{Topic: w.Topic(topics.Steps), Value: codec.AppendTick(nil, time.Now().UnixMilli())})
			if err := w.agents.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			i := w.processed(t, sent+round+1)
			most = max(most, i.Replayed)
			if i.Stats == nil || i.Stats.OpenSteps != sent {
				t.Fatalf("round %d: %d steps were sent: %+v", round, sent, i)
			}
			if i.Replayed > replay+batch+1 {
				t.Fatalf("round %d: a restart reads %d records, want at most %d and one batch of %d", round, i.Replayed, replay, batch+1)
			}
		}
		if most < replay/2 {
			t.Errorf("a restart reads at most %d records: is every run saved each time?", most)
		}
	})
}

// step is one of prov.steps, in a session that does not end.
func (w *world) step(tenant string, session, n int) *kgo.Record {
	now := time.Now().UnixMilli()
	s := acs.Step{
		Tenant: tenant, Session: fmt.Sprintf("00000000-0000-4000-8000-%012d", session), StepID: fmt.Sprintf("00000000-0000-4000-9000-%012d", n),
		ID: "1", Method: acs.MethodUserMessage, EventTime: now, RecordedAt: now, AgentID: "agent", Environment: "production", Platform: "test",
		Coordinates: acs.Coordinates{Topic: "acs.hooks.user-message", Offset: int64(n), Index: -1},
	}
	return &kgo.Record{Topic: w.Topic(topics.Steps), Key: []byte(topics.RunKey(s.Tenant, s.Session)), Value: codec.AppendStep(nil, &s)}
}

// processed waits until the aggregator has committed so many offsets of
// prov.steps/0, and tells what a restart would find.
func (w *world) processed(t *testing.T, n int) aggregator.Inspection {
	t.Helper()
	for range 1000 {
		offsets, err := w.cluster.Committed(t.Context(), kafka.DefaultGroup(w.Prefix, aggregator.Service))
		if err != nil {
			t.Fatal(err)
		}
		if o, ok := offsets.Lookup(w.Topic(topics.Steps), 0); ok && o.At >= int64(n) {
			i, err := aggregator.Inspect(t.Context(), w.cluster, aggregator.Config{Config: w.config("aggregator", "a"), ReplayRecords: w.replay}, 0, true)
			if err != nil {
				t.Fatal(err)
			}
			if i.Fault == "" { // between the two looks it may have gone on
				return i
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("the aggregator does not come to offset %d", n)
	return aggregator.Inspection{}
}
