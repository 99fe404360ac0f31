package aggregator_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/acs"
	"provstream/internal/aggregator"
	"provstream/internal/codec"
	"provstream/internal/fleet"
	"provstream/internal/generate"
	"provstream/internal/ingest"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
	"provstream/internal/window"
)

type world struct {
	*kafkatest.Cluster
	flags   kafka.Flags
	window  window.Config
	replay  int64 // --replay-records; 0 is the default
	cluster *kafka.Cluster
	wait    time.Duration // of a fetch; 0 is the default
	agents  *kgo.Client
	loaded  int
}

func newWorld(t *testing.T, c *kafkatest.Cluster) *world {
	w := &world{Cluster: c, flags: kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix, Extra: c.Opts}, window: window.DefaultConfig()}
	w.window.TurnIdle, w.window.SessionIdle = 4*time.Minute, 5*time.Minute
	if !kafkatest.VirtualTime {
		w.window.SealGrace, w.window.Grace, w.window.LateGrace = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond
		w.window.TurnIdle, w.window.SessionIdle = 2*time.Second, 3*time.Second
	}
	var err error
	if w.cluster, err = kafka.Open(t.Context(), w.flags); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cluster.Close)
	w.agents = c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	return w
}

func (w *world) config(service, instance string) kafka.Config {
	cfg := kafka.Config{Flags: w.flags, Service: service, Instance: instance, LeaveOnStop: true, FetchWait: w.wait}
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("service", service)
	}
	return cfg
}

// run starts a service; stop ends it and fails the test if it had failed.
func run(t *testing.T, service func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- service(ctx) }()
	end := sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = end() })
	return func() {
		t.Helper()
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
}

func (w *world) startIngest(t *testing.T) (stop func()) {
	return run(t, func(ctx context.Context) error {
		return ingest.Run(ctx, ingest.Config{Config: w.config("ingest", "0")})
	})
}

func (w *world) startAggregator(t *testing.T, instance string) (stop func()) {
	return run(t, func(ctx context.Context) error {
		return aggregator.Run(ctx, aggregator.Config{Config: w.config("aggregator", instance), Window: w.window, ReplayRecords: w.replay})
	})
}

