package ingest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/ingest"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
	"provstream/verify"
)

// uuid makes a UUID out of a number.
func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// userMessage is a minimal valid envelope.
func userMessage(session, request int, tenant string) string {
	if tenant != "" {
		tenant = `,"tenant_id":"` + tenant + `"`
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"steps/userMessage","id":%d,"params":{"acs_version":"0.1.0","request_id":%q,"timestamp":%q,"metadata":{"agent_id":"a","session_id":%q,"environment":"production","platform":"p"},"payload":{"content":[{"type":"text","value":"secret words"}]}%s}}`,
		request, uuid(request), time.Now().UTC().Format(time.RFC3339Nano), uuid(session), tenant)
}

type world struct {
	*kafkatest.Cluster
	cfg     ingest.Config
	cluster *kafka.Cluster
}

func newWorld(t *testing.T, c *kafkatest.Cluster) *world {
	w := &world{Cluster: c}
	w.cfg.Flags = kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix, Extra: c.Opts}
	if testing.Verbose() {
		w.cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	var err error
	if w.cluster, err = kafka.Open(t.Context(), w.cfg.Flags); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cluster.Close)
	return w
}

// start runs ingest; stop ends it and fails the test if it had failed.
func (w *world) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ingest.Run(ctx, w.cfg) }()
	end := sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() { _ = end() })
	return func() {
		t.Helper()
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
}

// caughtUp waits until everything in the hook topics is read.
func (w *world) caughtUp(t *testing.T) kafka.Observation {
	t.Helper()
	clock := kafka.HookClock{Cluster: w.cluster, IngestGroup: kafka.DefaultGroup(w.Prefix, "ingest"), Tolerance: time.Second}
	for range 3000 {
		o, err := clock.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if o.OK && o.Behind == 0 {
			return o
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("ingest does not catch up")
	return kafka.Observation{}
}

func (w *world) read(t *testing.T, base string) []*kgo.Record {
	t.Helper()
	var all []*kgo.Record
	for p := range w.Partitions {
		b, err := w.cluster.Bounds(t.Context(), w.Topic(base), p)
		if err != nil {
			t.Fatal(err)
		}
		err = w.cluster.Read(t.Context(), w.Topic(base), p, b.Start, b.End, kafka.ReadCommitted, func(recs []*kgo.Record) error {
			all = append(all, recs...)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func headerOf(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return "-"
}

func TestIngestSortsGoodFromBad(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		hook := w.Topic(topics.Hook(acs.MethodUserMessage))
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		send := func(value string, headers ...kgo.RecordHeader) {
			r := &kgo.Record{Topic: hook, Partition: 0, Key: []byte("k"), Value: []byte(value), Headers: headers}
			if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 20 {
			send(userMessage(i%5, 100+i, "acme"))
		}
		send("no json", kgo.RecordHeader{Key: "traceparent", Value: []byte("00-1")}, kgo.RecordHeader{Key: ingest.HeaderAttempts, Value: []byte("2")})
		send(strings.Replace(userMessage(1, 900, "acme"), `"value":"secret words"`, `"value":"secret words","value":1`, 1))
		send(strings.Replace(userMessage(1, 901, "acme"), `"content"`, `"kontent"`, 1))
		stop := w.start(t)
		w.caughtUp(t)
		stop()

		steps := w.read(t, topics.Steps)
		if len(steps) != 22 {
			t.Errorf("%d steps, want 20 and two rejected ones", len(steps))
		}
		var s acs.Step
		for _, r := range steps {
			if err := codec.DecodeStep(&s, r.Value); err != nil {
				t.Fatal(err)
			}
			if want := topics.RunKey("acme", s.Session); string(r.Key) != want || r.Partition != topics.Partition(r.Key, w.Partitions) {
				t.Errorf("step of %s in partition %d with key %q", s.Session, r.Partition, r.Key)
			}
			if strings.Contains(string(r.Value), "secret") {
				t.Errorf("a step carries content: %s", r.Value)
			}
		}
		dead := w.read(t, topics.DeadLetter)
		if len(dead) != 3 {
			t.Fatalf("%d dead letters, want 3: %v", len(dead), dead[0].Headers)
		}
		for i, want := range []struct{ kind, pointer, keyword, attempts string }{
			{codec.KindNotJSON, "", "-", "3"}, {codec.KindNotStrict, "", "-", "1"}, {codec.KindPayload, "/params/payload", "required", "1"},
		} {
			d := dead[i]
			got := struct{ kind, pointer, keyword, attempts string }{
				headerOf(d, ingest.HeaderKind), headerOf(d, ingest.HeaderPointer), headerOf(d, ingest.HeaderKeyword), headerOf(d, ingest.HeaderAttempts),
			}
			if got != want {
				t.Errorf("dead letter %d: %+v, want %+v", i, got, want)
			}
			if headerOf(d, ingest.HeaderTopic) != hook || headerOf(d, ingest.HeaderPartition) != "0" || headerOf(d, ingest.HeaderOffset) != strconv.Itoa(20+i) {
				t.Errorf("dead letter %d does not tell its source: %v", i, d.Headers)
			}
		}
		if headerOf(dead[0], "traceparent") != "00-1" || string(dead[0].Value) != "no json" || string(dead[0].Key) != "k" {
			t.Errorf("the dead letter lacks the source's value, key or headers: %+v", dead[0])
		}
		checkCoverage(t, w, hook, 0, 23, 22, 3)
	})
}

// checkCoverage adds up the coverage of a hook partition: it must be without a
// hole from 0 on.
func checkCoverage(t *testing.T, w *world, topic string, partition int32, records, steps, dead int) (gaps int) {
	t.Helper()
	next, gotRecords, gotSteps, gotDead := int64(0), 0, 0, 0
	for _, r := range w.read(t, topics.Coverage) {
		var c struct {
			Topic                                string
			Partition                            int32
			From, To                             int64
			Records, Steps, Rejected, DeadLetter int
			DeadLetters                          int    `json:"dead_letters"`
			ValuesHash                           string `json:"values_hash"`
			Gap                                  bool
		}
		if err := json.Unmarshal(r.Value, &c); err != nil {
			t.Fatal(err)
		}
		if c.Topic != topic || c.Partition != partition {
			continue
		}
		if c.From != next || c.To <= c.From {
			t.Errorf("coverage goes on at %d where %d was to be next: %s", c.From, next, r.Value)
		}
		if want := topics.Partition(r.Key, w.Partitions); r.Partition != want {
			t.Errorf("coverage with key %s in partition %d, want %d", r.Key, r.Partition, want)
		}
		next = c.To
		gotRecords, gotSteps, gotDead = gotRecords+c.Records, gotSteps+c.Steps, gotDead+c.DeadLetters
		if c.Gap {
			gaps += int(c.To - c.From)
		} else if len(c.ValuesHash) != 64 {
			t.Errorf("no hash: %s", r.Value)
		}
	}
	if gotRecords != records || gotSteps != steps || gotDead != dead {
		t.Errorf("coverage of %s/%d: %d records, %d steps, %d dead letters; want %d, %d, %d", topic, partition, gotRecords, gotSteps, gotDead, records, steps, dead)
	}
	return gaps
}

// Transactional producers leave markers and aborted records in the hook
// topics: no hole, and the clock passes them.
func TestIngestPassesTransactionalProducers(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		hook := w.Topic(topics.Hook(acs.MethodUserMessage))
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("agents"))
		request := 0
		for _, commit := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit, kgo.TryAbort} {
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				request++
				if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: hook, Value: []byte(userMessage(1, request, ""))}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if err := cl.EndTransaction(t.Context(), commit); err != nil {
				t.Fatal(err)
			}
		}
		stop := w.start(t)
		before := time.Now().UnixMilli()
		o := w.caughtUp(t)
		if o.T < before-1000 {
			t.Errorf("the clock stands at %d, now is %d", o.T, before)
		}
		stop()
		if n := len(w.read(t, topics.Steps)); n != 6 {
			t.Errorf("%d steps, want the 6 of committed transactions", n)
		}
		if gaps := checkCoverage(t, w, hook, 0, 6, 6, 0); gaps != 0 {
			t.Errorf("%d offsets told as lost; none was", gaps)
		}
	})
}

// Records that the topic lost before ingest came are told as a gap.
func TestIngestTellsGaps(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		hook := w.Topic(topics.Hook(acs.MethodUserMessage))
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		send := func(from, to int) {
			for i := from; i < to; i++ {
				if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: hook, Value: []byte(userMessage(1, i, ""))}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		send(0, 5)
		if err := c.Fake.DeleteRecords(hook, 0, 2); err != nil {
			t.Fatal(err)
		}
		stop := w.start(t)
		w.caughtUp(t)
		stop()
		send(5, 15)
		if err := c.Fake.DeleteRecords(hook, 0, 10); err != nil {
			t.Fatal(err)
		}
		stop = w.start(t)
		w.caughtUp(t)
		send(15, 20)
		w.caughtUp(t)
		stop()
		if gaps := checkCoverage(t, w, hook, 0, 3+10, 13, 0); gaps != 2+5 {
			t.Errorf("%d offsets told as lost, want 7", gaps)
		}
	})
}

// Records that are lost between two that one transaction reads: what stands before
// them is told before them, and no count says more than its offsets hold.
func TestIngestTellsGapsWithinATransaction(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		w.cfg.CommitInterval = 8 * time.Second // one transaction
		hook := w.Topic(topics.Hook(acs.MethodUserMessage))
		agent := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("agents"))
		transaction := func(from, to int, between func()) {
			t.Helper()
			err := agent.BeginTransaction()
			for i := from; i < to && err == nil; i++ {
				err = agent.ProduceSync(t.Context(), &kgo.Record{Topic: hook, Value: []byte(userMessage(1, i, ""))}).FirstErr()
			}
			if err != nil {
				t.Fatal(err)
			}
			between()
			if err := agent.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
				t.Fatal(err)
			}
		}
		stop := w.start(t)
		transaction(0, 5, func() {}) // offsets 0 to 4, and a marker
		time.Sleep(5 * time.Second)
		transaction(5, 10, func() { // offsets 6 to 10, of which nobody sees one before two are deleted
			if err := c.Fake.DeleteRecords(hook, 0, 8); err != nil {
				t.Fatal(err)
			}
		})
		w.caughtUp(t)
		stop()
		if gaps := checkCoverage(t, w, hook, 0, 5+3, 8, 0); gaps != 2 {
			t.Errorf("%d offsets told as lost, want 2", gaps)
		}
		for _, r := range w.read(t, topics.Coverage) {
			if _, err := verify.ParseCoverage(r.Value); err != nil {
				t.Errorf("%s: %v", r.Value, err)
			}
		}
	})
}

// An offset of the group that ingest did not commit itself is told: once for each
// partition that somebody set, and not at a restart.
func TestIngestTellsOffsetsOfOthers(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		hook := w.Topic(topics.Hook(acs.MethodUserMessage))
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		for i := range 5 {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: hook, Value: []byte(userMessage(1, i, ""))}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		w.cfg.LeaveOnStop = true // so that others may set the group's offsets
		resets := func() float64 {
			reg := prometheus.NewRegistry()
			w.cfg.Registerer = reg
			stop := w.start(t)
			w.caughtUp(t)
			stop()
			families, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "provstream_ingest_resets_total" {
					return f.Metric[0].GetCounter().GetValue()
				}
			}
			return -1
		}
		if first, again := resets(), resets(); first != 0 || again != 0 {
			t.Errorf("a start tells of %g offsets set by others, a restart of %g", first, again)
		}
		offsets := make(kadm.Offsets)
		offsets.AddOffset(hook, 0, 1, -1)
		if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), kafka.DefaultGroup(c.Prefix, "ingest"), offsets); err != nil {
			t.Fatal(err)
		}
		if n := resets(); n != 1 {
			t.Errorf("%g offsets set by others, want 1", n)
		}
	})
}

// A dead letter that is too large keeps its headers; by reference it carries
// nothing of the source.
func TestDeadLettersThatDoNotFit(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		hook := w.Topic("acs.hooks.big")
		if err := c.Fake.CreateTopic(hook, 1, map[string]string{"max.message.bytes": "8388608"}); err != nil {
			t.Fatal(err)
		}
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(8<<20))
		send := func() {
			for _, size := range []int{1<<20 + 1, 3 << 20} {
				r := &kgo.Record{Topic: hook, Key: []byte("key"), Value: make([]byte, size), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}}}
				if err := cl.ProduceSync(t.Context(), r).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		send()
		stop := w.start(t)
		w.caughtUp(t)
		stop()
		w.cfg.DeadLetterReference = true
		send()
		stop = w.start(t)
		w.caughtUp(t)
		stop()
		var got []string
		for _, d := range w.read(t, topics.DeadLetter) {
			got = append(got, fmt.Sprintf("%s %s value %d key %q h %s", headerOf(d, ingest.HeaderKind), headerOf(d, ingest.HeaderTruncated), len(d.Value), d.Key, headerOf(d, "h")))
		}
		slices.Sort(got)
		want := []string{
			`oversize - value 1048577 key "key" h 1`,
			`oversize value value 0 key "key" h 1`,
			`oversize value,headers,key value 0 key "" h -`, `oversize value,headers,key value 0 key "" h -`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}
