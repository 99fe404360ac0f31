package canary_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"provstream/internal/canary"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/keys"
	"provstream/internal/pipeline"
	"provstream/internal/window"
	"provstream/verify"
)

func ring(t *testing.T) *keys.Ring {
	t.Helper()
	log, err1 := keys.Generate(verify.UseLog, "")
	dag, err2 := keys.Generate(verify.UseDAG, "")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	r, err := keys.NewRing(log, dag)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func pinned(t *testing.T, r *keys.Ring) *verify.Keys {
	t.Helper()
	k, err := r.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A session comes back verified, invalid under keys that are others, not at all
// while nobody signs.
func TestResults(t *testing.T) {
	c := kafkatest.Loopback(t, kafkatest.Options{Partitions: 2})
	flags := kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix}
	signing := ring(t)
	once := func(flags kafka.Flags, keys *verify.Keys, timeout time.Duration) canary.Result {
		t.Helper()
		var got canary.Result
		reg := prometheus.NewRegistry()
		failed, err := canary.Run(t.Context(), canary.Config{
			Flags: flags, Keys: keys, Tenant: "canary", Timeout: timeout, Registerer: reg, OnResult: func(r canary.Result) { got = r },
		}, 1)
		if err != nil {
			t.Fatal(err)
		}
		if (failed == 0) != (got.Result == canary.Verified) {
			t.Errorf("%d failed, result %s", failed, got.Result)
		}
		if n := counted(t, reg, got.Result); n != 1 {
			t.Errorf("provstream_canary_sessions_total{result=%q} is %v", got.Result, n)
		}
		return got
	}
	if r := once(flags, pinned(t, signing), time.Second); r.Result != canary.Timeout {
		t.Errorf("without services: %+v", r)
	}
	w := window.DefaultConfig()
	w.SealGrace = 50 * time.Millisecond
	p := pipeline.New(context.Background(), pipeline.Config{Flags: flags, Ring: signing, Window: w, ClockTolerance: 10 * time.Millisecond})
	defer func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}()
	p.Start(pipeline.Ingest, pipeline.Aggregator, pipeline.Signer)
	if r := once(flags, pinned(t, signing), time.Minute); r.Result != canary.Verified || r.Nodes == 0 || r.Latency <= 0 {
		t.Errorf("%+v", r)
	}
	if r := once(flags, pinned(t, ring(t)), time.Minute); r.Result != canary.Invalid {
		t.Errorf("under keys that are others: %+v", r)
	}
}

func counted(t *testing.T, reg *prometheus.Registry, result string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "provstream_canary_sessions_total" {
			continue
		}
		for _, m := range f.Metric {
			if m.Label[0].GetValue() == result {
				return m.Counter.GetValue()
			}
		}
	}
	return -1
}

// Where the topics of the table are missing, it says so and ends.
func TestMissingTopics(t *testing.T) {
	c := kafkatest.Loopback(t, kafkatest.Options{NoTopics: true})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := canary.Run(ctx, canary.Config{Flags: kafka.Flags{Brokers: c.Brokers}, Keys: pinned(t, ring(t)), Tenant: "canary", Timeout: time.Second}, 1)
	if err == nil {
		t.Error("no error")
	}
}
