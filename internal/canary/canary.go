// Package canary sends synthetic sessions of a tenant of their own through a
// deployment and waits for each one's signed DAG: the one measurement that sees
// the whole path, as an agent and a SIEM see it.
//
// A session is made by package generate and takes the same topics as everybody's.
// It counts as verified when a record with its run key appears in prov.dags, read
// committed, whose signature, graph and inclusion proof hold under pinned keys.
//
// The metrics:
//
//	provstream_canary_sessions_total{result}            result is verified, timeout, send, or invalid
//	provstream_canary_latency_seconds                   from the acknowledged sessionEnd to the DAG, of the verified ones
//	provstream_canary_last_success_timestamp_seconds    when the last one was verified; at first when the canary began
package canary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/evidence"
	"provstream/internal/fleet"
	"provstream/internal/generate"
	"provstream/internal/kafka"
	"provstream/internal/load"
	"provstream/internal/topics"
	"provstream/verify"
)

// Config of a canary.
type Config struct {
	Flags kafka.Flags
	// Keys are pinned; with a log key the inclusion proof is checked too.
	Keys *verify.Keys
	// Tenant of the sessions, which must be nobody else's.
	Tenant string
	// Interval is from the start of one session to the start of the next.
	Interval time.Duration
	// Timeout is how long a DAG is waited for.
	Timeout time.Duration
	Logger  *slog.Logger
	// Registerer gets the metrics; nil keeps none.
	Registerer prometheus.Registerer
	// OnResult is told of each session; may be nil.
	OnResult func(Result)
}

// Result of one session.
type Result struct {
	Run     string        `json:"run"`
	Result  string        `json:"result"`
	Latency time.Duration `json:"-"`
	Seconds float64       `json:"latency_seconds"`
	Nodes   int           `json:"nodes,omitempty"`
	Error   string        `json:"error,omitempty"`
}

// Results, as label values.
const (
	Verified = "verified" // the DAG came and holds
	Timeout  = "timeout"  // no DAG came in time
	Send     = "send"     // the session could not be sent, or the topics not be read
	Invalid  = "invalid"  // a DAG came that does not hold
)

type metrics struct {
	sessions *prometheus.CounterVec
	latency  prometheus.Histogram
	last     prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		sessions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "provstream_canary_sessions_total", Help: "Synthetic sessions, by result.",
		}, []string{"result"}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "provstream_canary_latency_seconds", Help: "From the acknowledged sessionEnd to the signed DAG, of verified sessions.",
			Buckets: []float64{.1, .2, .3, .5, .75, 1, 2, 5, 10, 11, 12, 15, 20, 30, 60, 120, 300},
		}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "provstream_canary_last_success_timestamp_seconds", Help: "When a session was last verified; at first when the canary began.",
		}),
	}
	for _, r := range []string{Verified, Timeout, Send, Invalid} {
		m.sessions.WithLabelValues(r)
	}
	m.last.SetToCurrentTime()
	if reg != nil {
		reg.MustRegister(m.sessions, m.latency, m.last)
	}
	return m
}

// Run sends sessions until ctx ends or, with count > 0, so many were sent. It
// returns how many were not verified.
func Run(ctx context.Context, cfg Config, count int) (failed int, err error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cluster, err := kafka.Open(ctx, cfg.Flags)
	if err != nil {
		return 0, err
	}
	defer cluster.Close()
	c := &canary{cfg: cfg, cluster: cluster, metrics: newMetrics(cfg.Registerer)}
	for n := 1; ; n++ {
		began := time.Now()
		r := c.session(ctx)
		if ctx.Err() != nil {
			return failed, nil
		}
		c.told(r)
		if r.Result != Verified {
			failed++
		}
		if count > 0 && n >= count {
			return failed, nil
		}
		select {
		case <-ctx.Done():
			return failed, nil
		case <-time.After(max(0, cfg.Interval-time.Since(began))):
		}
	}
}

type canary struct {
	cfg     Config
	cluster *kafka.Cluster
	metrics *metrics
}

func (c *canary) told(r Result) {
	c.metrics.sessions.WithLabelValues(r.Result).Inc()
	if r.Result == Verified {
		c.metrics.latency.Observe(r.Seconds)
		c.metrics.last.SetToCurrentTime()
		c.cfg.Logger.Info("session verified", "run", r.Run, "latency", r.Latency)
	} else {
		c.cfg.Logger.Error("session not verified", "run", r.Run, "result", r.Result, "error", r.Error)
	}
	if c.cfg.OnResult != nil {
		c.cfg.OnResult(r)
	}
}

