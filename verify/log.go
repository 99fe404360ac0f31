package verify

import (
	"fmt"
	"slices"

	"provstream/internal/merkle"
)

// Log follows one log from its first leaf on and holds every head that it is
// given against the leaves: the signed heads of prov.checkpoints, those in the
// proofs of the records, and one that was kept from an earlier visit. Its
// memory does not grow with the number of leaves. It is not safe for
// concurrent use.
type Log struct {
	origin string
	tail   *merkle.Tail
	// ahead are the heads that the leaves have not reached, by size; compared
	// is the newest one that they have.
	ahead    []Checkpoint
	compared Checkpoint
}

// NewLog follows a log from its first leaf.
func NewLog(origin string) *Log {
	return &Log{origin: origin, tail: merkle.NewTail(merkle.Frontier{})}
}

// Origin is the log's name.
func (l *Log) Origin() string { return l.origin }

// Size is the number of leaves seen.
func (l *Log) Size() int64 { return l.tail.Size() }

// Root is the tree hash of the leaves seen.
func (l *Log) Root() Hash { return l.tail.Root() }

// Newest returns the largest head that was given.
func (l *Log) Newest() Checkpoint {
	if n := len(l.ahead); n > 0 {
		return l.ahead[n-1]
	}
	return l.compared
}

// Head takes a head. Heads may come in any order, but before the first leaf
// that they do not cover.
func (l *Log) Head(c Checkpoint) error {
	if c.Origin != l.origin {
		return l.fail(WrongOrigin, c.Size, "a head of %s stands among those of %s", c.Origin, l.origin)
	}
	if c.Size == l.tail.Size() {
		return l.compare(c)
	}
	if c.Size < l.tail.Size() {
		return l.fail(WrongPlace, c.Size, "%s: a head of size %d comes after %d leaves and cannot be held against them", l.origin, c.Size, l.tail.Size())
	}
	i, found := slices.BinarySearchFunc(l.ahead, c.Size, func(h Checkpoint, size int64) int { return int(h.Size - size) })
	if !found {
		l.ahead = slices.Insert(l.ahead, i, c)
		return nil
	}
	return Consistency(l.ahead[i], c, nil)
}

// Leaf takes the next leaf. It fails when the leaves so far do not hash to the
// root of a head of that size.
func (l *Log) Leaf(h Hash) error {
	l.tail.Push(h)
	for len(l.ahead) > 0 && l.ahead[0].Size == l.tail.Size() {
		c := l.ahead[0]
		l.ahead = slices.Delete(l.ahead, 0, 1)
		if err := l.compare(c); err != nil {
			return err
		}
	}
	return nil
}

// Record takes the next DAG of the log with its proof: the proof must be of
// this log and this place, and its head is held against the leaves too.
func (l *Log) Record(r Record) error {
	c := r.Proof.Checkpoint
	if c.Origin != l.origin {
		return l.fail(WrongOrigin, r.Proof.Index, "DAG %s is proven in the log %s and stands in %s", r.ID, c.Origin, l.origin)
	}
	if r.Proof.Index != l.Size() {
		what := "a record was repeated, inserted or moved"
		if r.Proof.Index > l.Size() {
			what = fmt.Sprintf("%d records before it were dropped or moved", r.Proof.Index-l.Size())
		}
		return l.fail(WrongPlace, l.Size(), "DAG %s is leaf %d of %s and stands at place %d: %s", r.ID, r.Proof.Index, l.origin, l.Size(), what)
	}
	if err := l.Head(c); err != nil {
		return err
	}
	return l.Leaf(r.Leaf)
}

func (l *Log) compare(c Checkpoint) error {
	if root := l.tail.Root(); root != c.Root {
		e := l.fail(Forked, c.Size, "%s: its first %d records hash to another root than the head of that size, which key %s has signed: records were changed, or the log was forked", l.origin, c.Size, c.KeyID)
		e.KeyID, e.Got, e.Want = c.KeyID, root.String(), c.Root.String()
		return e
	}
	l.compared = c
	return nil
}

// Close tells whether the leaves reach the largest head that was given.
func (l *Log) Close() error {
	if n := l.Newest(); n.Size > l.tail.Size() {
		e := l.fail(Truncated, l.tail.Size(), "%s: a head that key %s has signed covers %d records, there are %d: the tail of the log was cut off", l.origin, n.KeyID, n.Size, l.tail.Size())
		e.KeyID = n.KeyID
		return e
	}
	return nil
}

func (l *Log) fail(kind Kind, index int64, format string, args ...any) *Error {
	e := fail(kind, fmt.Sprintf(format, args...))
	e.Origin, e.Index = l.origin, index
	return e
}

// Heads follows the heads of one log, the records of prov.checkpoints with its
// origin, from the first one on: each must continue the one before it.
type Heads struct {
	origin string
	last   Checkpoint
	n      int64
}

// NewHeads follows the heads of a log.
func NewHeads(origin string) *Heads { return &Heads{origin: origin} }

// Last returns the newest head.
func (h *Heads) Last() Checkpoint { return h.last }

// Count is the number of heads seen.
func (h *Heads) Count() int64 { return h.n }

// Next takes the next head with its headers tlog-consistency (nil when the
// record has none) and tlog-frontier.
func (h *Heads) Next(c Checkpoint, consistency, frontier []byte) error {
	bad := func(kind Kind, format string, args ...any) error {
		e := fail(kind, fmt.Sprintf(format, args...))
		e.Origin, e.Index, e.KeyID = h.origin, c.Size, c.KeyID
		return e
	}
	if c.Origin != h.origin {
		return bad(WrongOrigin, "a head of %s stands among those of %s", c.Origin, h.origin)
	}
	hashes, err := ParseHashes(frontier)
	if err != nil {
		return about(err, fmt.Sprintf("%s, head of size %d, header tlog-frontier", h.origin, c.Size))
	}
	f, err := merkle.NewFrontier(c.Size, hashes)
	if err != nil || f.Root() != c.Root {
		return bad(BadProof, "%s, head of size %d: the header tlog-frontier does not lead to its root", h.origin, c.Size)
	}
	proof, err := ParseHashes(consistency)
	if err != nil {
		return about(err, fmt.Sprintf("%s, head of size %d, header tlog-consistency", h.origin, c.Size))
	}
	switch {
	case h.n == 0 && consistency != nil:
		return bad(WrongPlace, "%s: the first head (size %d) has a proof that it continues another: heads before it were dropped or moved", h.origin, c.Size)
	case h.n > 0 && c.Size == h.last.Size && c.Root == h.last.Root:
		return bad(WrongPlace, "%s: the head of size %d stands there twice", h.origin, c.Size)
	case h.n > 0 && c.Size > h.last.Size && consistency == nil:
		return bad(BadProof, "%s: the head of size %d has no tlog-consistency header", h.origin, c.Size)
	case h.n > 0 && c.Size > h.last.Size:
		if err := Consistency(h.last, c, proof); err != nil {
			return err
		}
	case h.n > 0:
		if err := Consistency(h.last, c, nil); err != nil {
			return err
		}
	}
	h.last = c
	h.n++
	return nil
}
