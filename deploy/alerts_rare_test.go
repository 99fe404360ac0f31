package deploy_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/canary"
	"provstream/internal/codec"
	"provstream/internal/fleet"
	"provstream/internal/generate"
	"provstream/internal/kafka"
	"provstream/internal/keys"
	"provstream/internal/load"
	"provstream/internal/pipeline"
	"provstream/internal/serve"
	"provstream/internal/topics"
	"provstream/verify"
)

// Somebody stops the process: what Prometheus makes of a scrape is 1 while the
// listener answers, 0 from then on.
func TestAlertOnAServiceThatIsDown(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := serve.New(pipeline.Ingest, serve.Flags{ListenMetrics: address, LogFormat: "text", LogLevel: "error"}, os.Stderr)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
	}()
	up := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "up", Help: "As Prometheus sets it."}, []string{"job"})
	scrape := func() float64 {
		resp, err := http.Get("http://" + address + "/metrics")
		if err != nil {
			return 0
		}
		resp.Body.Close()
		return 1
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(up)
	look := func() []*dto.MetricFamily {
		up.WithLabelValues("provstream-ingest").Set(scrape())
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return families
	}
	until(t, "the listener answers", func() bool { return scrape() == 1 })
	before := look()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	now := look()
	from := time.Now()
	evaluate(t, [][]*dto.MetricFamily{before, before}, from, []string{"ProvstreamDown"}, nil)
	evaluate(t, [][]*dto.MetricFamily{before, now}, from, []string{"ProvstreamDown"}, []string{"ProvstreamDown"})
}

// A stranger leaves a transaction open on a hook topic. What the others write
// behind it is no lag, and nobody can read it.
func TestAlertOnAnOpenTransaction(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 6)
	w.drained(t)
	until(t, "it is ready", func() bool { return sum(w.gather(t), "provstream_ready") == 3 })
	before := w.gather(t)
	stranger := w.Client(t, kgo.TransactionalID("stranger"), kgo.TransactionTimeout(10*time.Minute), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := stranger.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	topic := w.Topic(topics.Hook("steps/userMessage"))
	if err := stranger.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("{}")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	var now []*dto.MetricFamily
	until(t, "the partition is held", func() bool {
		now = w.gather(t)
		return sum(now, "provstream_consumer_held_seconds", "service", pipeline.Ingest, "topic", topic) > 0
	})
	age(now, "provstream_consumer_held_seconds", 60)
	evaluate(t, [][]*dto.MetricFamily{before, now}, time.Now(), []string{"ProvstreamOpenTransaction", "ProvstreamLag"}, []string{"ProvstreamOpenTransaction"})
}

// Another producer takes the transactional id.
func TestAlertOnFencing(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 2)
	w.drained(t)
	before := w.gather(t)
	other := w.Client(t, kgo.TransactionalID(kafka.TransactionalID(w.Prefix, pipeline.Ingest, "0")))
	if _, _, err := other.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.send(t, 2, 2)
	until(t, "ingest was fenced", func() bool {
		return sum(w.gather(t), "provstream_transactions_total", "service", pipeline.Ingest, "result", "fenced") > 0
	})
	w.drained(t) // it comes back and loses nothing
	evaluate(t, [][]*dto.MetricFamily{before, w.gather(t)}, time.Now(), []string{"ProvstreamFenced"}, []string{"ProvstreamFenced"})
}

// Somebody sets the offsets of ingest's group.
func TestAlertOnAResetHookTopic(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 4)
	w.drained(t)
	before := w.gather(t)
	if err := w.pipe.Stop(); err != nil {
		t.Fatal(err)
	}
	offsets := make(kadm.Offsets)
	offsets.AddOffset(w.Topic(topics.Hook("steps/userMessage")), 0, 0, -1)
	if err := kadm.NewClient(w.Client(t)).CommitAllOffsets(t.Context(), kafka.DefaultGroup(w.Prefix, pipeline.Ingest), offsets); err != nil {
		t.Fatal(err)
	}
	w.start(t, w.config())
	until(t, "it is told", func() bool { return sum(w.gather(t), "provstream_ingest_resets_total") > 0 })
	evaluate(t, [][]*dto.MetricFamily{before, w.gather(t)}, time.Now(), []string{"ProvstreamHookTopicReset", "ProvstreamCoverageGap"}, []string{"ProvstreamHookTopicReset"})
}

// The aggregator cannot ask for the ends of a hook topic.
func TestAlertOnTicksThatFail(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 4)
	w.drained(t)
	before := w.gather(t)
	w.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: w.Topic(topics.Hook("steps/userMessage")), Err: kerr.TopicAuthorizationFailed, Count: -1})
	w.send(t, 2, 4)
	until(t, "looks fail", func() bool { return sum(w.gather(t), "provstream_aggregator_clock_observe_errors_total") > 3 })
	evaluate(t, [][]*dto.MetricFamily{before, w.gather(t)}, time.Now(), []string{"ProvstreamTicksFail"}, []string{"ProvstreamTicksFail"})
}

// The aggregator's host was an hour ahead: a tick of that hour stands in the log.
func TestAlertOnAClockThatIsAhead(t *testing.T) {
	w := newWorld(t, nil)
	w.send(t, 1, 4)
	w.drained(t)
	before := w.gather(t)
	cl := w.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	tick := codec.AppendTick(nil, time.Now().Add(time.Hour).UnixMilli())
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: w.Topic(topics.Steps), Partition: 1, Value: tick}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	until(t, "the clock is ahead", func() bool {
		return sum(w.gather(t), "provstream_aggregator_log_clock_timestamp_seconds", "partition", "1") > float64(time.Now().Add(time.Minute).Unix())
	})
	from := time.Now()
	evaluate(t, [][]*dto.MetricFamily{before, before}, from, []string{"ProvstreamClockAhead"}, nil)
	evaluate(t, [][]*dto.MetricFamily{before, w.gather(t)}, from, []string{"ProvstreamClockAhead"}, []string{"ProvstreamClockAhead"})
}

