package aggregator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/acs"
	"provstream/internal/aggregator"
	"provstream/internal/codec"
	"provstream/internal/generate"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// The tests of this file send a fleet without faults as live agents do, each
// record at its time, and make the observation of the hook topics hard. In the end
// every session is one DAG without an anomaly: no run was sealed for want of steps
// that were only unread, and time went on when all was read.

// live sends n sessions and returns when the last record is sent.
func (w *world) live(t *testing.T, seed uint64, n int, send func(*kgo.Record)) {
	t.Helper()
	w.know(t, seed, n)
	g, err := generate.New(generate.Config{Seed: seed, Sessions: n, StartMs: time.Now().UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	if send == nil {
		send = func(r *kgo.Record) {
			if err := w.agents.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Error(err)
			}
		}
	}
	for r := range g.All() {
		time.Sleep(time.Until(time.UnixMilli(r.TimeMs)))
		r.TimeMs = time.Now().UnixMilli()
		send(w.record(r))
	}
}

// know makes the hook topics that such a fleet needs and ACS does not have, and
// lets ingest find them: a new one holds the clock until then.
func (w *world) know(t *testing.T, seed uint64, n int) {
	t.Helper()
	g, err := generate.New(generate.Config{Seed: seed, Sessions: n})
	if err != nil {
		t.Fatal(err)
	}
	for r := range g.All() {
		w.record(r)
	}
	time.Sleep(15 * time.Second) // metadata age, rebalance
}

// whole checks that each run has one DAG, n sessions and those of their subagents,
// and that there is no anomaly.
func (w *world) whole(t *testing.T, n int) {
	t.Helper()
	w.settle(t)
	w.checkReplay(t)
	dags := make(map[string]int)
	for p := range w.Partitions {
		for _, r := range w.read(t, topics.Steps, p) {
			if len(r.Key) != 0 {
				dags[string(r.Key)] += 0
			}
		}
		for _, r := range w.read(t, topics.Runs, p) {
			dags[string(r.Key)]++
		}
	}
	for key, n := range dags {
		if n != 1 {
			t.Errorf("%s has %d DAGs", key, n)
		}
	}
	if len(dags) < n {
		t.Errorf("%d runs of %d sessions", len(dags), n)
	}
	last := make(map[string]map[string]int)
	for p := range w.Partitions {
		for _, r := range w.read(t, topics.Sessions, p) {
			var s struct {
				Counts map[string]int `json:"anomaly_counts"`
			}
			if err := json.Unmarshal(r.Value, &s); err != nil {
				t.Fatal(err)
			}
			last[string(r.Key)] = s.Counts
		}
	}
	for key, counts := range last {
		if len(counts) != 0 {
			t.Errorf("%s: %v in a fleet without faults", key, counts)
		}
	}
}

// Hours in which nobody ticked, with much that is open behind them: time goes on in
// steps, each a transaction of its own, and not in one that seals everything.
func TestTicksAfterHoursWithoutOne(t *testing.T) {
	needsVirtualTime(t)
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	kafkatest.Bubble(t, kafkatest.Options{Partitions: 1, Nodes: 1}, func(t *testing.T, c *kafkatest.Cluster) {
		defer aggregator.SetCalmSteps(50_000)()
		w := newWorld(t, c)
		w.window.TurnIdle, w.window.SessionIdle = 15*time.Minute, time.Hour
		w.startIngest(t)
		time.Sleep(5 * time.Second)
		const sessions = 1500
		openSteps(t, w.agents, w.Topic(topics.Steps), 100*sessions, 3*time.Hour)
		began := time.Now().Add(-3 * time.Hour).UnixMilli()
		w.startAggregator(t, "a")
		for range 600 {
			time.Sleep(time.Second)
			if len(w.read(t, topics.Runs, 0)) >= sessions*2/3 { // those that were silent for an hour
				break
			}
		}
		sealed := map[int64]int{} // by the clock
		for _, r := range w.read(t, topics.Runs, 0) {
			var dag struct{ CreatedAt time.Time }
			if err := json.Unmarshal(r.Value, &dag); err != nil {
				t.Fatal(err)
			}
			sealed[dag.CreatedAt.UnixMilli()]++
		}
		ticks, _ := w.ticks(t, 0)
		if len(ticks) < 60 || ticks[0] > began+20*time.Minute.Milliseconds() {
			t.Errorf("%d ticks, the first after %v", len(ticks), time.Duration(ticks[0]-began)*time.Millisecond)
		}
		if now := time.Now().UnixMilli(); ticks[len(ticks)-1] < now-time.Minute.Milliseconds() {
			t.Errorf("time has come to %v before now", time.Duration(now-ticks[len(ticks)-1])*time.Millisecond)
		}
		total, small := 0, 0
		for _, n := range sealed {
			total += n
			if n < 20 {
				small += n
			}
		}
		// The last ones, when little is open, may go together.
		if total < sessions*2/3 || small < sessions/3 {
			t.Errorf("%d runs sealed, %d of them by fewer than 20 a tick", total, small)
		}
	})
}

// ticks are the clock's steps in a partition: T and when it was written.
func (w *world) ticks(t *testing.T, p int32) (ts []int64, written []time.Time) {
	t.Helper()
	for _, r := range w.read(t, topics.Steps, p) {
		if at, ok := codec.DecodeTick(r.Value); ok {
			ts, written = append(ts, at), append(written, r.Timestamp)
		}
	}
	return ts, written
}

type tickWorld struct {
	*world
	stopIngest func()
}

// tickBubble runs a test with ingest and aggregator running.
func tickBubble(t *testing.T, tolerance time.Duration, test func(t *testing.T, w *tickWorld)) {
	needsVirtualTime(t)
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := &tickWorld{world: newWorld(t, c)}
		w.window.TurnIdle, w.window.SessionIdle = 15*time.Minute, time.Hour
		w.stopIngest = w.startIngest(t)
		run(t, func(ctx context.Context) error {
			return aggregator.Run(ctx, aggregator.Config{Config: w.config("aggregator", "a"), Window: w.window, ClockTolerance: tolerance})
		})
		time.Sleep(5 * time.Second)
		test(t, w)
	})
}

