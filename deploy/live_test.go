package deploy_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"provstream/internal/codec"
	"provstream/internal/fleet"
	"provstream/internal/generate"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/keys"
	"provstream/internal/load"
	"provstream/internal/pipeline"
	"provstream/internal/window"
	"provstream/verify"
)

// recorder is a registry that remembers what was registered, so that metrics
// without a series at the moment are known too.
type recorder struct {
	*prometheus.Registry
	mu   sync.Mutex
	seen []prometheus.Collector
}

func newRecorder() *recorder { return &recorder{Registry: prometheus.NewRegistry()} }

func (r *recorder) Register(c prometheus.Collector) error {
	r.mu.Lock()
	r.seen = append(r.seen, c)
	r.mu.Unlock()
	return r.Registry.Register(c)
}

func (r *recorder) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			panic(err)
		}
	}
}

// metric is what the documentation says of one.
type metric struct{ name, kind, labels, help string }

// described are the metrics of everything that was ever registered.
func (r *recorder) described() map[string]metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make(map[string]metric)
	for _, c := range r.seen {
		descs := make(chan *prometheus.Desc, 16)
		go func() { c.Describe(descs); close(descs) }()
		for d := range descs {
			m := parseDesc(d.String())
			m.kind = kindOf(c)
			all[m.name] = m
		}
	}
	return all
}

// kindOf tells the type of a collector of client_golang by its Go type.
func kindOf(c prometheus.Collector) string {
	name := strings.ToLower(reflect.TypeOf(c).String())
	switch {
	case strings.Contains(name, "histogram"):
		return "histogram"
	case strings.Contains(name, "counter"):
		return "counter"
	case strings.Contains(name, "gauge"), strings.Contains(name, "valuefunc"):
		return "gauge"
	}
	return name
}

// parseDesc reads what Desc.String prints, which is all that a Desc tells.
func parseDesc(s string) metric {
	between := func(from, to string) string {
		_, rest, ok := strings.Cut(s, from)
		if !ok {
			return ""
		}
		v, _, _ := strings.Cut(rest, to)
		return v
	}
	m := metric{name: between(`fqName: "`, `"`), help: between(`help: "`, `", `)}
	var labels []string
	for _, part := range strings.Split(between("constLabels: {", "}"), ",") {
		if name, _, ok := strings.Cut(part, "="); ok {
			labels = append(labels, name)
		}
	}
	if v := between("variableLabels: {", "}"); v != "" {
		labels = append(labels, strings.Split(v, ",")...)
	}
	m.labels = strings.Join(labels, ", ")
	return m
}

// world is a pipeline on kfake whose metrics can be read.
type world struct {
	*kafkatest.Cluster
	flags     kafka.Flags
	ring      *keys.Ring
	pipe      *pipeline.Pipeline
	cluster   *kafka.Cluster
	recorders map[string]*recorder
	window    window.Config
}

func newWorld(t *testing.T, change func(*pipeline.Config)) *world {
	t.Helper()
	c := kafkatest.Loopback(t, kafkatest.Options{Partitions: 2})
	w := &world{Cluster: c, flags: kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix}, recorders: map[string]*recorder{}}
	dag, err := keys.Generate(verify.UseDAG, "")
	if err != nil {
		t.Fatal(err)
	}
	log, err := keys.Generate(verify.UseLog, "")
	if err != nil {
		t.Fatal(err)
	}
	if w.ring, err = keys.NewRing(log, dag); err != nil {
		t.Fatal(err)
	}
	if w.cluster, err = kafka.Open(t.Context(), w.flags); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cluster.Close)
	cfg := w.config()
	if change != nil {
		change(&cfg)
	}
	w.start(t, cfg)
	return w
}

// config of the pipeline, with graces of milliseconds and new registries.
func (w *world) config() pipeline.Config {
	w.window = window.DefaultConfig()
	w.window.CompleteGrace, w.window.Grace, w.window.SealGrace = 10*time.Millisecond, 20*time.Millisecond, 50*time.Millisecond
	w.window.SessionIdle, w.window.LateGrace = 5*time.Second, time.Second
	cfg := pipeline.Config{
		Flags: w.flags, Ring: w.ring, Window: w.window, ClockTolerance: 10 * time.Millisecond, Instance: "0",
		Registerers: map[string]prometheus.Registerer{},
	}
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	for _, s := range []string{pipeline.Ingest, pipeline.Aggregator, pipeline.Signer} {
		w.recorders[s] = newRecorder()
		cfg.Registerers[s] = w.recorders[s]
	}
	return cfg
}

func (w *world) start(t *testing.T, cfg pipeline.Config) {
	w.pipe = pipeline.New(context.Background(), cfg)
	t.Cleanup(func() { _ = w.pipe.Stop() })
	w.pipe.Start(pipeline.Ingest, pipeline.Aggregator, pipeline.Signer)
}

// send loads a generated fleet of the present time.
func (w *world) send(t *testing.T, seed uint64, sessions int, faults ...string) {
	t.Helper()
	g, err := generate.New(generate.Config{Seed: seed, Sessions: sessions, Faults: faults, StartMs: time.Now().Add(-time.Minute).UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := load.NewSender(w.flags, load.Options{CreateTopics: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for r := range g.All() {
		r := fleet.Record(r)
		if err := s.Send(t.Context(), &r); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// until waits for something to become true.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// gather reads the metrics of all services and further registries.
func (w *world) gather(t *testing.T, more ...prometheus.Gatherer) []*dto.MetricFamily {
	t.Helper()
	all := prometheus.Gatherers(more)
	for _, r := range w.recorders {
		all = append(all, r)
	}
	families, err := all.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// sum adds up a counter or gauge over the series that have the labels.
func sum(families []*dto.MetricFamily, name string, labels ...string) float64 {
	total := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.Metric {
			have := make(map[string]string)
			for _, l := range m.Label {
				have[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if have[labels[i]] != labels[i+1] {
					continue series
				}
			}
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

// drained waits until the signer has signed a number of DAGs and nothing is open.
func (w *world) drained(t *testing.T) {
	t.Helper()
	tracker := pipeline.Track(w.cluster)
	var last pipeline.State
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := w.pipe.Wait(ctx, 100*time.Millisecond, func(ctx context.Context) (bool, error) {
		s, err := tracker.State(ctx)
		last = s
		return s.Drained() && s.Runs > 0, err
	})
	if err != nil {
		t.Fatal(fmt.Errorf("the pipeline does not drain: %w; %s", err, last))
	}
}

// faults are all that the generator makes, but for those whose records the
// hook topics of this cluster refuse.
func faults() []string {
	return slices.DeleteFunc(generate.FaultNames(), func(name string) bool { return generate.FaultByName(name).DeadLetters[codec.KindOversize] > 0 })
}
