package aggregator_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/aggregator"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// Thousands of seals under pressure in the records that a restart replays: they
// fit into the state topic, a restart goes on from them, and they go when no
// replay needs them.
func TestManySealsUnderPressure(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	kafkatest.Bubble(t, kafkatest.Options{Partitions: 1}, func(t *testing.T, c *kafkatest.Cluster) {
		const sessions = 6000
		w := newWorld(t, c)
		w.window.MaxOpenSteps = 50
		w.startIngest(t)
		stop := w.startAggregator(t, "a")
		tenant := strings.Repeat(`"`, 100) + strings.Repeat("t", 100) // twice as long in JSON
		send := func(from, to int) {
			t.Helper()
			for i := from; i < to; i++ {
				w.agents.Produce(t.Context(), w.step(tenant, i, i), func(_ *kgo.Record, err error) {
					if err != nil {
						t.Error(err)
					}
				})
			}
			if err := w.agents.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		records := func() (seals, bytes int) {
			last := map[string]int{}
			for _, r := range w.read(t, topics.AggregatorState, 0) {
				last[string(r.Key)] = len(r.Value)
				if len(r.Value) > 1<<20 {
					t.Fatalf("a state record of %d bytes, key %.20s", len(r.Value), r.Key)
				}
			}
			for k, n := range last {
				if strings.HasPrefix(k, "seals@") && n > 0 {
					seals, bytes = seals+1, bytes+n
				}
			}
			return seals, bytes
		}
		send(0, sessions)
		w.processed(t, sessions)
		n, bytes := records()
		if bytes < 2<<20 {
			t.Errorf("%d records of seals with %d bytes: fewer than a record of the state topic holds prove nothing", n, bytes)
		}
		stop()
		w.replay = 200
		stop = w.startAggregator(t, "a") // the stop has saved everything: no replay needs them
		send(sessions, sessions+1000)
		w.processed(t, sessions+1000)
		if after, bytes := records(); bytes > 1<<20 {
			t.Errorf("%d records of seals with %d bytes are left", after, bytes)
		}
		w.settle(t)
		stop()
		if dags := w.checkReplay(t); dags < sessions {
			t.Errorf("%d DAGs", dags)
		}
		if i, err := aggregator.Inspect(t.Context(), w.cluster, aggregator.Config{Config: w.config("aggregator", "a")}, 0, true); err != nil || i.Fault != "" {
			t.Errorf("%v, %s", err, i.Fault)
		}
	})
}
