package kafka_test

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

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// relay is a task that copies prov.steps to prov.turns, numbering the records
// of its partition from what is committed: a state that shows every repeat and
// every loss.
type relay struct {
	in  kafka.Input
	cfg kafka.Config
	n   int
}

func (r *relay) Process(records []*kgo.Record, out *kafka.Out) error {
	for _, rec := range records {
		if rec.Attrs.IsControl() {
			continue
		}
		r.n++
		out.Produce(&kgo.Record{Topic: r.cfg.Topic(topics.Turns), Partition: r.in.Partition, Value: fmt.Appendf(nil, "%d %s", r.n, rec.Value)})
	}
	return nil
}
func (r *relay) Gap(from, to int64, _ *kafka.Out) error {
	return kafka.Fatal(fmt.Errorf("gap %d-%d", from, to))
}
func (r *relay) Flush(int64, *kafka.Out) error { return nil }
func (r *relay) Metadata() string              { return fmt.Sprint(r.n) }
func (r *relay) Close()                        {}

func testConfig(c *kafkatest.Cluster) kafka.Config {
	cfg := kafka.Config{Flags: kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix, Extra: c.Opts}, Service: "relay"}
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return cfg
}

// startRelay runs the service until the returned function stops it, which gives
// its error.
func startRelay(t *testing.T, cfg kafka.Config, health *kafka.Health) (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- kafka.RunService(ctx, cfg, nil, health, kafka.LoopSpec{Topics: []string{topics.Steps}},
			func(*kafka.Cluster) (kafka.Parts, error) {
				return kafka.Parts{Open: func(_ context.Context, in kafka.Input) (kafka.Task, error) {
					r := &relay{in: in, cfg: cfg}
					fmt.Sscan(in.Metadata, &r.n)
					return r, nil
				}}, nil
			})
	}()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = stop() })
	return stop
}

