package verify

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"provstream/internal/kindgi"
	"provstream/internal/merkle"
)

// Hash is a SHA-256 digest of a log. It prints as base64, like the hashes of
// a checkpoint.
type Hash = tlog.Hash

// DAG is what a signed DAG is found to be.
type DAG struct {
	ID, RunID, TenantID string
	CreatedAt           string // RFC 3339, as written
	KeyID               string // of the key that has signed it
	SignedAt            string // the signer's word: no signature covers it
	Nodes, Edges        int
	// Leaf is the DAG's leaf hash in the log: of its text without signature.
	Leaf Hash
}

// Record is a signed DAG with its proven place in a log.
type Record struct {
	DAG
	Proof Inclusion
}

// Verifier checks records. It keeps storage between calls and remembers the
// checkpoints that it has opened; it is not safe for concurrent use.
type Verifier struct {
	// CheckID also recomputes the hash in the DAG's id from nodes and edges. The
	// signature covers both, so this finds faults of the signer only.
	CheckID bool
	// Foreign takes DAGs of other makers too: any Kindgi DAG 1.0.0 in RFC 8785 form
	// that is signed the same way, whatever the order and ids of its nodes.
	Foreign bool

	keys    *Keys
	reader  kindgi.Reader
	message []byte
	opened  map[string]Checkpoint
}

// NewVerifier makes a Verifier that trusts these keys alone.
func NewVerifier(keys *Keys) *Verifier {
	return &Verifier{keys: keys, opened: make(map[string]Checkpoint)}
}

// HasLogKey tells whether proofs can be checked: whether a log key is pinned.
func (v *Verifier) HasLogKey() bool { return len(v.keys.logs) > 0 }

// DAG checks one signed DAG, the value of a record of prov.dags. Without a
// proof nobody knows when a DAG was signed: one that a compromised key has
// signed is refused, use [Verifier.Record].
func (v *Verifier) DAG(value []byte) (DAG, error) {
	d, keys, err := v.dag(value)
	if err != nil {
		return d, err
	}
	for i := range keys {
		if keys[i].Status == StatusCompromised {
			e := fail(KeyExposed, fmt.Sprintf("DAG %s is signed by key %s, which is compromised: only a log proof can show that it is older", d.ID, d.KeyID))
			e.KeyID = d.KeyID
			return d, e
		}
	}
	return d, nil
}

// Record checks one record of prov.dags: its value and its tlog-proof header.
func (v *Verifier) Record(value, proof []byte) (Record, error) {
	var r Record
	var keys []Key
	var err error
	if r.DAG, keys, err = v.dag(value); err != nil {
		return r, err
	}
	if r.Proof, err = v.Inclusion(r.Leaf, proof); err != nil {
		return r, about(err, "DAG "+r.ID)
	}
	for i := range keys {
		if err := keys[i].check(r.Proof.Checkpoint.Origin, r.Proof.Index); err != nil {
			return r, about(err, "DAG "+r.ID)
		}
	}
	return r, nil
}

// about puts the subject before the detail of an error.
func about(err error, subject string) error {
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	e.Detail = subject + ": " + e.Detail
	return e
}

// dag checks everything but when the key was valid, and returns the pinned
// keys that apply.
func (v *Verifier) dag(value []byte) (DAG, []Key, error) {
	r := &v.reader
	r.Foreign = v.Foreign
	var graph *Error
	if err := r.Read(value); err != nil {
		var e *kindgi.Error
		if !errors.As(err, &e) {
			return DAG{}, nil, err
		}
		if e.Class != kindgi.ClassGraph {
			return DAG{}, nil, fromKindgi(e)
		}
		// The signature comes first: a graph that somebody has broken on the
		// way is told as what it is, a changed document.
		graph = fromKindgi(e)
	}
	if !r.Signed {
		return DAG{}, nil, fail(NotSigned, fmt.Sprintf("DAG %s has no signature", r.Text(r.ID)))
	}
	d := DAG{
		ID: r.Text(r.ID), RunID: r.Text(r.RunID), TenantID: r.Text(r.TenantID), CreatedAt: r.Text(r.CreatedAt),
		KeyID: r.Text(r.KeyID), SignedAt: r.Text(r.SignedAt), Nodes: len(r.Nodes), Edges: len(r.Edges),
	}
	keys, err := v.keys.forDAG(d.KeyID, d.TenantID)
	if err != nil {
		return d, nil, about(err, "DAG "+d.ID)
	}
	if err := v.signature(&d, keys[0].Public); err != nil {
		return d, nil, err
	}
	if graph != nil {
		graph.KeyID = d.KeyID
		return d, nil, about(graph, "DAG "+d.ID)
	}
	if v.CheckID && !v.Foreign {
		if err := v.id(&d); err != nil {
			return d, nil, err
		}
	}
	head, tail := r.UnsignedParts()
	d.Leaf = merkle.LeafHash(head, tail)
	return d, keys, nil
}

