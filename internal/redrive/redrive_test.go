package redrive_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/ingest"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/redrive"
	"provstream/internal/topics"
)

type world struct {
	*kafkatest.Cluster
	t     *testing.T
	flags kafka.Flags
	cl    *kgo.Client
	hook  string
}

func newWorld(t *testing.T, c *kafkatest.Cluster) *world {
	return &world{
		Cluster: c, t: t, flags: kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix, Extra: c.Opts},
		cl: c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner())), hook: c.Topic("acs.hooks.user-message"),
	}
}

func (w *world) send(values ...string) {
	w.t.Helper()
	for i, v := range values {
		r := &kgo.Record{
			Topic: w.hook, Partition: int32(i) % 2, Key: []byte("key"), Value: []byte(v), Timestamp: time.UnixMilli(1764000000000 + int64(i)),
			Headers: []kgo.RecordHeader{{Key: "traceparent", Value: []byte(v)}},
		}
		if err := w.cl.ProduceSync(w.t.Context(), r).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// ingest runs until everything in the hook topics is read.
func (w *world) ingest(reference bool) {
	w.t.Helper()
	cfg := ingest.Config{DeadLetterReference: reference}
	cfg.Flags = w.flags
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- ingest.Run(ctx, cfg) }()
	cluster, err := kafka.Open(ctx, w.flags)
	if err != nil {
		w.t.Fatal(err)
	}
	defer cluster.Close()
	clock := kafka.HookClock{Cluster: cluster, IngestGroup: kafka.DefaultGroup(w.Prefix, "ingest")}
	for {
		if o, err := clock.Observe(ctx); err == nil && o.OK && o.Behind == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	cancel()
	if err := <-done; err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) redrive(cfg redrive.Config) redrive.Report {
	w.t.Helper()
	cfg.Flags = w.flags
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	report, err := redrive.Run(w.t.Context(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return report
}

// read lists a topic, one line a record.
func (w *world) read(topic string) (lines []string) {
	w.t.Helper()
	cluster, err := kafka.Open(w.t.Context(), w.flags)
	if err != nil {
		w.t.Fatal(err)
	}
	defer cluster.Close()
	for p := range w.Partitions {
		b, err := cluster.Bounds(w.t.Context(), topic, p)
		if err != nil {
			w.t.Fatal(err)
		}
		err = cluster.Read(w.t.Context(), topic, p, b.Start, b.End, kafka.ReadCommitted, func(records []*kgo.Record) error {
			for _, r := range records {
				h := map[string]string{}
				for _, header := range r.Headers {
					h[header.Key] = string(header.Value)
				}
				lines = append(lines, fmt.Sprintf("%d %s %s trace=%s attempts=%s from=%s", r.Partition, r.Key, r.Value, h["traceparent"], h[ingest.HeaderAttempts],
					strings.TrimPrefix(h[redrive.HeaderFrom], w.Prefix)))
			}
			return nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	slices.Sort(lines)
	return lines
}

func TestRedriveSendsEachDeadLetterOnce(t *testing.T) {
	for _, reference := range []bool{false, true} {
		t.Run(fmt.Sprintf("reference=%v", reference), func(t *testing.T) {
			kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
				w := newWorld(t, c)
				w.send("bad 0", "bad 1", "bad 2", `{"jsonrpc":"2.0"}`)
				w.ingest(reference)
				if r := w.redrive(redrive.Config{DryRun: true}); r.Redrive != 4 || r.ByKind["not_json"] != 3 || r.ByKind["envelope"] != 1 {
					t.Errorf("dry run: %+v", r)
				}
				// Commits fail on the way: not done, and done but not told.
				for _, err := range []*kerr.Error{kerr.UnknownServerError, kerr.RequestTimedOut} {
					c.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: err, TopLevel: true})
				}
				if r := w.redrive(redrive.Config{Kinds: []string{"not_json"}}); r.ByKind["not_json"] == 0 || r.ByKind["envelope"] != 0 {
					t.Errorf("first run: %+v", r)
				}
				if r := w.redrive(redrive.Config{Kinds: []string{"not_json"}}); r.Redrive != 0 {
					t.Errorf("the same filter again: %+v", r)
				}
				got := w.read(w.hook)
				from := map[string]bool{}
				n := 0
				for _, line := range got {
					if i := strings.Index(line, "from="+topics.DeadLetter); i >= 0 {
						from[line[i:]] = true
						n++
						if !strings.Contains(line, "attempts=1") || !strings.Contains(line, "trace=bad ") || !strings.Contains(line, " key bad ") {
							t.Errorf("sent again: %s", line)
						}
					}
				}
				if n != 3 || len(from) != 3 {
					t.Errorf("%d records were sent again, of %d dead letters; want 3 of 3: %q", n, len(from), got)
				}
			})
		})
	}
}

// A record that never passes is tried five times in all.
func TestRedriveEnds(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		w.send("bad")
		total := int64(0)
		for range 8 {
			w.ingest(false)
			total += w.redrive(redrive.Config{}).Redrive
		}
		if total != 4 {
			t.Errorf("sent again %d times, want 4: five attempts in all", total)
		}
		if n := len(w.read(w.Topic(topics.DeadLetter))); n != 5 {
			t.Errorf("%d dead letters, want 5", n)
		}
	})
}
