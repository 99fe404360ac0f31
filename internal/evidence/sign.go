package evidence

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"time"

	"provstream/internal/jcs"
	"provstream/internal/keys"
	"provstream/internal/kindgi"
	"provstream/internal/merkle"
	"provstream/verify"
)

// signer signs single DAGs; it keeps its storage between them.
type signer struct {
	reader  kindgi.Reader
	message []byte
}

// timeLayout is RFC 3339 with milliseconds, as every instant is printed.
const timeLayout = "2006-01-02T15:04:05.000Z"

// sign parses an unsigned DAG and returns it signed. The input is canonical,
// so the signature is spliced in; nothing is encoded again.
func (s *signer) sign(ring *keys.Ring, value []byte, signedAt int64) (Record, merkle.Hash, error) {
	var none merkle.Hash
	r := &s.reader
	if err := r.Read(value); err != nil {
		return Record{}, none, err
	}
	if r.Signed {
		return Record{}, none, fmt.Errorf("DAG %s is signed already", r.Text(r.ID))
	}
	if err := checkID(r); err != nil {
		return Record{}, none, err
	}
	rec := Record{
		ID: r.Text(r.ID), RunID: r.Text(r.RunID), TenantID: r.Text(r.TenantID),
		CreatedAt: r.Text(r.CreatedAt), Nodes: len(r.Nodes), Edges: len(r.Edges),
	}
	key, err := ring.DAG(rec.TenantID)
	if err != nil {
		return Record{}, none, fmt.Errorf("DAG %s: %w", rec.ID, err)
	}
	if key.Tenant != "" && key.Tenant != rec.TenantID {
		return Record{}, none, fmt.Errorf("DAG %s: key %s belongs to another tenant", rec.ID, key.ID)
	}
	rec.KeyID = key.ID
	s.message = r.AppendSigningBytes(s.message[:0])
	signature := ed25519.Sign(key.Signer, s.message)

	head, tail := r.SplitForSignature()
	out := make([]byte, 0, len(value)+320)
	out = append(out, head...)
	out = append(out, `,"signature":{"algorithm":"ed25519","keyId":`...)
	out = jcs.AppendString(out, key.ID)
	out = append(out, `,"signedAt":"`...)
	out = time.UnixMilli(signedAt).UTC().AppendFormat(out, timeLayout)
	out = append(out, `","value":"`...)
	out = base64.StdEncoding.AppendEncode(out, signature)
	out = append(out, `"}`...)
	rec.Value = append(out, tail...)
	return rec, merkle.LeafHash(value), nil
}

// checkID recomputes the hash that the id of a DAG ends in.
func checkID(r *kindgi.Reader) error {
	nodes, edges := r.GraphParts()
	d := sha256.New()
	d.Write([]byte{'['})
	d.Write(nodes)
	d.Write([]byte{','})
	d.Write(edges)
	d.Write([]byte{']'})
	var sum [sha256.Size]byte
	d.Sum(sum[:0])
	id := r.Bytes(r.ID)
	if want := hex.EncodeToString(sum[:16]); string(id[len(id)-32:]) != want {
		return fmt.Errorf("DAG %s: its nodes and edges hash to %s: the id belongs to another content", r.Text(r.ID), want)
	}
	return nil
}

// check goes over a finished batch with the code that consumers run: the head,
// its consistency with the one before, and of the records the first and the
// last, which a small batch has no more than. A wrong key, or a fault in how
// records and proofs are made, shows in any of them; to verify each would cost
// more than to sign it.
func (b *Batch) check(ring *keys.Ring, before *Log) error {
	pinned, err := ring.Verifier()
	if err != nil {
		return fmt.Errorf("log %s: %w", before.origin, err)
	}
	fail := func(err error) error {
		return fmt.Errorf("log %s: what was signed does not verify, nothing is released: %w", before.origin, err)
	}
	c, err := pinned.Checkpoint(b.Checkpoint.Note)
	if err != nil {
		return fail(err)
	}
	if c.Origin != before.origin || c.Size != b.Log.Size() || c.Root != b.Log.Root() {
		return fail(fmt.Errorf("the head of size %d is not that of the log", c.Size))
	}
	if before.Size() > 0 {
		proof, err := verify.ParseHashes(b.Checkpoint.Consistency)
		if err != nil {
			return fail(err)
		}
		old := verify.Checkpoint{Origin: before.origin, Size: before.Size(), Root: before.Root()}
		if err := verify.Consistency(old, c, proof); err != nil {
			return fail(err)
		}
	}
	v := verify.NewVerifier(pinned)
	ends := []int{0, len(b.Records) - 1}
	for _, i := range ends[:min(len(ends), len(b.Records))] {
		got, err := v.Record(b.Records[i].Value, b.Records[i].Proof)
		if err != nil {
			return fail(err)
		}
		if got.ID != b.Records[i].ID || got.TenantID != b.Records[i].TenantID || got.Proof.Index != b.Records[i].Index {
			return fail(fmt.Errorf("DAG %s verifies as %s", b.Records[i].ID, got.ID))
		}
	}
	return nil
}
