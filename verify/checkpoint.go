package verify

import (
	"crypto/ed25519"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"provstream/internal/merkle"
)

// Checkpoint is a head of a log that a pinned log key has signed.
type Checkpoint struct {
	Origin string // <deployment>/<topic>/<partition>
	Size   int64  // number of leaves
	Root   Hash
	KeyID  string
}

// Checkpoint opens a signed head: the value of a record of prov.checkpoints.
func (s *Keys) Checkpoint(note []byte) (Checkpoint, error) {
	publics := make([]ed25519.PublicKey, len(s.logs))
	for i := range s.logs {
		publics[i] = s.logs[i].Public
	}
	if len(publics) == 0 {
		return Checkpoint{}, fail(UnknownKey, "checkpoint: no log key is pinned")
	}
	c, by, err := merkle.OpenCheckpoint(note, publics)
	if err != nil {
		kind := BadCheckpoint
		if errors.Is(err, merkle.ErrUnknownKey) {
			kind = UnknownKey
		}
		e := fail(kind, err.Error())
		e.Err, e.Origin = err, c.Origin
		return Checkpoint{}, e
	}
	for i := range s.logs {
		if s.logs[i].ID != s.logs[by].ID {
			continue
		}
		if err := s.logs[i].check(c.Origin, max(c.Size-1, 0)); err != nil {
			return Checkpoint{}, about(err, fmt.Sprintf("checkpoint of size %d", c.Size))
		}
	}
	return Checkpoint{Origin: c.Origin, Size: c.Size, Root: c.Root, KeyID: s.logs[by].ID}, nil
}

// Inclusion is a proven place in a log.
type Inclusion struct {
	Index      int64
	Checkpoint Checkpoint
}

// maxOpened bounds what a Verifier remembers of checkpoints.
const maxOpened = 256

// checkpoint is Keys.Checkpoint, remembered: all DAGs of a batch carry the
// same head.
func (v *Verifier) checkpoint(note []byte) (Checkpoint, error) {
	if c, ok := v.opened[string(note)]; ok {
		return c, nil
	}
	c, err := v.keys.Checkpoint(note)
	if err != nil {
		return c, err
	}
	if len(v.opened) >= maxOpened {
		clear(v.opened)
	}
	v.opened[string(note)] = c
	return c, nil
}

// Inclusion checks a tlog-proof for a leaf: the head in it must be signed by a
// pinned log key, and the proof must lead from the leaf to the head's root.
func (v *Verifier) Inclusion(leaf Hash, proof []byte) (Inclusion, error) {
	if len(proof) == 0 {
		return Inclusion{}, fail(BadProof, "no tlog-proof")
	}
	p, err := merkle.ParseProof(proof)
	if err != nil {
		e := fail(BadProof, err.Error())
		e.Err = err
		return Inclusion{}, e
	}
	c, err := v.checkpoint(p.Checkpoint)
	if err != nil {
		return Inclusion{}, err
	}
	in := Inclusion{Index: p.Index, Checkpoint: c}
	if p.Index >= c.Size {
		e := fail(NotIncluded, fmt.Sprintf("index %d is not in a log of size %d", p.Index, c.Size))
		e.Origin, e.Index, e.KeyID = c.Origin, p.Index, c.KeyID
		return in, e
	}
	if err := tlog.CheckRecord(p.Hashes, c.Size, c.Root, p.Index, leaf); err != nil {
		e := fail(NotIncluded, fmt.Sprintf("leaf %s is not leaf %d of %s at size %d: the proof does not lead to root %s", leaf, p.Index, c.Origin, c.Size, c.Root))
		e.Origin, e.Index, e.KeyID, e.Err = c.Origin, p.Index, c.KeyID, err
		return in, e
	}
	return in, nil
}

// ParseHashes reads the headers tlog-consistency and tlog-frontier: standard
// base64 of 32 bytes each, comma-joined.
func ParseHashes(header []byte) ([]Hash, error) {
	h, err := merkle.ParseHashes(header)
	if err != nil {
		e := fail(BadProof, err.Error())
		e.Err = err
		return nil, e
	}
	return h, nil
}

// Consistency proves that head later continues head earlier: the same leaves
// up to earlier's size. The proof is that of the tlog-consistency header when
// earlier is the head right before later.
func Consistency(earlier, later Checkpoint, proof []Hash) error {
	bad := func(kind Kind, format string, args ...any) *Error {
		e := fail(kind, fmt.Sprintf(format, args...))
		e.Origin, e.Index, e.KeyID = later.Origin, later.Size, later.KeyID
		return e
	}
	switch {
	case earlier.Origin != later.Origin:
		return bad(WrongOrigin, "a head of %s is compared with one of %s", later.Origin, earlier.Origin)
	case later.Size < earlier.Size:
		return bad(Truncated, "%s: a head of size %d comes after one of size %d: the log was cut or rolled back", later.Origin, later.Size, earlier.Size)
	case later.Size == earlier.Size && later.Root != earlier.Root:
		e := bad(Forked, "%s: two heads of size %d with different roots, signed by keys %s and %s: the log was forked; keep both, they prove it",
			later.Origin, later.Size, earlier.KeyID, later.KeyID)
		e.Got, e.Want = later.Root.String(), earlier.Root.String()
		return e
	case later.Size == earlier.Size || earlier.Size == 0:
		if len(proof) > 0 {
			return bad(BadProof, "%s: a consistency proof of %d hashes where there is nothing to prove", later.Origin, len(proof))
		}
		return nil
	}
	if err := tlog.CheckTree(proof, later.Size, later.Root, earlier.Size, earlier.Root); err != nil {
		e := bad(NotConsistent, "%s: the head of size %d (root %s) is not shown to continue that of size %d (root %s): history was rewritten, a head between them was dropped, or the proof was changed",
			later.Origin, later.Size, later.Root, earlier.Size, earlier.Root)
		e.Err = err
		return e
	}
	return nil
}
