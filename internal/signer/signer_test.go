package signer_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/evidence"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/keys"
	"provstream/internal/kindgi/kindgitest"
	"provstream/internal/merkle"
	"provstream/internal/signer"
	"provstream/internal/topics"
	"provstream/verify"
)

type world struct {
	*kafkatest.Cluster
	cfg     signer.Config
	cluster *kafka.Cluster
	input   *kgo.Client
	runs    [][][]byte // values sent, by partition
	covers  [][][]byte
}

func newWorld(t *testing.T, c *kafkatest.Cluster) *world {
	log, err := keys.FromSeed(bytes.Repeat([]byte{1}, 32), verify.UseLog, "")
	if err != nil {
		t.Fatal(err)
	}
	dag, err := keys.FromSeed(bytes.Repeat([]byte{2}, 32), verify.UseDAG, "")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Cluster: c, runs: make([][][]byte, c.Partitions), covers: make([][][]byte, c.Partitions)}
	w.cfg.Flags = kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix, Extra: c.Opts}
	if w.cfg.Ring, err = keys.NewRing(log, dag); err != nil {
		t.Fatal(err)
	}
	if testing.Verbose() {
		w.cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if w.cluster, err = kafka.Open(t.Context(), w.cfg.Flags); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cluster.Close)
	w.input = c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID("aggregator"))
	return w
}