// load sends a generated fleet to the hook topics, n sessions.
func (w *world) load(t *testing.T, seed uint64, n int, each func(i int)) {
	t.Helper()
	// Hook topics here have the broker's limit: without the records over 1 MiB.
	faults := slices.DeleteFunc(generate.FaultNames(), func(name string) bool { return generate.FaultByName(name).DeadLetters[codec.KindOversize] > 0 })
	g, err := generate.New(generate.Config{Seed: seed, Sessions: n, Faults: faults, StartMs: time.Now().UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	var batch []*kgo.Record
	flush := func() {
		if err := w.agents.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		w.loaded += len(batch)
		batch = nil
	}
	for r := range g.All() {
		batch = append(batch, w.record(r))
		if i++; i%50 == 0 {
			flush()
			if each != nil {
				each(i)
			}
		}
	}
	flush()
}

func (w *world) record(r fleet.Record) *kgo.Record {
	if topic := w.Topic(r.Topic); w.Fake.TopicInfo(topic) == nil { // a hook that is none of ACS's
		_ = w.Fake.CreateTopic(topic, w.Partitions, nil)
	}
	out := &kgo.Record{Topic: w.Topic(r.Topic), Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.TimeMs)}
	if len(r.Key) != 0 {
		out.Partition = topics.Partition(r.Key, w.Partitions)
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return out
}

func (w *world) read(t *testing.T, base string, p int32) []*kgo.Record {
	t.Helper()
	b, err := w.cluster.Bounds(t.Context(), w.Topic(base), p)
	if err != nil {
		t.Fatal(err)
	}
	var all []*kgo.Record
	err = w.cluster.Read(t.Context(), w.Topic(base), p, b.Start, b.End, kafka.ReadCommitted, func(recs []*kgo.Record) error {
		all = append(all, recs...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// settle waits until everything is read and every run has sealed.
func (w *world) settle(t *testing.T) {
	t.Helper()
	clock := kafka.HookClock{Cluster: w.cluster, IngestGroup: kafka.DefaultGroup(w.Prefix, "ingest"), Tolerance: time.Second}
	for range 2000 {
		if o, err := clock.Observe(t.Context()); err == nil && o.OK && o.Behind == 0 {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	quiet := 10 * time.Minute // more than --session-idle and --late-grace
	if !kafkatest.VirtualTime {
		quiet = 7 * time.Second
	}
	time.Sleep(quiet)
}

// checkReplay compares what was emitted with an undisturbed replay of
// prov.steps as it was recorded: rules.md D2. It returns the number of DAGs.
func (w *world) checkReplay(t *testing.T) (dags int) {
	t.Helper()
	offsets, err := w.cluster.Committed(t.Context(), kafka.DefaultGroup(w.Prefix, "aggregator"))
	if err != nil {
		t.Fatal(err)
	}
	bases := [3]string{window.Turn: topics.Turns, window.Session: topics.Sessions, window.Run: topics.Runs}
	for p := range w.Partitions {
		next := int64(0)
		if o, ok := offsets.Lookup(w.Topic(topics.Steps), p); ok {
			next = o.At
		}
		var want [3][]window.Emission
		emit := func(e window.Emission) { want[e.Kind] = append(want[e.Kind], e) }
		part := window.NewPartition(w.window)
		var step acs.Step
		for _, r := range w.read(t, topics.Steps, p) {
			if r.Offset >= next {
				break
			}
			if at, ok := codec.DecodeTick(r.Value); ok {
				part.Tick(r.Offset, at, emit)
			} else if err := codec.DecodeStep(&step, r.Value); err == nil {
				part.Apply(r.Offset, &step, emit)
			}
		}
		if n := part.Stats().OpenSteps; n != 0 {
			t.Errorf("partition %d: %d steps are still open", p, n)
		}
		for kind, base := range bases {
			got := w.read(t, base, p)
			seen := make(map[string]int)
			for _, r := range got {
				seen[header(r, "ce_id")]++
			}
			for id, n := range seen {
				if n > 1 {
					t.Errorf("%s/%d: %s stands there %d times", base, p, id, n)
				}
			}
			if len(got) != len(want[kind]) {
				t.Errorf("%s/%d: %d records, a replay gives %d", base, p, len(got), len(want[kind]))
			}
			for i := range min(len(got), len(want[kind])) {
				e := want[kind][i]
				if string(got[i].Key) != e.Key || string(got[i].Value) != string(e.Value) || header(got[i], "ce_id") != e.ID {
					t.Errorf("%s/%d record %d: %s differs from the replay's %s", base, p, i, header(got[i], "ce_id"), e.ID)
					break
				}
			}
		}
		dags += len(want[window.Run])
	}
	return dags
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

// An instance runs from the beginning, others come and go, and commits fail:
// what is emitted is what an undisturbed replay of the log gives. Restores read
// the log alone, or mostly snapshots.
func TestOutputIsAFunctionOfTheLog(t *testing.T) {
	needsVirtualTime(t)
	for _, replay := range []int64{0, 100} {
		t.Run(fmt.Sprintf("replay-records=%d", replay), func(t *testing.T) {
			kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
				w := newWorld(t, c)
				w.replay = replay
				w.disturb(t)
			})
		})
	}
}

// needsVirtualTime skips what takes minutes in real time.
func needsVirtualTime(t *testing.T) {
	t.Helper()
	if !kafkatest.VirtualTime {
		t.Skip("SKIPPED: takes minutes in real time; run with -tags synctests")
	}
}

func (w *world) disturb(t *testing.T) {
	w.startIngest(t)
	stop := w.startAggregator(t, "a")
	failing := []kmsg.Key{kmsg.Produce, kmsg.TxnOffsetCommit, kmsg.EndTxn}
	errs := []*kerr.Error{kerr.UnknownServerError, kerr.RequestTimedOut}
	rounds := 0
	w.load(t, 1, 40, func(i int) {
		time.Sleep(70 * time.Millisecond)
		if i%200 != 0 {
			return
		}
		rounds++
		w.Fake.Fault(kfake.Fault{
			Keys: failing[rounds%3 : rounds%3+1], Err: errs[rounds%2], TopLevel: rounds%3 == 2,
			When: func(req kmsg.Request) bool { return strings.Contains(transactionalID(req), "aggregator") },
		})
		if rounds%3 == 0 {
			stop()
			stop = w.startAggregator(t, fmt.Sprint("a", rounds))
		}
		if rounds%4 == 0 {
			other := w.startAggregator(t, fmt.Sprint("b", rounds))
			defer other()
			time.Sleep(400 * time.Millisecond)
		}
	})
	w.settle(t)
	stop()
	if dags := w.checkReplay(t); dags < 40 {
		t.Errorf("%d DAGs of 40 sessions", dags)
	}
	t.Logf("%d records, %d rounds", w.loaded, rounds)
}

// A graceful stop writes everything down: the next start replays nothing.
func TestAGracefulStopSavesEverything(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		stopIngest := w.startIngest(t)
		stop := w.startAggregator(t, "a")
		n := 0
		g, err := generate.New(generate.Config{Seed: 5, Sessions: 12, StartMs: time.Now().UnixMilli()})
		if err != nil {
			t.Fatal(err)
		}
		for r := range g.All() {
			if n++; n > 300 {
				break // most sessions are still open
			}
			if err := w.agents.ProduceSync(t.Context(), w.record(r)).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		for p := range w.Partitions {
			for n := 0; n < 1000 && !w.ticked(t, p); n++ {
				time.Sleep(20 * time.Millisecond)
			}
		}
		stop()
		stopIngest()
		loaded, clocks := 0, 0
		for p := range w.Partitions {
			i, err := aggregator.Inspect(t.Context(), w.cluster, aggregator.Config{Config: w.config("aggregator", "a")}, p, true)
			if err != nil {
				t.Fatal(err)
			}
			if i.Fault != "" || i.Stored && i.Low != i.Next {
				t.Errorf("partition %d: low %d, next %d, %s", p, i.Low, i.Next, i.Fault)
			}
			if i.Clock != nil {
				clocks++
			}
			loaded += i.Loaded
			steps := 0
			for n, r := range i.Runs {
				steps += r.Steps
				if n > 0 && r.Weight > i.Runs[n-1].Weight || r.FirstOffset > r.LastOffset || r.LastMs == 0 {
					t.Errorf("partition %d: run %d of %+v", p, n, i.Runs)
				}
			}
			if i.Stats != nil && (steps != i.Stats.OpenSteps || len(i.Runs) != i.Stats.OpenRuns) {
				t.Errorf("partition %d: %d steps of %d runs are listed, there are %d of %d", p, steps, len(i.Runs), i.Stats.OpenSteps, i.Stats.OpenRuns)
			}
		}
		if loaded == 0 || clocks == 0 {
			t.Errorf("%d records in snapshots, %d partitions with a clock", loaded, clocks)
		}
		w.startIngest(t)
		stop = w.startAggregator(t, "b")
		w.settle(t)
		stop()
		w.checkReplay(t)
	})
}

// So does a stop before anybody could tick.
func TestAStopBeforeTheFirstTickSavesEverything(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{Partitions: 1}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		stop := w.startAggregator(t, "a")
		openSteps(t, w.agents, w.Topic(topics.Steps), 500, time.Second)
		w.processed(t, 500)
		stop()
		i, err := aggregator.Inspect(t.Context(), w.cluster, aggregator.Config{Config: w.config("aggregator", "a")}, 0, true)
		if err != nil {
			t.Fatal(err)
		}
		if i.Fault != "" || i.Low != i.Next || i.Loaded != 500 {
			t.Errorf("low %d, next %d, %d steps of 500 from snapshots, %s", i.Low, i.Next, i.Loaded, i.Fault)
		}
		stopIngest := w.startIngest(t)
		stop = w.startAggregator(t, "b")
		w.settle(t)
		stop()
		stopIngest()
		if dags := w.checkReplay(t); dags != 5 {
			t.Errorf("%d DAGs of 5 sessions", dags)
		}
	})
}

// ticked tells whether the aggregator has taken a tick of the partition.
func (w *world) ticked(t *testing.T, p int32) bool {
	t.Helper()
	i, err := aggregator.Inspect(t.Context(), w.cluster, aggregator.Config{Config: w.config("aggregator", "a")}, p, true)
	return err == nil && i.Clock != nil
}

// A changed configuration holds from where it was set, and a restore after it
// does not take older records with it.
func TestAChangedConfigurationHoldsFromNow(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		w.startIngest(t)
		stop := w.startAggregator(t, "a")
		w.load(t, 6, 3, nil)
		time.Sleep(time.Second)
		stop()
		w.window.Grace += 50 * time.Millisecond
		stop = w.startAggregator(t, "a")
		w.load(t, 7, 3, nil)
		time.Sleep(2 * time.Second)
		stop()
		for p := range w.Partitions {
			i, err := aggregator.Inspect(t.Context(), w.cluster, aggregator.Config{Config: w.config("aggregator", "a")}, p, false)
			if err != nil {
				t.Fatal(err)
			}
			if i.Stored && i.Window != w.window {
				t.Errorf("partition %d still has the old configuration: %+v", p, i.Window)
			}
		}
	})
}

func transactionalID(req kmsg.Request) string {
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		if r.TransactionID != nil {
			return *r.TransactionID
		}
	case *kmsg.TxnOffsetCommitRequest:
		return r.TransactionalID
	case *kmsg.EndTxnRequest:
		return r.TransactionalID
	}
	return ""
}

// While ingest is down and records wait, time stands still: no run is sealed
// for want of steps that are only unread.
func TestNoTickWhileIngestIsDown(t *testing.T) {
	needsVirtualTime(t)
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		stopIngest := w.startIngest(t)
		w.startAggregator(t, "a")
		down := false
		w.load(t, 2, 20, func(i int) {
			time.Sleep(20 * time.Millisecond)
			if i >= 400 && !down {
				down = true
				stopIngest()
			}
		})
		count := func(base string) (n int) {
			for p := range w.Partitions {
				n += len(w.read(t, base, p))
			}
			return n
		}
		time.Sleep(2 * time.Second)
		before, ticks := count(topics.Runs), w.lastTick(t)
		time.Sleep(30 * time.Minute)
		if after := count(topics.Runs); after != before {
			t.Errorf("%d runs sealed while ingest was down", after-before)
		}
		if now := w.lastTick(t); now != ticks {
			t.Errorf("the clock went from %d to %d while ingest was down", ticks, now)
		}
		w.startIngest(t)
		w.settle(t)
		if dags := w.checkReplay(t); dags < 20 {
			t.Errorf("%d DAGs of 20 sessions", dags)
		}
	})
}