// More steps are open than a partition may hold.
func TestAlertOnPressure(t *testing.T) {
	w := newWorld(t, func(c *pipeline.Config) {
		c.Window.MaxOpenSteps = 20
		c.Window.SealGrace = 30 * time.Second // so that nothing ends by itself
	})
	before := w.gather(t)
	w.send(t, 1, 8)
	until(t, "runs seal early", func() bool {
		return sum(w.gather(t), "provstream_aggregator_seals_total", "reason", "pressure") > 0
	})
	evaluate(t, [][]*dto.MetricFamily{before, w.gather(t)}, time.Now(), []string{"ProvstreamPressure"}, []string{"ProvstreamPressure"})
}

// A run without an end stays open. Five days later it is an old one.
func TestAlertOnAnOldRun(t *testing.T) {
	w := newWorld(t, func(c *pipeline.Config) { c.Window.SessionIdle = 30 * 24 * time.Hour })
	g, err := generate.New(generate.Config{Seed: 1, Sessions: 2, StartMs: time.Now().Add(-time.Minute).UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	w.sendRecords(t, g.Session(1)[:4])
	var now []*dto.MetricFamily
	until(t, "a run is open", func() bool {
		now = w.gather(t)
		return series(now, "provstream_aggregator_oldest_open_run_timestamp_seconds") > 0
	})
	evaluate(t, [][]*dto.MetricFamily{now, now}, time.Now(), []string{"ProvstreamOldRun"}, nil)
	evaluate(t, [][]*dto.MetricFamily{now, now}, time.Now().Add(5*24*time.Hour), []string{"ProvstreamOldRun"}, []string{"ProvstreamOldRun"})
}

// sendRecords sends records as they are.
func (w *world) sendRecords(t *testing.T, records []fleet.Record) {
	t.Helper()
	s, err := load.NewSender(w.flags, load.Options{CreateTopics: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range records {
		if err := s.Send(t.Context(), &records[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Somebody opens a key file to others: it is refused, and the keys of before stay
// in use.
func TestAlertOnKeysThatAreRefused(t *testing.T) {
	dir := t.TempDir()
	for _, use := range []verify.Use{verify.UseDAG, verify.UseLog} {
		if _, err := keys.Create(dir, use, ""); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t, func(c *pipeline.Config) { c.Ring, c.KeyDir = nil, dir })
	w.send(t, 1, 2)
	w.drained(t)
	before := w.gather(t)
	if err := os.Chmod(filepath.Join(dir, keys.DAGFile), 0o644); err != nil {
		t.Fatal(err)
	}
	until(t, "the directory is refused", func() bool {
		return sum(w.gather(t), "provstream_signer_key_reloads_total", "result", "refused") > 0
	})
	w.send(t, 2, 2)
	w.drained(t)
	evaluate(t, [][]*dto.MetricFamily{before, w.gather(t)}, time.Now(), []string{"ProvstreamKeysRefused", "ProvstreamCoverageGap"}, []string{"ProvstreamKeysRefused"})
}

// The canary pins keys that are not the signer's: no session of it is verified.
func TestAlertsOnACanary(t *testing.T) {
	w := newWorld(t, nil)
	log, err := keys.Generate(verify.UseLog, "")
	if err != nil {
		t.Fatal(err)
	}
	dag, err := keys.Generate(verify.UseDAG, "")
	if err != nil {
		t.Fatal(err)
	}
	others, err := verify.NewKeys(log.Key, dag.Key)
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := w.ring.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	run := func(k *verify.Keys, fail int) []*dto.MetricFamily {
		reg := prometheus.NewRegistry()
		failed, err := canary.Run(t.Context(), canary.Config{Flags: w.flags, Keys: k, Tenant: "canary", Timeout: time.Minute, Registerer: reg}, 3)
		if err != nil || failed != fail {
			t.Fatalf("%d sessions failed, want %d: %v", failed, fail, err)
		}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return families
	}
	now := run(pinned, 0)
	evaluate(t, [][]*dto.MetricFamily{{}, now}, time.Now().Add(-10*time.Minute), []string{"ProvstreamCanaryFails", "ProvstreamCanarySilent"}, nil)
	now = run(others, 3)
	// It goes on like this for half an hour.
	evaluate(t, [][]*dto.MetricFamily{{}, now}, time.Now().Add(30*time.Minute), []string{"ProvstreamCanaryFails", "ProvstreamCanarySilent"},
		[]string{"ProvstreamCanaryFails", "ProvstreamCanarySilent"})
}

// Every alert fires in a test of this package: it stands among the last
// arguments of evaluate.
func TestEveryAlertIsProvoked(t *testing.T) {
	provoked := make(map[string]bool)
	for _, name := range []string{"alerts_test.go", "alerts_rare_test.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if f, ok := call.Fun.(*ast.Ident); !ok || f.Name != "evaluate" {
				return true
			}
			ast.Inspect(call.Args[len(call.Args)-1], func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok {
					provoked[strings.Trim(l.Value, `"`)] = true
				}
				return true
			})
			return true
		})
	}
	for _, name := range alertNames(t) {
		if !provoked[name] {
			t.Errorf("no test lets %s fire", name)
		}
	}
}