// While records come there is a tick at least every second or so, and never more
// than one in 100 ms.
func TestTicksUnderLoad(t *testing.T) {
	tickBubble(t, 0, func(t *testing.T, w *tickWorld) {
		begin := time.Now()
		w.live(t, 1, 40, nil)
		end := time.Now()
		if end.Sub(begin) < 20*time.Second {
			t.Fatalf("the load takes %v only", end.Sub(begin))
		}
		for p := range w.Partitions {
			var steps []time.Time
			for _, r := range w.read(t, topics.Steps, p) {
				if _, tick := codec.DecodeTick(r.Value); !tick {
					steps = append(steps, r.Timestamp)
				}
			}
			ts, written := w.ticks(t, p)
			for i := range written {
				if i > 0 && (ts[i] <= ts[i-1] || written[i].Sub(written[i-1]) < 100*time.Millisecond) {
					t.Errorf("partition %d: ticks %d at %v and %d at %v", p, ts[i-1], written[i-1], ts[i], written[i])
				}
			}
			// From each step to the next tick.
			longest := time.Duration(0)
			for _, at := range steps {
				i, _ := slices.BinarySearchFunc(written, at, time.Time.Compare)
				if i < len(written) {
					longest = max(longest, written[i].Sub(at))
				}
			}
			// A second, and where some partition has just got a record that
			// ingest has not read yet, the next looks.
			if len(steps) == 0 || longest == 0 || longest > 2*time.Second {
				t.Errorf("partition %d: a step waits %v for a tick (%d steps, %d ticks)", p, longest, len(steps), len(ts))
			}
		}
		w.whole(t, 40)
	})
}

// Time goes on though hardly a topic has anything new, and what waits for it comes
// in time: a session is sealed its grace after its end.
func TestTicksOfIdleTopics(t *testing.T) {
	tickBubble(t, 0, func(t *testing.T, w *tickWorld) {
		for i := range 3 {
			w.live(t, uint64(10+i), 1, nil)
			end := time.Now()
			time.Sleep(w.window.SealGrace + 3*time.Second) // tolerance, two transactions, two fetches
			open := 0
			for p := range w.Partitions {
				in, err := aggregator.Inspect(t.Context(), w.cluster, aggregator.Config{Config: w.config("aggregator", "a"), ReplayRecords: w.replay}, p, true)
				if err != nil || in.Fault != "" {
					t.Fatal(err, in.Fault)
				}
				if in.Stats != nil {
					open += in.Stats.OpenRuns
				}
			}
			if open != 0 {
				t.Errorf("%v after the end of session %d %d runs are open", time.Since(end), i, open)
			}
			time.Sleep(30 * time.Minute) // nothing comes
		}
		w.whole(t, 3)
	})
}

// hide lets kfake forget that fetches ask for a topic, as if a broker served it
// very late, until shown.
func (w *tickWorld) hide(topic string) (hidden func() int, show func()) {
	id := w.Fake.TopicInfo(topic).TopicID
	var n atomic.Int64
	var off atomic.Bool
	w.Fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r := req.(*kmsg.FetchRequest)
		before := len(r.Topics)
		if !off.Load() {
			r.Topics = slices.DeleteFunc(r.Topics, func(t kmsg.FetchRequestTopic) bool { return t.TopicID == id || t.Topic == topic })
		}
		n.Add(int64(before - len(r.Topics)))
		return nil, nil, false
	})
	return func() int { return int(n.Load()) }, func() { off.Store(true) }
}

