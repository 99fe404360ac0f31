package embedded

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/topics"
	"provstream/internal/topology"
)

func start(t *testing.T, cfg Config) *Broker {
	t.Helper()
	b, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func client(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// readAll returns the values of a topic's partition 0, read committed.
func readAll(t *testing.T, addr, topic string, want int) []string {
	t.Helper()
	cl := client(t, addr, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var got []string
	for len(got) < want && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	return got
}

func TestTopicsAreThere(t *testing.T) {
	b := start(t, Config{Prefix: "x.", Partitions: 3})
	adm := kadm.NewClient(client(t, b.Addr))
	rows, err := topology.List(t.Context(), adm, "x.")
	if err != nil {
		t.Fatal(err)
	}
	want := len(topology.HookTopics()) + 1 + len(topics.All())
	if len(rows) != want {
		t.Errorf("%d topics, want %d", len(rows), want)
	}
	for _, r := range rows {
		if hook := strings.Contains(r.Topic, "acs.hooks."); hook && r.Configs["retention.ms"] != "-1" {
			t.Errorf("%s: retention.ms %q, want -1", r.Topic, r.Configs["retention.ms"])
		}
		if !strings.HasPrefix(r.Topic, "x.") {
			t.Errorf("topic %s has no prefix", r.Topic)
		}
	}
	problems, err := topology.Check(t.Context(), adm, topology.Spec{Prefix: "x.", Partitions: 3, Replication: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if p.Severity == topology.Error {
			t.Error(p)
		}
	}
}

func TestFolderKeepsWhatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	const n = 50
	for round := range 3 {
		b := start(t, Config{DataDir: dir, Partitions: 1})
		cl := client(t, b.Addr, kgo.DefaultProduceTopic("acs.hooks.turn-start"))
		for i := range n {
			r := kgo.StringRecord(fmt.Sprint(round*n + i))
			r.Timestamp = time.UnixMilli(1) // long past: must not expire
			if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		got := readAll(t, b.Addr, "acs.hooks.turn-start", n*(round+1))
		if len(got) != n*(round+1) || got[len(got)-1] != fmt.Sprint(n*(round+1)-1) {
			t.Fatalf("round %d: read %d records, last %v", round, len(got), got[len(got)-1:])
		}
		cl.Close()
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRefused(t *testing.T) {
	dir := t.TempDir()
	b := start(t, Config{DataDir: dir, Partitions: 2})
	for _, c := range []struct {
		name, want string
		cfg        Config
	}{
		{"folder in use", "in use by another process", Config{DataDir: dir}},
		{"address in use", "another broker running", Config{Listen: b.Addr}},
		{"no host", "names no host", Config{Listen: "0.0.0.0:0"}},
		{"no port", "host:port", Config{Listen: "127.0.0.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			other, err := Start(t.Context(), c.cfg)
			if err == nil {
				other.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not say %q", err, c.want)
			}
		})
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := Start(t.Context(), Config{DataDir: dir, Partitions: 5}); err == nil {
		b.Close()
		t.Error("started with another partition count")
	} else if !strings.Contains(err.Error(), "has 2 partitions") {
		t.Error(err)
	}
	start(t, Config{DataDir: dir}) // 0 takes over what is there
}