// session is one round.
func (c *canary) session(ctx context.Context) Result {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	records, id, err := c.make()
	r := Result{Run: url.PathEscape(c.cfg.Tenant) + "/" + id}
	fail := func(result string, err error) Result {
		r.Result, r.Error = result, kafka.ExplainRights(err, "canary").Error()
		return r
	}
	if err != nil {
		return fail(Send, err)
	}
	topic, partition := c.cfg.Flags.Topic(topics.DAGs), topics.Partition([]byte(r.Run), c.cluster.Partitions)
	// Where the DAG will stand is known before anything is sent.
	bounds, err := c.cluster.Bounds(ctx, topic, partition)
	if err != nil {
		return fail(Send, err)
	}
	if err := c.send(ctx, records); err != nil {
		return fail(Send, err)
	}
	sent := time.Now()
	dag, err := c.wait(ctx, topic, partition, bounds.End, r.Run)
	if kafka.Refused(err) {
		return fail(Send, err)
	}
	if err != nil {
		return fail(Timeout, err)
	}
	r.Latency = time.Since(sent)
	r.Seconds = r.Latency.Seconds()
	if r.Nodes, err = c.verify(dag); err != nil {
		return fail(Invalid, err)
	}
	r.Result = Verified
	return r
}

// send sends a session with a connection of its own, as an agent that has just
// started would.
func (c *canary) send(ctx context.Context, records []fleet.Record) error {
	sender, err := load.NewSender(c.cfg.Flags, load.Options{})
	if err != nil {
		return err
	}
	defer sender.Close()
	for i := range records {
		if err := sender.Send(ctx, &records[i]); err != nil {
			return err
		}
	}
	return sender.Flush(ctx)
}

// make makes a session that has just ended.
func (c *canary) make() (records []fleet.Record, id string, err error) {
	g, err := generate.New(generate.Config{
		Seed: rand.Uint64(), Sessions: 2, Tenants: []string{c.cfg.Tenant}, StartMs: time.Now().Add(-time.Minute).UnixMilli(),
	})
	if err != nil {
		return nil, "", err
	}
	// The generator's last session is a plain one, which needs the everyday hooks only.
	all := g.Session(1)
	now := time.Now().UnixMilli()
	for _, r := range all {
		r.TimeMs = min(r.TimeMs, now)
		if r.Topic == topics.Hook(acs.MethodHandshakeHello) || r.Topic == topics.Hook(acs.MethodSystemPing) {
			continue
		}
		records = append(records, r)
		if r.Topic == topics.Hook(acs.MethodSessionEnd) {
			id = string(r.Key)
		}
	}
	if id == "" {
		return nil, "", errors.New("the generated session has no end")
	}
	return records, id, nil
}

// wait reads the partition on from an offset until a record has the key.
func (c *canary) wait(ctx context.Context, topic string, partition int32, from int64, key string) (*kgo.Record, error) {
	for {
		b, err := c.cluster.Bounds(ctx, topic, partition)
		if err == nil && b.End > from {
			var found *kgo.Record
			err = c.cluster.Read(ctx, topic, partition, from, b.End, kafka.ReadCommitted, func(records []*kgo.Record) error {
				for _, r := range records {
					if string(r.Key) == key && found == nil {
						found = r
					}
				}
				return nil
			})
			if found != nil {
				return found, nil
			}
			if err == nil {
				from = b.End
			}
		}
		if kafka.Refused(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("no DAG of %s in %s/%d: %w", key, topic, partition, ctx.Err()), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// verify checks the DAG's signature and graph, and its proof with a log key.
func (c *canary) verify(r *kgo.Record) (nodes int, err error) {
	v := verify.NewVerifier(c.cfg.Keys)
	if !v.HasLogKey() {
		d, err := v.DAG(r.Value)
		return d.Nodes, err
	}
	for _, h := range r.Headers {
		if h.Key == evidence.HeaderProof {
			rec, err := v.Record(r.Value, h.Value)
			return rec.DAG.Nodes, err
		}
	}
	return 0, fmt.Errorf("%s/%d@%d has no header %s", r.Topic, r.Partition, r.Offset, evidence.HeaderProof)
}
