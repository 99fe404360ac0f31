package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/codec"
	"provstream/internal/embedded"
	"provstream/internal/fleet"
	"provstream/internal/generate"
	"provstream/internal/kafka"
	"provstream/internal/keys"
	"provstream/internal/load"
	"provstream/internal/pipeline"
	"provstream/internal/reconcile"
	"provstream/internal/reference"
	"provstream/internal/show"
	"provstream/internal/tally"
	"provstream/internal/topics"
	"provstream/internal/window"
	"provstream/verify"
)

type demoCmd struct {
	fleetFlags `embed:""`
	Input      string        `help:"Fleet file instead of a generated fleet (JSON Lines, gzip is recognised; - is stdin)." placeholder:"FILE"`
	Keep       string        `help:"Leave every topic as <topic>.jsonl, and the public keys as jwks.json, in this folder." placeholder:"DIR"`
	Partitions int32         `help:"Partitions of the topics." default:"4"`
	Show       string        `help:"Draw this run at the end, instead of one with something to see." placeholder:"RUN"`
	Timeout    time.Duration `help:"Give up when the pipeline has not signed everything by then." default:"5m"`
}

// demoFaults are what goes wrong in the demo's own fleet, so that there is
// something to find.
var demoFaults = []string{"compaction_lineage", "payload", "lineage_cycle", "copies", "call_without_result"}

func (c *demoCmd) Help() string {
	return example("Starts a Kafka broker in this process with its data in a temporary folder, creates topics and keys, loads the fleet whole, starts "+
		"ingest, aggregator and signer, waits until every run is signed, reconciles inputs with outputs, verifies every signature and proof, and draws "+
		"one run. The aggregator starts when ingest has read everything and has graces of milliseconds, so nothing waits for the wall clock and two runs "+
		"give the same graphs. The generated fleet has a few faults to be found; --faults none leaves them out. Status 1 when something does not hold.",
		"provctl demo",
		"provctl demo --input fleet.jsonl.gz --keep out --json",
		"provctl demo --sessions 100 --faults all")
}

func (c *demoCmd) Run(g *globals) error {
	d, err := c.prepare(g)
	if err != nil {
		return err
	}
	defer d.close()
	if err := d.load(); err != nil {
		return err
	}
	if err := d.drain(c.Timeout); err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return err
	}
	if c.Keep != "" {
		if err := d.keep(c.Keep); err != nil {
			return fmt.Errorf("--keep: %w", err)
		}
	}
	return d.report(c)
}

// demo is one run of the command.
type demo struct {
	g       *globals
	source  fleet.Source
	input   string
	dir     string // temporary
	broker  *embedded.Broker
	flags   kafka.Flags
	ring    *keys.Ring
	cluster *kafka.Cluster

	loaded  fleet.Span
	drained time.Duration
	all     *snapshot
	counts  tally.Counts
	unproof []string
	audit   reconcile.Report
}

// demoWindow is how the demo's aggregator closes things. The services start
// when everything is loaded and the aggregator when everything is read, so
// whatever its clock shows first is later than every record: graces of
// milliseconds close everything with the next tick, in one order, whatever the
// machine does. They must not be 0, which would act in the order of arrival.
func demoWindow() window.Config {
	w := window.DefaultConfig()
	w.CompleteGrace, w.Grace, w.SealGrace = time.Millisecond, time.Millisecond, 2*time.Millisecond
	w.TurnIdle, w.SessionIdle, w.LateGrace = 20*time.Millisecond, 10*time.Millisecond, 2*time.Millisecond
	return w
}

// demoCodec is how the demo's ingest reads: with the defaults.
func demoCodec() codec.Config { return codec.Config{} }

// prepare starts the broker and makes the keys.
func (c *demoCmd) prepare(g *globals) (d *demo, err error) {
	d = &demo{g: g, input: c.Input}
	if c.Input != "" {
		d.source = fleet.FileSource(c.Input, g.stdin)
	} else {
		switch {
		case len(c.Faults) == 0:
			c.Faults = demoFaults
		case len(c.Faults) == 1 && c.Faults[0] == "none":
			c.Faults = nil
		}
		gen, err := c.generator()
		if err != nil {
			return nil, err
		}
		d.input = fmt.Sprintf("a generated fleet (seed %d)", c.Seed)
		d.source = generatorSource(gen)
	}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if d.dir, err = os.MkdirTemp("", "provstream-demo-"); err != nil {
		return d, err
	}
	g.progress("starting the broker")
	d.broker, err = embedded.Start(g.ctx, embedded.Config{DataDir: filepath.Join(d.dir, "kafka"), Partitions: c.Partitions})
	if err != nil {
		return d, err
	}
	d.flags = kafka.Flags{Brokers: []string{d.broker.Addr}}
	if d.cluster, err = kafka.Open(g.ctx, d.flags); err != nil {
		return d, err
	}
	if err = d.takeAnything(); err != nil {
		return d, err
	}
	if d.ring, err = newRing(); err != nil {
		return d, err
	}
	return d, publishKeys(g.ctx, d.cluster, d.ring.Public())
}

// takeAnything lets the hook topics take records far above what ingest reads, so
// that a fleet with a monstrous one ends in the dead letter and not at the
// producer.
func (d *demo) takeAnything() error {
	names, err := d.cluster.HookTopics(d.g.ctx)
	if err != nil {
		return err
	}
	limit := "33554432"
	responses, err := d.cluster.Admin.AlterTopicConfigs(d.g.ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}, names...)
	for _, r := range responses {
		err = errors.Join(err, r.Err)
	}
	return err
}

