package verify

import (
	"fmt"

	"provstream/internal/merkle"
)

// Log follows one log from its first leaf on (or from a head whose frontier is
// known) and holds every head against the leaves. Its memory does not grow
// with the number of leaves.
type Log struct {
	origin string
	tail   *merkle.Tail
	last   Checkpoint // newest head seen
	ahead  []Checkpoint
	heads  int64
}

// NewLog follows a log from its first leaf.
func NewLog(origin string) *Log {
	return &Log{origin: origin, tail: merkle.NewTail(merkle.Frontier{})}
}

// Size is the number of leaves seen.
func (l *Log) Size() int64 { return l.tail.Size() }

// Root is the tree hash of the leaves seen.
func (l *Log) Root() Hash { return l.tail.Root() }

// Last returns the newest head seen; its Size is 0 before the first.
func (l *Log) Last() Checkpoint { return l.last }

// Heads is the number of heads seen.
func (l *Log) Heads() int64 { return l.heads }

// Leaf takes the next leaf and compares the root with the heads of the new
// size, if there are any.
func (l *Log) Leaf(h Hash) error {
	l.tail.Push(h)
	for len(l.ahead) > 0 && l.ahead[0].Size == l.tail.Size() {
		c := l.ahead[0]
		l.ahead = l.ahead[1:]
		if err := l.compare(c); err != nil {
			return err
		}
	}
	return nil
}

// Record takes the next DAG of the log with its proof: index and origin must
// be those of the place, and the head of the proof is one of the log's.
func (l *Log) Record(r Record) error {
	if r.Proof.Checkpoint.Origin != l.origin {
		e := fail(WrongOrigin, fmt.Sprintf("DAG %s is proven in the log %s and stands in %s", r.ID, r.Proof.Checkpoint.Origin, l.origin))
		e.Origin, e.Index = l.origin, r.Proof.Index
		return e
	}
	if r.Proof.Index != l.Size() {
		e := fail(WrongPlace, fmt.Sprintf("DAG %s is leaf %d of %s and stands at place %d: a record was dropped, inserted, repeated or moved", r.ID, r.Proof.Index, l.origin, l.Size()))
		e.Origin, e.Index = l.origin, l.Size()
		return e
	}
	if c := r.Proof.Checkpoint; c != l.last {
		// Heads of proofs come with their first record: between the last head and
		// this one there is nothing unproven.
		if err := l.head(c); err != nil {
			return err
		}
	}
	return l.Leaf(r.Leaf)
}

// Head takes the next head, in the order in which the heads were signed, with
// the proof from the one before it (nil: the leaves will show it). It must
// come before or together with the leaf that completes it.
func (l *Log) Head(c Checkpoint, consistency []Hash) error {
	if c.Origin != l.origin {
		e := fail(WrongOrigin, fmt.Sprintf("a head of %s stands among those of %s", c.Origin, l.origin))
		e.Origin, e.Index = l.origin, c.Size
		return e
	}
	if l.heads > 0 || len(consistency) > 0 {
		earlier := l.last
		if l.heads == 0 {
			earlier = Checkpoint{Origin: l.origin}
		}
		if consistency != nil || c.Size <= earlier.Size {
			if err := Consistency(earlier, c, consistency); err != nil {
				return err
			}
		}
	}
	return l.head(c)
}

func (l *Log) head(c Checkpoint) error {
	switch {
	case c == l.last:
		return nil
	case c.Size < l.last.Size || c.Size == l.last.Size && c.Root != l.last.Root:
		return Consistency(l.last, c, nil)
	case c.Size < l.tail.Size():
		e := fail(Truncated, fmt.Sprintf("%s: a head of size %d comes after %d leaves", l.origin, c.Size, l.tail.Size()))
		e.Origin, e.Index = l.origin, c.Size
		return e
	}
	l.heads++
	l.last = c
	if c.Size == l.tail.Size() {
		return l.compare(c)
	}
	l.ahead = append(l.ahead, c)
	return nil
}

func (l *Log) compare(c Checkpoint) error {
	if root := l.tail.Root(); root != c.Root {
		e := fail(Forked, fmt.Sprintf("%s: the first %d records hash to another root than the signed head of that size: the records were changed, or the log was forked", l.origin, c.Size))
		e.Origin, e.Index, e.KeyID, e.Got, e.Want = l.origin, c.Size, c.KeyID, root.String(), c.Root.String()
		return e
	}
	return nil
}

// Close tells whether the leaves reach the newest head.
func (l *Log) Close() error {
	if l.last.Size > l.tail.Size() {
		e := fail(Truncated, fmt.Sprintf("%s: a signed head covers %d records, there are %d: the tail was cut off", l.origin, l.last.Size, l.tail.Size()))
		e.Origin, e.Index, e.KeyID = l.origin, l.tail.Size(), l.last.KeyID
		return e
	}
	return nil
}
