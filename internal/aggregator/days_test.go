package aggregator_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/aggregator"
	"provstream/internal/generate"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// Three days of a slow fleet: a session every half hour, of which one in three
// never ends. What is held after three days is what is held after one and a
// half, by count, on the state topic after compaction, and by the heap of the
// process: nothing grows.
func TestThreeDaysLeaveNothingBehind(t *testing.T) {
	needsVirtualTime(t)
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	// The broker lives in this process; its logs go to files.
	options := kafkatest.Options{Partitions: 1, Nodes: 1, Kfake: []kfake.Opt{kfake.DataDir(t.TempDir())}}
	kafkatest.Bubble(t, options, func(t *testing.T, c *kafkatest.Cluster) {
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
		var halfRecords int
		var halfHeap uint64
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
				half, halfRecords, halfHeap = w.held(t)
			}
		}
		whole, records, heap := w.held(t)
		t.Logf("after 36 hours %d runs, %d open, %d state records, heap %.1f MB; after 72 %d, %d, %d, %.1f MB", half.Stats.Runs, half.Stats.OpenRuns,
			halfRecords, float64(halfHeap)/1e6, whole.Stats.Runs, whole.Stats.OpenRuns, records, float64(heap)/1e6)
		if whole.Stats.Runs > half.Stats.Runs*11/10+2 || whole.Stats.OpenRuns > half.Stats.OpenRuns+2 || records > halfRecords*11/10+5 {
			t.Error("something grows")
		}
		if heap > halfHeap+halfHeap/10 {
			t.Errorf("the heap grows: %d bytes after 36 hours, %d after 72", halfHeap, heap)
		}
		if whole.Next-whole.Low > 500+200 {
			t.Errorf("a restart would replay %d records", whole.Next-whole.Low)
		}
		stop()
	})
}

// held is what the aggregator's state comes to, the records that compaction leaves
// on its topic, and the heap when retention has done its work.
func (w *world) held(t *testing.T) (i aggregator.Inspection, records int, heap uint64) {
	t.Helper()
	i, err := aggregator.Inspect(t.Context(), w.cluster, aggregator.Config{Config: w.config("aggregator", "a"), ReplayRecords: w.replay}, 0, true)
	if err != nil {
		t.Fatal(err)
	}
	if i.Stats == nil {
		t.Fatalf("no state: %+v", i)
	}
	w.retain(t, i.Low)
	w.Fake.Compact()
	for _, r := range w.read(t, topics.AggregatorState, 0) {
		if r.Value != nil { // a tombstone goes after delete.retention.ms
			records++
		}
	}
	runtime.GC()
	runtime.GC() // what finalizers held
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return i, records, m.HeapAlloc
}

// retain deletes what everybody has read: all but the end of prov.steps, and the
// state.
func (w *world) retain(t *testing.T, low int64) {
	t.Helper()
	all, err := w.cluster.Admin.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range all.Names() {
		to := int64(-1)
		switch topic {
		case w.Topic(topics.AggregatorState):
			continue
		case w.Topic(topics.Steps):
			to = low
		}
		for p := range all[topic].Partitions {
			if err := w.Fake.DeleteRecords(topic, p, to); err != nil {
				t.Fatal(err)
			}
		}
	}
}