// lastTick is the largest tick in any partition.
func (w *world) lastTick(t *testing.T) (last int64) {
	t.Helper()
	for p := range w.Partitions {
		for _, r := range w.read(t, topics.Steps, p) {
			if at, ok := codec.DecodeTick(r.Value); ok {
				last = max(last, at)
			}
		}
	}
	return last
}

// What does not belong together is refused with a message that says what was
// reset.
func TestStateThatDoesNotFitIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		reset func(t *testing.T, w *world)
		want  string
	}{
		"group deleted": {func(t *testing.T, w *world) {
			if _, err := w.cluster.Admin.DeleteGroups(t.Context(), kafka.DefaultGroup(w.Prefix, "aggregator")); err != nil {
				t.Fatal(err)
			}
		}, "the group was deleted"},
		"state emptied": {func(t *testing.T, w *world) {
			for p := range w.Partitions {
				if err := w.Fake.DeleteRecords(w.Topic(topics.AggregatorState), p, -1); err != nil {
					t.Fatal(err)
				}
			}
		}, "the state topic was emptied"},
		"steps expired": {func(t *testing.T, w *world) {
			for p := range w.Partitions {
				if err := w.Fake.DeleteRecords(w.Topic(topics.Steps), p, -1); err != nil {
					t.Fatal(err)
				}
			}
		}, "raise the retention"},
		"partitions added": {func(t *testing.T, w *world) {
			for _, topic := range topics.All() {
				if topic.Partitioned {
					if _, err := w.cluster.Admin.CreatePartitions(t.Context(), 1, w.Topic(topic.Name)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}, "was made with 4 partitions, the topics have 5 now"},
	} {
		t.Run(name, func(t *testing.T) {
			kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
				w := newWorld(t, c)
				stopIngest := w.startIngest(t)
				stop := w.startAggregator(t, "a")
				w.load(t, 3, 4, nil)
				time.Sleep(2 * time.Second)
				// The last transaction does not commit, so the stop saves nothing:
				// it is like a crash.
				crash := c.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.UnknownServerError, TopLevel: true, Count: -1,
					When: func(req kmsg.Request) bool { return strings.Contains(transactionalID(req), "aggregator") }})
				stop()
				crash.Remove()
				stopIngest()
				tc.reset(t, w)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				err := aggregator.Run(ctx, aggregator.Config{Config: w.config("aggregator", "a"), Window: w.window})
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
			})
		})
	}
}
