package aggregator_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/aggregator"
	"provstream/internal/generate"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// Three days of a slow fleet: a session every half hour, of which one in three
// never ends. What is held after three days is what is held after one and a
// half: nothing grows.
func TestThreeDaysLeaveNothingBehind(t *testing.T) {
	needsVirtualTime(t)
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	kafkatest.Bubble(t, kafkatest.Options{Partitions: 1, Nodes: 1}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		w.window.TurnIdle, w.window.SessionIdle = 15*time.Minute, time.Hour
		w.replay, w.wait = 500, time.Minute
		w.startIngest(t)
		stop := w.startAggregator(t, "a")
		const sessions = 2 * 72
		g, err := generate.New(generate.Config{Seed: 9, Sessions: sessions})
		if err != nil {
			t.Fatal(err)
		}
		var half aggregator.Inspection
		var halfKeys int
		for i := range g.Sessions() {
			if i >= sessions {
				break
			}
			records := g.Session(i)
			if i%3 == 0 {
				records = records[:len(records)*2/3]
			}
			for k := 0; k < len(records); k += 10 {
				var batch []*kgo.Record
				for _, r := range records[k:min(k+10, len(records))] {
					r.TimeMs = time.Now().UnixMilli()
					batch = append(batch, w.record(r))
				}
				if err := w.agents.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
			}
			time.Sleep(30 * time.Minute)
			if i == sessions/2 {
				half, halfKeys = w.held(t)
			}
		}
		whole, keys := w.held(t)
		t.Logf("after 36 hours %d runs, %d open, %d state records; after 72 %d, %d, %d", half.Stats.Runs, half.Stats.OpenRuns, halfKeys, whole.Stats.Runs, whole.Stats.OpenRuns, keys)
		if whole.Stats.Runs > half.Stats.Runs*11/10+2 || whole.Stats.OpenRuns > half.Stats.OpenRuns+2 || keys > halfKeys*11/10+5 {
			t.Error("something grows")
		}
		if whole.Next-whole.Low > 500+200 {
			t.Errorf("a restart would replay %d records", whole.Next-whole.Low)
		}
		stop()
	})
}

// held is what the aggregator's state comes to, and the records of its topic
// that compaction keeps.
func (w *world) held(t *testing.T) (aggregator.Inspection, int) {
	t.Helper()
	i, err := aggregator.Inspect(t.Context(), w.cluster, aggregator.Config{Config: w.config("aggregator", "a"), ReplayRecords: w.replay}, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	if i.Stats == nil {
		t.Fatalf("no state: %+v", i)
	}
	keys := make(map[string]bool)
	b, err := w.cluster.Bounds(t.Context(), w.Topic(topics.AggregatorState), 0)
	if err != nil {
		t.Fatal(err)
	}
	err = w.cluster.Read(t.Context(), w.Topic(topics.AggregatorState), 0, b.Start, b.End, kafka.ReadCommitted, func(records []*kgo.Record) error {
		for _, r := range records {
			if r.Value == nil {
				delete(keys, string(r.Key))
			} else {
				keys[string(r.Key)] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return i, len(keys)
}