func produce(t *testing.T, cl *kgo.Client, topic string, from, to int, partitions int32) {
	t.Helper()
	for i := from; i < to; i++ {
		r := &kgo.Record{Topic: topic, Partition: int32(i) % partitions, Value: fmt.Appendf(nil, "v%d", i)}
		if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// readAll reads what is committed of a topic, partition by partition.
func readAll(t *testing.T, cfg kafka.Config, topic string, partitions int32) [][]string {
	t.Helper()
	cluster, err := kafka.Open(t.Context(), cfg.Flags)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	out := make([][]string, partitions)
	for p := range partitions {
		b, err := cluster.Bounds(t.Context(), topic, p)
		if err != nil {
			t.Fatal(err)
		}
		err = cluster.Read(t.Context(), topic, p, b.Start, b.End, kafka.ReadCommitted, func(recs []*kgo.Record) error {
			for _, r := range recs {
				out[p] = append(out[p], string(r.Value))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Of two processes with one name one ends and says why, the other goes on.
func TestTwinsSettle(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		cfg := testConfig(c)
		cfg.Instance = "a"
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		stops := []func() error{startRelay(t, cfg, new(kafka.Health))}
		n := 0
		load := func(seconds int) {
			for range 10 * seconds {
				produce(t, cl, cfg.Topic(topics.Steps), n, n+4, c.Partitions)
				n += 4
				time.Sleep(100 * time.Millisecond)
			}
		}
		load(3)
		stops = append(stops, startRelay(t, cfg, new(kafka.Health)))
		load(15)
		waitFor(t, "everything is copied", func() bool {
			copied := 0
			for _, p := range readAll(t, cfg, cfg.Topic(topics.Turns), c.Partitions) {
				copied += len(p)
			}
			return copied == n
		})
		var ended []error
		for _, stop := range stops {
			if err := stop(); err != nil {
				ended = append(ended, err)
			}
		}
		if len(ended) != 1 || !strings.Contains(ended[0].Error(), "another process runs as --instance a") {
			t.Errorf("of two processes with one name ended: %v", ended)
		}
		checkRelay(t, cfg, n, c.Partitions)
	})
}

// want is what the relay must have written for values 0 to n: numbered without
// a hole, each value once.
func want(n int, partitions int32) [][]string {
	out := make([][]string, partitions)
	for i := range n {
		p := i % int(partitions)
		out[p] = append(out[p], fmt.Sprintf("%d v%d", len(out[p])+1, i))
	}
	return out
}

func checkRelay(t *testing.T, cfg kafka.Config, n int, partitions int32) {
	t.Helper()
	got := readAll(t, cfg, cfg.Topic(topics.Turns), partitions)
	for p := range partitions {
		if w := want(n, partitions)[p]; !slices.Equal(got[p], w) {
			t.Errorf("partition %d: got %q, want %q", p, got[p], w)
		}
	}
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 6000 {
		if cond() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("waited too long for %s", what)
}

// drained waits until the relay has committed all n records.
func drained(t *testing.T, cfg kafka.Config, n int, partitions int32) {
	t.Helper()
	cluster, err := kafka.Open(t.Context(), cfg.Flags)
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	waitFor(t, "the relay to drain its input", func() bool {
		offsets, err := cluster.Committed(t.Context(), kafka.DefaultGroup(cfg.Prefix, cfg.Service))
		if err != nil {
			return false
		}
		total := int64(0)
		for p := range partitions {
			if o, ok := offsets.Lookup(cfg.Topic(topics.Steps), p); ok {
				total += o.At
			}
		}
		return total >= int64(n)
	})
}

func TestLoopCarriesOnAfterARestart(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		cfg := testConfig(c)
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for round := range 3 {
			stop := startRelay(t, cfg, nil)
			produce(t, cl, cfg.Topic(topics.Steps), 20*round, 20*(round+1), c.Partitions)
			drained(t, cfg, 20*(round+1), c.Partitions)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		checkRelay(t, cfg, 60, c.Partitions)
	})
}

// Without transactions the same records pass; it is for measurements.
func TestLoopWithoutTransactions(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		cfg := testConfig(c)
		cfg.NoTransactions = true
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for round := range 2 {
			stop := startRelay(t, cfg, nil)
			produce(t, cl, cfg.Topic(topics.Steps), 20*round, 20*(round+1), c.Partitions)
			drained(t, cfg, 20*(round+1), c.Partitions)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		checkRelay(t, cfg, 40, c.Partitions)
	})
}

// An aborted transaction of an agent leaves a hole in the offsets, a restart in
// the hole goes on behind it, and committed offsets reach the end.
func TestLoopReachesTheEndBehindAbortedTransactions(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		cfg := testConfig(c)
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("agent"))
		for round := range 3 {
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			produce(t, cl, cfg.Topic(topics.Steps), 0, 8, c.Partitions)
			if err := cl.EndTransaction(t.Context(), round == 1); err != nil {
				t.Fatal(err)
			}
			stop := startRelay(t, cfg, nil)
			drained(t, cfg, 12*(round+1), c.Partitions) // each partition: two records and a marker, three times
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		checkRelay(t, cfg, 8, c.Partitions)
	})
}

// Two instances share the partitions; one arrives and one leaves in the middle.
func TestLoopRebalances(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		first := testConfig(c)
		first.Instance, first.LeaveOnStop = "a", true
		second := first
		second.Instance = "b"
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		stopA := startRelay(t, first, nil)
		var healthB kafka.Health
		var stopB func() error
		for i := range 400 {
			produce(t, cl, first.Topic(topics.Steps), i, i+1, c.Partitions)
			time.Sleep(25 * time.Millisecond)
			if i == 100 {
				stopB = startRelay(t, second, &healthB)
			}
			if i == 250 {
				if healthB.Status().Open == 0 {
					t.Error("the second instance got no partition")
				}
				if err := stopA(); err != nil {
					t.Fatal(err)
				}
			}
		}
		drained(t, first, 400, c.Partitions)
		if err := stopB(); err != nil {
			t.Fatal(err)
		}
		checkRelay(t, first, 400, c.Partitions)
	})
}

