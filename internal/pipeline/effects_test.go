package pipeline

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/integration/processes"
	"provstream/internal/fleet"
	"provstream/internal/generate"
	"provstream/internal/kafkatest"
	"provstream/internal/keys"
	"provstream/internal/reconcile"
	"provstream/internal/topics"
	"provstream/internal/window"
	"provstream/verify"
)

// effect is one thing that a service does to the brokers.
type effect struct {
	service string
	what    string
	key     kmsg.Key
	topic   string // of what is produced
	plain   bool   // produced outside of the transaction
}

// effects are those of the three services in the order in which they happen, as
// internal/kafka/doc.go tells it.
func effects() []effect {
	outputs := map[string][]string{
		Ingest:     {topics.Steps, topics.DeadLetter, topics.Coverage},
		Aggregator: {topics.Turns, topics.Sessions, topics.Runs, topics.AggregatorState},
		Signer:     {topics.DAGs, topics.Checkpoints},
	}
	var all []effect
	for _, service := range []string{Ingest, Aggregator, Signer} {
		all = append(all, effect{service: service, what: "producer id", key: kmsg.InitProducerID})
		if service == Aggregator {
			all = append(all, effect{service: service, what: "tick", key: kmsg.Produce, topic: topics.Steps, plain: true})
		}
		for _, topic := range outputs[service] {
			all = append(all, effect{service: service, what: topic, key: kmsg.Produce, topic: topic})
		}
		all = append(all,
			effect{service: service, what: "offsets", key: kmsg.TxnOffsetCommit},
			effect{service: service, what: "commit", key: kmsg.EndTxn})
	}
	return all
}

// is tells whether a request is the effect; id is that of its topic, which newer
// requests go by.
func (e effect) is(req kmsg.Request, id [16]byte) bool {
	txn := transactionalID(req)
	if e.plain != (txn == "") || !e.plain && !strings.Contains(txn, "provstream-"+e.service) {
		return false
	}
	r, ok := req.(*kmsg.ProduceRequest)
	return !ok || slices.ContainsFunc(r.Topics, func(t kmsg.ProduceRequestTopic) bool { return t.Topic == e.topic || t.TopicID == id })
}

func transactionalID(req kmsg.Request) string {
	var id *string
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		id = r.TransactionID
	case *kmsg.InitProducerIDRequest:
		id = r.TransactionalID
	case *kmsg.TxnOffsetCommitRequest:
		id = &r.TransactionalID
	case *kmsg.EndTxnRequest:
		id = &r.TransactionalID
	}
	if id == nil {
		return ""
	}
	return *id
}

// Every effect of every service fails in every way, a few times in a row: what
// stands on the topics in the end is what an undisturbed run leaves there.
func TestEveryEffectMayFail(t *testing.T) {
	var want *processes.Outcome
	t.Run("undisturbed", func(t *testing.T) {
		kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) { want = drain(t, c) })
	})
	if want == nil || len(want.DAGs) < 12 || want.DeadLetters == 0 {
		t.Fatalf("the undisturbed run is too tame: %+v", want)
	}
	for _, e := range effects() {
		for _, how := range kafkatest.Failures() {
			t.Run(fmt.Sprintf("%s/%s/%s", e.service, e.what, how), func(t *testing.T) {
				if !kafkatest.VirtualTime && e.key != kmsg.EndTxn {
					t.Skip("SKIPPED: takes minutes in real time; run with -tags synctests")
				}
				t.Parallel()
				kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
					var id [16]byte
					if e.topic != "" {
						id = c.Fake.TopicInfo(e.topic).TopicID
					}
					n := 0
					hits := c.Fail(t, e.key, how, func(req kmsg.Request) bool {
						if !e.is(req, id) {
							return false
						}
						n++
						return n == 1 || n == 3 || n == 4
					})
					if err := want.Equal(drain(t, c)); err != nil {
						t.Error(err)
					}
					if hits() == 0 {
						t.Error("the failure was never met")
					}
				})
			})
		}
	}
}

// drain sends a small fleet, runs the services until every run is sealed and
// signed, and holds the result against the oracle.
func drain(t *testing.T, c *kafkatest.Cluster) *processes.Outcome {
	t.Helper()
	cluster, flags := open(t, c)
	send(t, c)
	log, err := keys.FromSeed(bytes.Repeat([]byte{1}, 32), verify.UseLog, "")
	if err != nil {
		t.Fatal(err)
	}
	dag, err := keys.FromSeed(bytes.Repeat([]byte{2}, 32), verify.UseDAG, "")
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keys.NewRing(log, dag)
	if err != nil {
		t.Fatal(err)
	}
	w := window.DefaultConfig()
	w.CompleteGrace, w.Grace, w.SealGrace, w.LateGrace = time.Millisecond, time.Millisecond, time.Millisecond, time.Millisecond
	cfg := Config{Flags: flags, Ring: ring, Window: w}
	if testing.Verbose() {
		cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	p := New(t.Context(), cfg)
	p.Start(Ingest, Aggregator, Signer)
	track := Track(cluster)
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		if time.Since(begin) > 2*time.Minute {
			t.Fatal("not drained")
		}
		open, err := track.Open(t.Context())
		if err != nil {
			continue
		}
		ingest, err1 := IngestLag(t.Context(), cluster)
		signer, err2 := SignerLag(t.Context(), cluster)
		if err1 == nil && err2 == nil && ingest == 0 && signer == 0 && open == 0 && track.Runs() > 0 {
			break
		}
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	pinned, err := ring.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	report, err := reconcile.Run(t.Context(), reconcile.NewKafka(cluster.Client, c.Prefix), reconcile.Options{Lineage: true, Keys: pinned, Drained: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range report.Problems {
		t.Error(problem)
	}
	o, err := processes.ReadOutcome(t.Context(), c.Opts, c.Prefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, twice := range o.Repeated {
		t.Errorf("stands twice: %s", twice)
	}
	return o
}

// send produces the fleet, the same every time.
func send(t *testing.T, c *kafkatest.Cluster) {
	t.Helper()
	start := time.Date(1999, 12, 31, 18, 0, 0, 0, time.UTC) // the past, in virtual time too
	g, err := generate.New(generate.Config{Seed: 4, Sessions: 12, StartMs: start.UnixMilli(), Faults: []string{"not_json", "not_strict", "copies"}})
	if err != nil {
		t.Fatal(err)
	}
	var records []*kgo.Record
	for r := range g.All() {
		records = append(records, record(c, r))
	}
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func record(c *kafkatest.Cluster, r fleet.Record) *kgo.Record {
	if c.Fake.TopicInfo(r.Topic) == nil { // a hook that is none of ACS's
		_ = c.Fake.CreateTopic(r.Topic, c.Partitions, nil)
	}
	out := &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.TimeMs)}
	if len(r.Key) != 0 {
		out.Partition = topics.Partition(r.Key, c.Partitions)
	}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	return out
}