// Ingest does not get at one topic for an hour while the others flow. No run is
// sealed: each has steps there. Ingest has read something of the topic before, or it
// has not.
func TestTicksWhenOneTopicLagsAnHour(t *testing.T) {
	for _, before := range []bool{false, true} {
		t.Run(fmt.Sprintf("read before: %t", before), func(t *testing.T) {
			tickBubble(t, 0, func(t *testing.T, w *tickWorld) { w.lag(t, before) })
		})
	}
}

func (w *tickWorld) lag(t *testing.T, before bool) {
	count := func() (runs int) {
		for p := range w.Partitions {
			runs += len(w.read(t, topics.Runs, p))
		}
		return runs
	}
	if before {
		w.live(t, 8, 5, nil)
		w.whole(t, 5)
	}
	sealed := count()
	w.stopIngest()
	hidden, show := w.hide(w.Topic(topics.Hook(acs.MethodTurnEnd)))
	stop := w.startIngest(t)
	w.live(t, 2, 20, nil)
	time.Sleep(time.Hour)
	w.live(t, 3, 20, nil)
	time.Sleep(time.Minute)
	if runs := count() - sealed; runs != 0 {
		t.Errorf("%d runs are sealed without the ends of their turns", runs)
	}
	if hidden() == 0 {
		t.Error("ingest never asked for the hidden topic")
	}
	show()
	stop() // its fetch sessions leave the topic out
	w.startIngest(t)
	w.whole(t, 40)
}

// Agents write in transactions, of which some abort, and one stays open for ten
// minutes: it holds nothing up, for its records are not there yet.
func TestTicksWithTransactionalAgents(t *testing.T) {
	tickBubble(t, 0, func(t *testing.T, w *tickWorld) {
		manual := kgo.RecordPartitioner(kgo.ManualPartitioner())
		agent := w.Client(t, manual, kgo.TransactionalID("agent"))
		open := w.Client(t, manual, kgo.TransactionalID("slow agent"), kgo.TransactionTimeout(15*time.Minute))
		if err := open.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		bad := &kgo.Record{Topic: w.Topic(topics.Hook(acs.MethodTurnStart)), Value: []byte("no json")}
		if err := open.ProduceSync(t.Context(), bad).FirstErr(); err != nil {
			t.Fatal(err)
		}
		n := 0
		w.live(t, 4, 20, func(r *kgo.Record) {
			if r.Topic == bad.Topic && r.Partition == bad.Partition {
				r.Partition = 1 // behind an open transaction nothing is seen
			}
			n++
			for _, commit := range []bool{n%5 != 0, true} { // one in five comes again
				if err := agent.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
				again := *r
				if err := agent.ProduceSync(t.Context(), &again).FirstErr(); err != nil {
					t.Fatal(err)
				}
				if err := agent.EndTransaction(t.Context(), kgo.TransactionEndTry(commit)); err != nil {
					t.Fatal(err)
				}
				if commit {
					break
				}
			}
		})
		w.whole(t, 20)
		if err := open.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
	})
}

// A hook topic that did not exist holds the clock from its first record on, until
// ingest has found and read it; one that is deleted no longer does.
func TestTicksWhenTopicsComeAndGo(t *testing.T) {
	tickBubble(t, 0, func(t *testing.T, w *tickWorld) {
		hook := w.Topic(topics.Hook(acs.MethodTurnEnd))
		if err := w.Fake.DeleteTopic(hook); err != nil {
			t.Fatal(err)
		}
		w.live(t, 5, 10, nil) // its first turnEnd makes the topic anew
		w.whole(t, 10)
		unread := w.Topic("acs.hooks.never-read")
		before := w.lastTick(t)
		if err := w.Fake.CreateTopic(unread, 1, nil); err != nil {
			t.Fatal(err)
		}
		if err := w.agents.ProduceSync(t.Context(), &kgo.Record{Topic: unread, Value: []byte("no json")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := w.Fake.DeleteTopic(unread); err != nil {
			t.Fatal(err)
		}
		w.live(t, 6, 10, nil)
		w.whole(t, 20)
		if now := w.lastTick(t); now <= before {
			t.Error("time stands still after a topic was deleted")
		}
	})
}

// The clock of the aggregator's host is a minute off, either way: then its idea of
// now is, which is what a tolerance is taken from.
func TestTicksWithAHostClockThatIsOff(t *testing.T) {
	for name, off := range map[string]time.Duration{"a minute ahead": -time.Minute, "a minute behind": time.Minute} {
		t.Run(name, func(t *testing.T) {
			tickBubble(t, time.Second+off, func(t *testing.T, w *tickWorld) {
				w.live(t, 7, 30, nil)
				w.whole(t, 30)
			})
		})
	}
}