// An instance that is back before its session times out finds its partitions where
// it left them, and the others notice nothing: no partition of theirs is opened
// again. One that stays away longer loses them.
func TestLoopKeepsItsPlace(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		first := testConfig(c)
		first.Instance, first.SessionTimeout = "a", 4*time.Second
		second := first
		second.Instance = "b"
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		var a, b kafka.Health
		owns := func(h *kafka.Health) int { s := h.Status(); return s.Open + s.Opening }
		stopA := startRelay(t, first, &a)
		stopB := startRelay(t, second, &b)
		n := 0
		more := func() {
			produce(t, cl, first.Topic(topics.Steps), n, n+1, c.Partitions)
			n++
			time.Sleep(20 * time.Millisecond)
		}
		for range 1000 {
			if more(); owns(&a) == 2 && owns(&b) == 2 {
				break
			}
		}
		if err := stopB(); err != nil {
			t.Fatal(err)
		}
		for range 100 { // two seconds
			if more(); owns(&a) != 2 {
				t.Fatalf("a owns %d partitions while b is away for a moment", owns(&a))
			}
		}
		stopB = startRelay(t, second, &b)
		for range 300 {
			if more(); owns(&a) != 2 {
				t.Fatalf("a owns %d partitions when b is back", owns(&a))
			}
		}
		if owns(&b) != 2 {
			t.Fatalf("b owns %d partitions when it is back", owns(&b))
		}
		if err := stopB(); err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			if more(); owns(&a) == 4 {
				break
			}
		}
		drained(t, first, n, c.Partitions)
		if err := stopA(); err != nil {
			t.Fatal(err)
		}
		checkRelay(t, first, n, c.Partitions)
	})
}

// Each request of a transaction's life fails three times, in each way: before it
// has happened, and after. (For the services, and each of their topics, package
// pipeline does the same.)
func TestLoopSurvivesFailedEffects(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.TxnOffsetCommit, kmsg.AddOffsetsToTxn, kmsg.EndTxn, kmsg.InitProducerID, kmsg.Heartbeat} {
		for _, how := range kafkatest.Failures() {
			t.Run(fmt.Sprintf("%s/%s", key.Name(), how), func(t *testing.T) {
				t.Parallel()
				kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
					cfg := testConfig(c)
					cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
					produce(t, cl, cfg.Topic(topics.Steps), 0, 40, c.Partitions)
					n := 0
					hits := c.Fail(t, key, how, func(req kmsg.Request) bool {
						if p, ok := req.(*kmsg.ProduceRequest); ok && p.TransactionID == nil {
							return false // the test's own
						}
						n++
						return n == 1 || n == 4 || n == 5
					})
					stop := startRelay(t, cfg, nil)
					for i := range 40 {
						produce(t, cl, cfg.Topic(topics.Steps), 40+i, 41+i, c.Partitions)
						time.Sleep(10 * time.Millisecond)
					}
					drained(t, cfg, 80, c.Partitions)
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					if hits() == 0 && key != kmsg.AddOffsetsToTxn && key != kmsg.Heartbeat {
						t.Error("the fault was never met")
					}
					checkRelay(t, cfg, 80, c.Partitions)
				})
			})
		}
	}
}

func TestOpenNamesWhatIsMissing(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{NoTopics: true}, func(t *testing.T, c *kafkatest.Cluster) {
		cfg := testConfig(c)
		_, err := kafka.Open(t.Context(), cfg.Flags)
		if err == nil || !kafka.IsFatal(err) || !strings.Contains(err.Error(), "provctl topics create") || !strings.Contains(err.Error(), topics.Runs) {
			t.Errorf("missing topics: %v", err)
		}
		for i, topic := range topics.All() {
			n := int32(4)
			if topic.Name == topics.DAGs {
				n = 3
			}
			if !topic.Partitioned {
				n = 1
			}
			if err := c.Fake.CreateTopic(topics.All()[i].Name, n, nil); err != nil {
				t.Fatal(err)
			}
		}
		_, err = kafka.Open(t.Context(), cfg.Flags)
		if err == nil || !kafka.IsFatal(err) || !strings.Contains(err.Error(), "prov.dags 3") {
			t.Errorf("unequal counts: %v", err)
		}
	})
}
