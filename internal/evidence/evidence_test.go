package evidence

import (
	"bytes"
	"crypto/ed25519"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"provstream/internal/keys"
	"provstream/internal/kindgi/kindgitest"
	"provstream/internal/merkle"
	"provstream/verify"
)

func ring(t testing.TB) *keys.Ring {
	t.Helper()
	log, err := keys.FromSeed(bytes.Repeat([]byte{1}, 32), verify.UseLog, "")
	if err != nil {
		t.Fatal(err)
	}
	dag, err := keys.FromSeed(bytes.Repeat([]byte{2}, 32), verify.UseDAG, "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := keys.NewRing(log, dag)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func dags(n int, first uint64) [][]byte {
	var out [][]byte
	for i := range n {
		out = append(out, kindgitest.DAG(kindgitest.Options{Seed: first + uint64(i), Turns: 1 + i%3, Tools: i % 3}))
	}
	return out
}

const origin = "provstream/prov.dags/0"

// A log grows batch by batch, is restored in between from what was published,
// and gives the same bytes as one that never stopped.
func TestLogGrowsAndRestores(t *testing.T) {
	r := ring(t)
	log, err := NewLog(origin)
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := r.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	follower, heads := verify.NewLog(origin), verify.NewHeads(origin)
	v := verify.NewVerifier(pinned)
	for batch, n := range []int{1, 2, 3, 1, 7, 16, 1} {
		values := dags(n, uint64(100*batch))
		b, err := log.SignDAGs(r, values, 1764000000000)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pinned.Checkpoint(b.Checkpoint.Note)
		if err != nil {
			t.Fatal(err)
		}
		if err := heads.Next(c, b.Checkpoint.Consistency, b.Checkpoint.Frontier); err != nil {
			t.Fatal(err)
		}
		if err := follower.Head(c); err != nil {
			t.Fatal(err)
		}
		for i, rec := range b.Records {
			got, err := v.Record(rec.Value, rec.Proof)
			if err != nil {
				t.Fatalf("batch %d record %d: %v", batch, i, err)
			}
			if err := follower.Record(got); err != nil {
				t.Fatalf("batch %d record %d: %v", batch, i, err)
			}
		}
		again, err := Restore(r, origin, b.Checkpoint.Note, b.Checkpoint.Frontier)
		if err != nil {
			t.Fatal(err)
		}
		if again.Size() != b.Log.Size() || again.Root() != b.Log.Root() {
			t.Fatal("restored log differs")
		}
		log = again
	}
	if err := follower.Close(); err != nil {
		t.Fatal(err)
	}
}

// The notes open with the library of the field and the key in its own form.
func TestCheckpointOpensWithNote(t *testing.T) {
	r := ring(t)
	log, _ := NewLog(origin)
	b, err := log.SignDAGs(r, dags(3, 0), 1)
	if err != nil {
		t.Fatal(err)
	}
	vkey, err := merkle.VerifierKey(origin, r.Log().Signer.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	nv, err := note.NewVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := note.Open(b.Checkpoint.Note, note.VerifierList(nv)); err != nil {
		t.Fatal(err)
	}
}