func (d *demo) close() {
	d.g.progressDone()
	if d.cluster != nil {
		d.cluster.Close()
	}
	if d.broker != nil {
		_ = d.broker.Close() // its folder goes next
	}
	if d.dir != "" {
		_ = os.RemoveAll(d.dir)
	}
}

func generatorSource(gen *generate.Generator) fleet.Source {
	return func(f func(*fleet.Record) error) error {
		for r := range gen.All() {
			if err := f(&r); err != nil {
				return err
			}
		}
		return nil
	}
}

// newRing makes the keys of a deployment that lives as long as this process.
func newRing() (*keys.Ring, error) {
	log, err := keys.Generate(verify.UseLog, "")
	if err != nil {
		return nil, err
	}
	dag, err := keys.Generate(verify.UseDAG, "")
	if err != nil {
		return nil, err
	}
	return keys.NewRing(log, dag)
}

// publishKeys writes public keys to prov.keys.
func publishKeys(ctx context.Context, c *kafka.Cluster, public []verify.Key) error {
	for _, k := range public {
		r := &kgo.Record{Topic: c.Prefix + topics.Keys, Key: []byte(k.ID), Value: k.JWK()}
		if err := c.Client.ProduceSync(ctx, r).FirstErr(); err != nil {
			return fmt.Errorf("publish key %s: %w", k.ID, err)
		}
	}
	return nil
}

// load sends the whole fleet before any service runs.
func (d *demo) load() error {
	s, err := load.NewSender(d.flags, load.Options{CreateTopics: true})
	if err != nil {
		return err
	}
	defer s.Close()
	d.loaded, err = d.g.send(d.g.ctx, s, fleet.Copies{}, d.source)
	return err
}

// drain runs the services until every run is signed.
func (d *demo) drain(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(d.g.ctx, timeout)
	defer cancel()
	begin := time.Now()
	p := pipeline.New(d.g.ctx, pipeline.Config{
		Flags: d.flags, Ring: d.ring, Codec: demoCodec(), Window: demoWindow(), Instance: "demo",
		Logger: slog.New(slog.NewTextHandler(d.g.stderr, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	p.Start(pipeline.Ingest, pipeline.Signer)
	err := p.Wait(ctx, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		lag, err := pipeline.IngestLag(ctx, d.cluster)
		d.g.bar("ingest", d.loaded.Records-lag, d.loaded.Records)
		return lag == 0, err
	})
	track := pipeline.Track(d.cluster)
	if err == nil {
		p.Start(pipeline.Aggregator)
		err = p.Wait(ctx, 50*time.Millisecond, func(ctx context.Context) (bool, error) {
			s, err := track.State(ctx)
			d.g.bar("aggregator and signer", int64(s.Runs-s.Open), int64(s.Runs))
			return s.Drained(), err
		})
	}
	d.drained = time.Since(begin)
	if errors.Is(err, context.DeadlineExceeded) {
		state, serr := track.State(d.g.ctx)
		err = fmt.Errorf("--timeout %s has passed (%s): %w", timeout, state, errors.Join(err, serr))
	}
	d.g.progress("stopping the services")
	if stopped := p.Stop(); err == nil {
		err = stopped
	}
	return err
}

// check reads everything back, counts, verifies and reconciles.
func (d *demo) check() (err error) {
	ctx := d.g.ctx
	d.g.progress("reading the topics back")
	if d.all, err = takeSnapshot(ctx, d.cluster); err != nil {
		return err
	}
	pinned, err := d.ring.Verifier()
	if err != nil {
		return err
	}
	d.g.progress("verifying")
	t := tally.New(pinned)
	for _, topic := range d.all.topics {
		err := d.all.each(topic.base, func(r *kgo.Record) error {
			return t.Add(topic.base, r.Key, r.Value, func(name string) []byte { return lastHeader(r, name) })
		})
		if err != nil {
			return err
		}
	}
	d.counts, d.unproof = t.Counts(), t.Unverified
	d.g.progress("reconciling")
	d.audit, err = reconcile.Run(ctx, d.all, reconcile.Options{
		Reader: demoCodec(), Windows: reference.Config(demoWindow()), Lineage: true, Keys: pinned, MaxProblems: 100,
	})
	d.g.progressDone()
	return err
}

func lastHeader(r *kgo.Record, name string) []byte {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == name {
			return r.Headers[i].Value
		}
	}
	return nil
}

func (d *demo) keep(dir string) error {
	if err := d.all.keep(dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "jwks.json"), append(verify.JWKS(d.ring.Public()), '\n'), 0o644)
}

// run finds the run to draw: the one asked for, else of the runs with the most
// different anomalies the smallest, else the smallest of all.
func (d *demo) run(name string) (*show.Run, error) {
	var dags []*show.DAG
	err := d.all.each(topics.DAGs, func(r *kgo.Record) error {
		dag, ok, err := show.Parse(r.Value)
		if ok {
			dags = append(dags, dag)
		}
		return err
	})
	if err != nil || len(dags) == 0 {
		return nil, err
	}
	if name == "" {
		name = show.Telling(dags)
	}
	return show.Find(dags, name)
}
