// Package integration tests the whole pipeline: the three services as processes
// of their own, on kfake always, on Apache Kafka where one is configured (see
// package kafkatest), in a container where a Docker engine is.
package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/integration/processes"
	"provstream/internal/generate"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
	"provstream/internal/topology"
	"provstream/internal/window"
)

// binDir is where the binaries are built, once.
var binDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	binDir = dir
	code := kafkatest.Main(m)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

var build = sync.OnceValue(func() error { return processes.Build(context.Background(), binDir) })

// each runs a test on kfake and on Apache Kafka.
func each(t *testing.T, f func(t *testing.T, c *kafkatest.Cluster)) {
	if testing.Short() {
		t.Skip("SKIPPED: starts processes; not with -short")
	}
	t.Run("kfake", func(t *testing.T) { f(t, kafkatest.Loopback(t, kafkatest.Options{})) })
	t.Run("kafka", func(t *testing.T) { f(t, kafkatest.Real(t, kafkatest.Options{})) })
}

// soon are windows that close as soon as the log says that everything is there.
func soon() window.Config {
	w := window.DefaultConfig()
	w.CompleteGrace, w.Grace, w.SealGrace, w.LateGrace = time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond
	return w
}

// deploy prepares a deployment on the cluster; nothing runs yet.
func deploy(t *testing.T, c *kafkatest.Cluster, w window.Config) *processes.Deployment {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	d := &processes.Deployment{
		Bin: binDir, Dir: t.TempDir(), Brokers: c.BrokerFlag(), Prefix: c.Prefix, Windows: w,
		Flags: map[string][]string{"": {"--session-timeout=6s"}},
	}
	if err := d.NewKeys(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// provctl runs a command that must succeed.
func provctl(t *testing.T, d *processes.Deployment, args ...string) []byte {
	t.Helper()
	out, err := d.Provctl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func startAll(t *testing.T, d *processes.Deployment) {
	t.Helper()
	if err := d.StartAll(); err != nil {
		t.Fatal(err)
	}
}

// finish drains, stops and checks with the oracle, and returns what was written.
func finish(t *testing.T, c *kafkatest.Cluster, d *processes.Deployment, quiet time.Duration) *processes.Outcome {
	t.Helper()
	begin := time.Now()
	lap := func(what string) {
		t.Logf("%s in %.1f s", what, time.Since(begin).Seconds())
		begin = time.Now()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := d.Drain(ctx, c.Client(t), c.Opts, quiet); err != nil {
		for _, p := range d.Processes() {
			t.Logf("%s-%d: %s", p.Service, p.Instance, p.LogTail())
		}
		t.Fatal(err)
	}
	lap("drained")
	if err := d.Stop(); err != nil {
		t.Error(err)
	}
	lap("stopped")
	if out, err := d.Reconcile(ctx); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	lap("reconciled")
	o, err := processes.ReadOutcome(ctx, c.Opts, c.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, twice := range o.Repeated {
		t.Errorf("stands twice: %s", twice)
	}
	replay, err := processes.ReplayLog(ctx, c.Opts, c.Prefix, d.Windows)
	if err != nil {
		t.Fatal(err)
	}
	for _, diff := range replay.Differences {
		t.Errorf("replay of prov.steps: %s", diff)
	}
	lap("read and replayed")
	return o
}

// reset deletes everything that the services wrote, and their offsets, and leaves
// the hook topics: the same input again.
func reset(t *testing.T, c *kafkatest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	adm := kadm.NewClient(c.Client(t, topology.Fresh()))
	var names []string
	for _, topic := range topics.All() {
		names = append(names, c.Topic(topic.Name))
	}
	if _, err := adm.DeleteTopics(ctx, names...); err != nil {
		t.Fatal(err)
	}
	for _, s := range processes.Services {
		group := c.Prefix + "provstream-" + s
		for ctx.Err() == nil {
			// A static member stays in the group after a stop until its session
			// times out, and a group with members is not deleted.
			resp, err := adm.DeleteGroup(ctx, group)
			if err == nil && resp.Err == nil || strings.Contains(fmt.Sprint(err, resp.Err), "GROUP_ID_NOT_FOUND") {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
	}
	for ctx.Err() == nil {
		rows, err := topology.List(ctx, adm, c.Prefix)
		if err != nil {
			continue // topics that are being deleted
		}
		left := 0
		for _, r := range rows {
			if strings.HasPrefix(r.Topic, c.Prefix+"prov.") {
				left++
			}
		}
		if left == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	brokers, err := adm.ListBrokers(ctx)
	if err != nil {
		t.Fatal(err)
	}
	replication := int16(1)
	if c.Fake == nil && len(brokers) >= 3 {
		replication = 3
	}
	if _, err := topology.Create(ctx, adm, topology.Spec{Prefix: c.Prefix, Partitions: c.Partitions, Replication: replication}); err != nil {
		t.Fatal(err)
	}
}

// count returns the end offsets of a topic, added up.
func count(t *testing.T, adm *kadm.Client, topic string) (n int64) {
	t.Helper()
	ends, err := adm.ListEndOffsets(t.Context(), topic)
	if err != nil {
		return 0
	}
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n
}

// TestAirline runs the recorded fleet of 60 sessions. The numbers are those of an
// independent reading of the rules.
func TestAirline(t *testing.T) {
	each(t, func(t *testing.T, c *kafkatest.Cluster) {
		file := kafkatest.Shared(t, "fleet/airline.jsonl.gz")
		d := deploy(t, c, soon())
		provctl(t, d, "replay", file)
		startAll(t, d)
		o := finish(t, c, d, 2*time.Second)
		if o.Runs != 60 || len(o.DAGs) != 60 || o.Nodes != 4293 {
			t.Errorf("%d runs, %d DAGs, %d nodes; want 60, 60, 4293", o.Runs, len(o.DAGs), o.Nodes)
		}
		if len(o.Turns) != 489 || o.ClosedBy["complete"] != 489 {
			t.Errorf("%d turns, closed by %v; want 489 complete", len(o.Turns), o.ClosedBy)
		}
		if o.DeadLetters != 0 {
			t.Errorf("%d dead letters", o.DeadLetters)
		}
		if len(o.Anomaly) != 1 || o.Anomaly["compaction_lineage"] != 12 {
			t.Errorf("anomalies %v, want 12 compaction_lineage alone", o.Anomaly)
		}
	})
}

// TestGenerated runs a generated fleet with every hook and every fault.
func TestGenerated(t *testing.T) {
	each(t, func(t *testing.T, c *kafkatest.Cluster) {
		d := deploy(t, c, soon())
		file := filepath.Join(d.Dir, "fleet.jsonl")
		provctl(t, d, "generate", "--seed", "11", "--sessions", "80", "--faults", strings.Join(generate.FaultNames(), ","), "-o", file)
		provctl(t, d, "replay", file, "--create-topics")
		startAll(t, d)
		o := finish(t, c, d, 2*time.Second)
		if len(o.DAGs) < 80 || o.DeadLetters == 0 || len(o.Anomaly) < 20 {
			t.Errorf("%d DAGs, %d dead letters, anomalies %v: the faults do not show", len(o.DAGs), o.DeadLetters, o.Anomaly)
		}
	})
}

// TestKill kills each service in the middle of a fleet, again and again, and
// compares with what it gives undisturbed.
func TestKill(t *testing.T) {
	each(t, func(t *testing.T, c *kafkatest.Cluster) {
		d := deploy(t, c, soon())
		// Small transactions, so that there are many to kill.
		d.Flags[""] = append(d.Flags[""], "--commit-interval=20ms")
		file := filepath.Join(d.Dir, "fleet.jsonl")
		provctl(t, d, "generate", "--seed", "5", "--sessions", "150", "-o", file)
		provctl(t, d, "replay", file, "--copies", "2", "--create-topics")
		startAll(t, d)
		want := finish(t, c, d, 2*time.Second)
		if len(want.DAGs) < 300 {
			t.Fatalf("%d DAGs of 300 sessions", len(want.DAGs))
		}
		for _, victim := range append([]string{"all"}, processes.Services...) {
			t.Run(victim, func(t *testing.T) {
				reset(t, c)
				startAll(t, d)
				kill(t, c, d, victim, len(want.DAGs))
				got := finish(t, c, d, 2*time.Second)
				if err := want.Equal(got); err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// kill kills the victim five times while the fleet drains: each time when a
// further sixth of the DAGs is there.
func kill(t *testing.T, c *kafkatest.Cluster, d *processes.Deployment, victim string, dags int) {
	t.Helper()
	adm := kadm.NewClient(c.Client(t))
	deadline := time.Now().Add(2 * time.Minute)
	for k := range 5 {
		for count(t, adm, c.Topic(topics.Runs)) < int64(dags*k/6) && time.Now().Before(deadline) {
			time.Sleep(5 * time.Millisecond)
		}
		for _, p := range d.Processes() {
			if p.Service == victim || victim == "all" {
				p.Kill()
			}
		}
		t.Logf("kill %d of %s: %d records of prov.runs", k, victim, count(t, adm, c.Topic(topics.Runs)))
		for _, p := range d.Processes() {
			if !p.Running() {
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestBacklog stops services for 12 seconds while the fleet goes on, and lets
// them go on with the backlog. No run may be sealed without its steps. A service
// that takes the wall clock, or the time of the records it happens to have, for
// the time of the log fails this.
func TestBacklog(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: starts processes; not with -short")
	}
	for _, on := range []struct {
		name  string
		start func(testing.TB, kafkatest.Options) *kafkatest.Cluster
	}{{"kfake", kafkatest.Loopback}, {"kafka", kafkatest.Real}} {
		t.Run(on.name, func(t *testing.T) {
			for _, frozen := range [][]string{processes.Services, {"ingest"}, {"aggregator"}, {"signer"}} {
				t.Run(strings.Join(frozen, "-"), func(t *testing.T) {
					t.Parallel() // it waits most of the time
					backlog(t, on.start(t, kafkatest.Options{}), frozen)
				})
			}
		})
	}
}

func backlog(t *testing.T, c *kafkatest.Cluster, frozen []string) {
	w := window.DefaultConfig()
	w.CompleteGrace, w.Grace, w.SealGrace = time.Second, 2*time.Second, 2*time.Second
	w.TurnIdle, w.SessionIdle = 9*time.Second, 10*time.Second // shorter than the stop
	d := deploy(t, c, w)
	startAll(t, d)
	arrivals := watch(t, c)
	sent := make(chan error, 2)
	send := func(seed uint64) {
		sent <- d.Feed(t.Context(), generate.Config{Seed: seed, Sessions: 60}, 300, func() {})
	}
	go send(1)
	time.Sleep(2 * time.Second)
	for _, s := range frozen {
		if err := d.Get(s, 0).Pause(); err != nil {
			t.Fatal(err)
		}
	}
	go send(2)
	time.Sleep(12 * time.Second)
	woken := time.Now()
	for _, s := range frozen {
		if err := d.Get(s, 0).Resume(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
	}
	took := arrivals.after(t, woken, time.Minute)
	t.Logf("the first signed DAG came %.1f s after SIGCONT", took.Seconds())
	if took > awake {
		t.Errorf("the first signed DAG came %v after SIGCONT, want at most %v", took, awake)
	}
	o := finish(t, c, d, 5*time.Second)
	if len(o.Anomaly) != 0 {
		t.Errorf("anomalies %v in a fleet without faults", o.Anomaly)
	}
	if len(o.DAGs) < 120 {
		t.Errorf("%d DAGs of 120 sessions", len(o.DAGs))
	}
}

// TestDeadLetters holds that what is broken is set aside with its reason while
// the rest flows on.
func TestDeadLetters(t *testing.T) {
	each(t, func(t *testing.T, c *kafkatest.Cluster) {
		d := deploy(t, c, soon())
		file := filepath.Join(d.Dir, "fleet.jsonl")
		provctl(t, d, "generate", "--seed", "3", "--sessions", "8", "-o", file)
		provctl(t, d, "replay", file, "--create-topics")
		topic := c.Topic("acs.hooks.turn-start")
		bad := map[string]string{
			"{\"jsonrpc\":": "not_json",
			`{"jsonrpc":"2.0","method":"steps/turnStart","id":"a","id":"b"}`: "not_strict",
			`{"jsonrpc":"2.0","method":"steps/turnStart","id":"a"}`:          "envelope",
		}
		cl := c.Client(t)
		for value := range bad {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		startAll(t, d)
		o := finish(t, c, d, 2*time.Second)
		if o.DeadLetters != len(bad) {
			t.Errorf("%d dead letters, want %d", o.DeadLetters, len(bad))
		}
		err := processes.ReadTopic(t.Context(), c.Opts, c.Topic(topics.DeadLetter), func(r *kgo.Record) error {
			h := make(map[string]string)
			for _, x := range r.Headers {
				h[x.Key] = string(x.Value)
			}
			if want := bad[string(r.Value)]; h["provstream.error.kind"] != want {
				t.Errorf("%s: kind %q, want %q", r.Value, h["provstream.error.kind"], want)
			}
			if h["__streams.errors.topic"] != topic || h["__streams.errors.offset"] == "" || h["provstream.error.attempts"] != "1" {
				t.Errorf("%s: headers %v", r.Value, h)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		if len(o.DAGs) < 8 {
			t.Errorf("%d DAGs of 8 sessions: the rest does not flow on", len(o.DAGs))
		}
	})
}