// send writes n DAGs and n coverage records, in a transaction as the services
// do; an aborted one leaves nothing that is to be signed.
func (w *world) send(t *testing.T, n int, commit bool) {
	t.Helper()
	if err := w.input.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for range n {
		sent := len(w.runs[0]) + len(w.runs[1])
		p, seed := int32(sent%2), uint64(1+sent)
		dag := kindgitest.DAG(kindgitest.Options{Seed: seed, Turns: 2, Tools: 1})
		cov := (&verify.Coverage{Topic: "acs.hooks.user-message", Partition: p, From: int64(seed) * 10, To: int64(seed)*10 + 10, Records: 10}).Append(nil)
		for topic, value := range map[string][]byte{topics.Runs: dag, topics.Coverage: cov} {
			if err := w.input.ProduceSync(t.Context(), &kgo.Record{Topic: w.Topic(topic), Partition: p, Value: value, Key: []byte("k")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if commit {
			w.runs[p], w.covers[p] = append(w.runs[p], dag), append(w.covers[p], cov)
		}
	}
	if err := w.input.EndTransaction(t.Context(), kgo.TransactionEndTry(commit)); err != nil {
		t.Fatal(err)
	}
}

func (w *world) start(t *testing.T) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- signer.Run(ctx, w.cfg) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

func (w *world) read(t *testing.T, base string, p int32) []*kgo.Record {
	t.Helper()
	var all []*kgo.Record
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
	return all
}

// signed waits until every DAG is signed and every coverage record logged.
func (w *world) signed(t *testing.T) {
	t.Helper()
	for range 1000 {
		behind := 0
		for p := range int32(2) {
			behind += len(w.runs[p]) - len(w.read(t, topics.DAGs, p))
			behind += len(w.covers[p]) - int(w.logSize(t, topics.Coverage, p))
		}
		if behind == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal("the signer does not come to an end")
}

func (w *world) logSize(t *testing.T, logged string, p int32) int64 {
	t.Helper()
	size := int64(0)
	for _, c := range w.checkpoints(t, logged, p) {
		size = c.Size
	}
	return size
}

func header(r *kgo.Record, key string) []byte {
	for _, h := range r.Headers {
		if h.Key == key {
			return h.Value
		}
	}
	return nil
}

// checkpoints of a log, verified one after the other.
func (w *world) checkpoints(t *testing.T, logged string, p int32) []verify.Checkpoint {
	t.Helper()
	origin := merkle.Origin("provstream", w.Topic(logged), p)
	pinned, err := w.cfg.Ring.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	heads := verify.NewHeads(origin)
	var all []verify.Checkpoint
	for _, r := range w.read(t, topics.Checkpoints, p) {
		if string(r.Key) != origin {
			continue
		}
		c, err := pinned.Checkpoint(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		if err := heads.Next(c, header(r, evidence.HeaderConsistency), header(r, evidence.HeaderFrontier)); err != nil {
			t.Errorf("%s@%d: %v", origin, r.Offset, err)
		}
		all = append(all, c)
	}
	return all
}

// check reads everything back as a consumer would.
func (w *world) check(t *testing.T) {
	t.Helper()
	pinned, err := w.cfg.Ring.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	for p := range int32(2) {
		v := verify.NewVerifier(pinned)
		follower := verify.NewLog(merkle.Origin("provstream", w.Topic(topics.DAGs), p))
		heads := w.checkpoints(t, topics.DAGs, p)
		for _, c := range heads {
			if err := follower.Head(c); err != nil {
				t.Error(err)
			}
		}
		records := w.read(t, topics.DAGs, p)
		if len(records) != len(w.runs[p]) {
			t.Errorf("partition %d: %d signed DAGs, want %d", p, len(records), len(w.runs[p]))
		}
		for i, r := range records {
			got, err := v.Record(r.Value, header(r, evidence.HeaderProof))
			if err != nil {
				t.Errorf("partition %d record %d: %v", p, i, err)
				continue
			}
			if err := follower.Record(got); err != nil {
				t.Errorf("partition %d record %d: %v", p, i, err)
			}
			if string(header(r, "ce_id")) == "" || string(header(r, "ce_type")) != "provstream.dag.v1" || string(r.Key) != "k" {
				t.Errorf("partition %d record %d: headers %v", p, i, r.Headers)
			}
		}
		coverage := verify.NewLog(merkle.Origin("provstream", w.Topic(topics.Coverage), p))
		for _, c := range w.checkpoints(t, topics.Coverage, p) {
			if err := coverage.Head(c); err != nil {
				t.Error(err)
			}
		}
		for _, value := range w.covers[p] {
			if err := coverage.Leaf(verify.Hash(merkle.LeafHash(value))); err != nil {
				t.Error(err)
			}
		}
		if err := coverage.Close(); err != nil {
			t.Errorf("coverage log of partition %d: %v", p, err)
		}
	}
}

// The signer is stopped, started, and hit by failed commits: the log has every
// committed DAG once, in order, and each head leads to the next.
func TestSignerKeepsOneLog(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		w.send(t, 5, true)
		w.send(t, 3, false)
		for range 4 {
			// An end that is refused, and one that happens and is not told.
			failEnd(t, c, kafkatest.Refused)
			stop := w.start(t)
			w.send(t, 4, true)
			time.Sleep(300 * time.Millisecond)
			w.send(t, 2, false)
			failEnd(t, c, kafkatest.Misreported)
			w.send(t, 3, true)
			w.signed(t)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		w.check(t)
	})
}

// failEnd lets the signer's next end of a transaction fail.
func failEnd(t *testing.T, c *kafkatest.Cluster, how kafkatest.Failure) {
	failed := false
	c.Fail(t, kmsg.EndTxn, how, func(req kmsg.Request) bool {
		if failed || req.(*kmsg.EndTxnRequest).TransactionalID == "aggregator" {
			return false
		}
		failed = true
		return true
	})
}

// What is no unsigned DAG is refused, and the message says where it stands.
func TestSignerRefusesWhatItCannotParse(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		w.send(t, 3, true)
		dag := kindgitest.DAG(kindgitest.Options{Seed: 99})
		bad := append([]byte(" "), dag...) // not canonical
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: w.Topic(topics.Runs), Partition: 1, Value: bad}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		stop := w.start(t)
		time.Sleep(2 * time.Second)
		err := stop()
		if err == nil || !strings.Contains(err.Error(), "prov.runs/1@2 is refused, nothing was signed") {
			t.Errorf("got %v", err)
		}
	})
}

// A group whose offsets were reset, and a checkpoint topic that was emptied.
func TestSignerRefusesAForkedLog(t *testing.T) {
	for name, reset := range map[string]func(t *testing.T, w *world){
		"offsets": func(t *testing.T, w *world) {
			if _, err := w.cluster.Admin.DeleteGroups(t.Context(), kafka.DefaultGroup(w.Prefix, "signer")); err != nil {
				t.Fatal(err)
			}
		},
		"checkpoints": func(t *testing.T, w *world) {
			for p := range w.Partitions {
				if err := w.Fake.DeleteRecords(w.Topic(topics.Checkpoints), p, -1); err != nil {
					t.Fatal(err)
				}
			}
		},
		"deployment": func(t *testing.T, w *world) { w.cfg.Deployment = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
				w := newWorld(t, c)
				w.cfg.LeaveOnStop = true
				stop := w.start(t)
				w.send(t, 3, true)
				w.signed(t)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				reset(t, w)
				stop = w.start(t)
				time.Sleep(2 * time.Second)
				if err := stop(); err == nil || !strings.Contains(err.Error(), "new deployment under another --prefix") {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// TestSignerPassesMarkersFirst starts where only an aborted transaction stands:
// the marker is passed, which commits an offset before there is a checkpoint. A
// restart must not take that for a lost log.
func TestSignerPassesMarkersFirst(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		w.send(t, 3, false)
		adm := kadm.NewClient(w.Client(t))
		stop := w.start(t)
		for passed := 0; passed < 2; time.Sleep(20 * time.Millisecond) { // prov.runs/0 and prov.coverage/0
			passed = 0
			offsets, err := adm.FetchOffsets(t.Context(), kafka.DefaultGroup(w.Prefix, signer.Service))
			if err != nil {
				continue // the group does not exist yet
			}
			offsets.Each(func(o kadm.OffsetResponse) {
				if o.At > 0 {
					passed++
				}
			})
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		stop = w.start(t)
		w.send(t, 3, true)
		w.signed(t)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.check(t)
	})
}
