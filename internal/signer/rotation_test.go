package signer_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/keys"
	"provstream/internal/merkle"
	"provstream/internal/signer"
	"provstream/internal/topics"
	"provstream/verify"
)

// Both keys are replaced while the signer runs, and its transactions fail now
// and then: it goes on without a restart, every DAG is signed once and
// verifies, old keys are retired at the size that the logs had, and no two
// heads of one size differ, also for a reader of uncommitted records.
func TestRotationWithoutRestart(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newWorld(t, c)
		dir := t.TempDir()
		for _, use := range []verify.Use{verify.UseLog, verify.UseDAG} {
			if _, err := keys.Create(dir, use, ""); err != nil {
				t.Fatal(err)
			}
		}
		reload := func() {
			t.Helper()
			ring, err := keys.Load(dir)
			if err != nil {
				t.Fatal(err)
			}
			w.cfg.Ring = ring // what the test verifies with; the signer has the directory
		}
		reload()
		cfg := w.cfg
		cfg.Ring, cfg.KeyDir = nil, dir
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- signer.Run(ctx, cfg) }()
		t.Cleanup(cancel)

		for round, use := range []verify.Use{verify.UseDAG, verify.UseLog, verify.UseDAG} {
			w.send(t, 6, true)
			failEnd(t, c, []kafkatest.Failure{kafkatest.Misreported, kafkatest.Refused}[round%2])
			w.send(t, 5, true)
			w.signed(t)
			next, err := keys.Prepare(dir, use, "")
			if err != nil {
				t.Fatal(err)
			}
			old, err := keys.Rotate(dir, next)
			if err != nil {
				t.Fatal(err)
			}
			reload()
			time.Sleep(3 * time.Second) // the signer looks every second
			w.send(t, 4, true)
			w.signed(t)
			// Nothing is signed with the old key any more: its end is where the logs are.
			to := map[string]int64{}
			for p := range int32(2) {
				for _, logged := range []string{topics.DAGs, topics.Coverage} {
					to[merkle.Origin("provstream", w.Topic(logged), p)] = w.logSize(t, logged, p)
				}
			}
			if _, err := keys.SetStatus(dir, old.ID, verify.StatusRetired, to); err != nil {
				t.Fatal(err)
			}
			reload()
		}
		w.send(t, 3, true)
		w.signed(t)
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		w.check(t)

		signers := map[string]int{}
		pinned, err := w.cfg.Ring.Verifier()
		if err != nil {
			t.Fatal(err)
		}
		v, seen := verify.NewVerifier(pinned), map[string]bool{}
		for p := range int32(2) {
			for _, r := range w.read(t, topics.DAGs, p) {
				d, err := v.Record(r.Value, header(r, "tlog-proof"))
				if err != nil {
					t.Fatal(err)
				}
				signers[d.KeyID]++
				if seen[d.ID] {
					t.Errorf("DAG %s is signed twice", d.ID)
				}
				seen[d.ID] = true
			}
			w.oneHeadASize(t, pinned, p)
		}
		if len(signers) != 3 {
			t.Errorf("DAGs by key: %v", signers)
		}
	})
}

// oneHeadASize reads the checkpoints of a partition, those of aborted
// transactions too.
func (w *world) oneHeadASize(t *testing.T, pinned *verify.Keys, p int32) {
	t.Helper()
	b, err := w.cluster.Bounds(t.Context(), w.Topic(topics.Checkpoints), p)
	if err != nil {
		t.Fatal(err)
	}
	roots := map[string]verify.Hash{}
	err = w.cluster.Read(t.Context(), w.Topic(topics.Checkpoints), p, b.Start, b.End, kafka.ReadUncommitted, func(recs []*kgo.Record) error {
		for _, r := range recs {
			c, err := pinned.Checkpoint(r.Value)
			if err != nil {
				return err
			}
			head := fmt.Sprintf("%s of size %d", c.Origin, c.Size)
			if root, ok := roots[head]; ok && root != c.Root {
				t.Errorf("two heads of %s differ", head)
			}
			roots[head] = c.Root
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
