package evidence

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"provstream/internal/keys"
	"provstream/internal/kindgi/kindgitest"
	"provstream/internal/merkle"
	"provstream/verify"
)

func seeded(t testing.TB, seed byte, use verify.Use, tenant string) *keys.Private {
	t.Helper()
	k, err := keys.FromSeed(bytes.Repeat([]byte{seed}, 32), use, tenant)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The signer goes on from its own committed head and from nothing else.
func TestRestoreRefuses(t *testing.T) {
	r := ring(t)
	log, _ := NewLog(origin)
	b, err := log.SignDAGs(r, dags(7, 0), 1)
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.Log.SignDAGs(r, dags(3, 50), 1)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := keys.NewRing(seeded(t, 8, verify.UseLog, ""), seeded(t, 2, verify.UseDAG, ""))
	if err != nil {
		t.Fatal(err)
	}
	cp := b.Checkpoint
	for _, c := range []struct {
		name       string
		ring       *keys.Ring
		origin     string
		note, edge []byte
		want       string
	}{
		{"another key", foreign, origin, cp.Note, cp.Frontier, "not ours"},
		{"another origin", r, "provstream/prov.dags/1", cp.Note, cp.Frontier, "is of provstream/prov.dags/0"},
		{"no frontier", r, origin, cp.Note, nil, "0 hashes, want 3"},
		{"a frontier of another size", r, origin, cp.Note, other.Checkpoint.Frontier, "want 3"},
		{"frontier hashes in another order", r, origin, cp.Note, swapHashes(cp.Frontier), "leads to root"},
		{"a malformed frontier", r, origin, cp.Note, cp.Frontier[1:], "hash list"},
		{"a changed size", r, origin, bytes.Replace(cp.Note, []byte("\n7\n"), []byte("\n8\n"), 1), cp.Frontier, "not ours"},
		{"no note", r, origin, nil, cp.Frontier, "not ours"},
	} {
		_, err := Restore(c.ring, c.origin, c.note, c.edge)
		if !errors.Is(err, ErrRestore) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "do not delete") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func swapHashes(header []byte) []byte {
	parts := strings.Split(string(header), ",")
	parts[0], parts[1] = parts[1], parts[0]
	return []byte(strings.Join(parts, ","))
}

// Nothing is signed that is not a DAG of ours, whoever wrote it; and the error
// says which record of the batch it was.
func TestSignerRefuses(t *testing.T) {
	r := ring(t)
	good := kindgitest.DAG(kindgitest.Options{Seed: 1, Turns: 1, Tools: 1})
	log, _ := NewLog(origin)
	signed, err := log.SignDAGs(r, [][]byte{good}, 1)
	if err != nil {
		t.Fatal(err)
	}
	edit := func(old, new string) []byte {
		if !bytes.Contains(good, []byte(old)) {
			t.Fatalf("no %s", old)
		}
		return bytes.Replace(good, []byte(old), []byte(new), 1)
	}
	for name, value := range map[string][]byte{
		"nothing":            nil,
		"no JSON":            []byte("{"),
		"another JSON":       []byte("{}"),
		"signed already":     signed.Records[0].Value,
		"not canonical":      edit(`"edges"`, ` "edges"`),
		"another version":    edit(`"version":"1.0.0"`, `"version":"1.1.0"`),
		"an edge to nowhere": edit(`"to":"event:1"`, `"to":"event:99"`),
		"another content":    edit(`"decision":"allow"`, `"decision":"deny"`),
		"another id":         edit(`.`, `x`),
	} {
		_, err := log.SignDAGs(r, [][]byte{good, value, good}, 1)
		var e *RecordError
		if !errors.As(err, &e) || e.Position != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := log.SignDAGs(r, nil, 1); err == nil {
		t.Error("a head without new leaves")
	}
	if _, err := log.LogCoverage(r, [][]byte{[]byte(`{"topic":"x"}`)}); err == nil {
		t.Error("a coverage record that is none")
	}
}

// Each tenant's DAGs are signed with its own key, else the deployment's; a
// tenant without either is refused.
func TestTenantKeys(t *testing.T) {
	acme, globex := kindgitest.DAG(kindgitest.Options{Seed: 1, Tenant: "acme"}), kindgitest.DAG(kindgitest.Options{Seed: 2, Tenant: "globex"})
	logKey, dep, own := seeded(t, 1, verify.UseLog, ""), seeded(t, 2, verify.UseDAG, ""), seeded(t, 3, verify.UseDAG, "globex")
	log, _ := NewLog(origin)
	both, err := keys.NewRing(logKey, dep, own)
	if err != nil {
		t.Fatal(err)
	}
	b, err := log.SignDAGs(both, [][]byte{acme, globex}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if b.Records[0].KeyID != dep.ID || b.Records[1].KeyID != own.ID {
		t.Errorf("signed by %s and %s", b.Records[0].KeyID, b.Records[1].KeyID)
	}
	alone, err := keys.NewRing(logKey, nil, own)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.SignDAGs(alone, [][]byte{acme}, 1); err == nil || !strings.Contains(err.Error(), "no DAG key for tenant") {
		t.Errorf("tenant without a key: %v", err)
	}
}

// Keys change in the middle of a log: every DAG verifies, none stands there
// twice, and the log is one.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	for _, use := range []verify.Use{verify.UseLog, verify.UseDAG} {
		if _, err := keys.Create(dir, use, ""); err != nil {
			t.Fatal(err)
		}
	}
	log, _ := NewLog(origin)
	follower, heads := verify.NewLog(origin), verify.NewHeads(origin)
	var batches []*Batch
	for i := range 6 {
		r, err := keys.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		b, err := log.SignDAGs(r, dags(3, uint64(10*i)), 1)
		if err != nil {
			t.Fatal(err)
		}
		batches = append(batches, b)
		// A restart between the batches goes on too: also with a new log key.
		if i == 2 || i == 4 {
			use := map[int]verify.Use{2: verify.UseDAG, 4: verify.UseLog}[i]
			next, err := keys.Prepare(dir, use, "")
			if err != nil {
				t.Fatal(err)
			}
			old, err := keys.Rotate(dir, next)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := keys.SetStatus(dir, old.ID, verify.StatusRetired, map[string]int64{origin: b.Log.Size()}); err != nil {
				t.Fatal(err)
			}
		}
		if r, err = keys.Load(dir); err != nil {
			t.Fatal(err)
		}
		if log, err = Restore(r, origin, b.Checkpoint.Note, b.Checkpoint.Frontier); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := keys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var public []verify.Key
	for _, e := range entries {
		public = append(public, e.Key)
	}
	pinned, err := verify.NewKeys(public...)
	if err != nil {
		t.Fatal(err)
	}
	v, signers := verify.NewVerifier(pinned), map[string]int{}
	for _, b := range batches {
		c, err := pinned.Checkpoint(b.Checkpoint.Note)
		if err != nil {
			t.Fatal(err)
		}
		if err := heads.Next(c, b.Checkpoint.Consistency, b.Checkpoint.Frontier); err != nil {
			t.Fatal(err)
		}
		for i := range b.Records {
			rec, err := v.Record(b.Records[i].Value, b.Records[i].Proof)
			if err != nil {
				t.Fatal(err)
			}
			if err := follower.Record(rec); err != nil {
				t.Fatal(err)
			}
			signers[rec.KeyID]++
		}
	}
	if len(signers) != 2 {
		t.Errorf("signed by %v", signers)
	}
}

// A batch that is signed again after an abort, whole or with more behind it,
// gives the same leaves: every head is a prefix of one tree, and two heads of
// one size are equal but for nothing.
func TestAbortedHeadsArePrefixes(t *testing.T) {
	r := ring(t)
	values := dags(12, 0)
	log, _ := NewLog(origin)
	first, err := log.SignDAGs(r, values[:5], 1)
	if err != nil {
		t.Fatal(err)
	}
	roots := map[int64]merkle.Hash{}
	see := func(b *Batch) {
		t.Helper()
		if before, ok := roots[b.Checkpoint.Size]; ok && before != b.Checkpoint.Root {
			t.Fatalf("two heads of size %d differ", b.Checkpoint.Size)
		}
		roots[b.Checkpoint.Size] = b.Checkpoint.Root
	}
	see(first)
	for signedAt, upTo := range []int{6, 8, 12, 7, 8, 12} { // all aborted but the last
		b, err := first.Log.SignDAGs(r, values[5:upTo], int64(signedAt))
		if err != nil {
			t.Fatal(err)
		}
		see(b)
	}
	whole, err := log.SignDAGs(r, values, 99)
	if err != nil {
		t.Fatal(err)
	}
	see(whole)
}