var strictBase64 = base64.StdEncoding.Strict()

func (v *Verifier) signature(d *DAG, public ed25519.PublicKey) error {
	r := &v.reader
	text := r.Bytes(r.Signature)
	var signature [ed25519.SignatureSize + 2]byte
	bad := func(detail string) error {
		e := fail(BadSignature, "DAG "+d.ID+": "+detail)
		e.Path, e.KeyID = "/signature/value", d.KeyID
		return e
	}
	if len(text) != 88 {
		return bad(fmt.Sprintf("the signature is %d characters, base64 of 64 bytes has 88", len(text)))
	}
	if n, err := strictBase64.Decode(signature[:], text); err != nil || n != ed25519.SignatureSize {
		return bad("the signature is no canonical base64 of 64 bytes")
	}
	v.message = r.AppendSigningBytes(v.message[:0])
	if !ed25519.Verify(public, v.message, signature[:ed25519.SignatureSize]) {
		return bad("the signature is not that of key " + d.KeyID + " over this content: it was changed after signing, or another key has signed it")
	}
	return nil
}

func (v *Verifier) id(d *DAG) error {
	nodes, edges := v.reader.GraphParts()
	h := sha256.New()
	for _, p := range [][]byte{{'['}, nodes, {','}, edges, {']'}} {
		h.Write(p)
	}
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	got, want := d.ID[len(d.ID)-32:], hex.EncodeToString(sum[:16])
	if got == want {
		return nil
	}
	e := fail(BadID, "DAG "+d.ID+": the id is not made of these nodes and edges")
	e.Path, e.KeyID, e.Got, e.Want = "/id", d.KeyID, got, want
	return e
}

// forDAG returns the pinned keys with that id that are bound to the tenant or
// to none.
func (s *Keys) forDAG(id, tenant string) ([]Key, error) {
	all := s.byID[id]
	if len(all) == 0 {
		e := fail(UnknownKey, fmt.Sprintf("signed by key %s, which is not pinned", id))
		e.KeyID, e.Path = id, "/signature/keyId"
		return nil, e
	}
	if len(all) == 1 && (all[0].Tenant == "" || all[0].Tenant == tenant) {
		return all, nil
	}
	var fit []Key
	for _, k := range all {
		if k.Tenant == "" || k.Tenant == tenant {
			fit = append(fit, k)
		}
	}
	if len(fit) == 0 {
		e := fail(WrongTenant, fmt.Sprintf("tenant %q, signed by key %s, which is bound to tenant %q", tenant, id, all[0].Tenant))
		e.KeyID, e.Path = id, "/tenantId"
		return nil, e
	}
	return fit, nil
}

// check tells whether the key may have signed that index of that log.
func (k *Key) check(origin string, index int64) error {
	if k.covers(origin, index) {
		return nil
	}
	kind, what := KeyRetired, "was not valid"
	if k.Status == StatusCompromised {
		kind, what = KeyExposed, "is compromised and not trusted"
	}
	e := fail(kind, fmt.Sprintf("key %s %s at index %d of %s", k.ID, what, index, origin))
	e.KeyID, e.Origin, e.Index = k.ID, origin, index
	return e
}
