package merkle

import (
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Extension is a log together with a batch of new leaves: what a head over
// the batch needs, and the proofs that go with it. It holds O(batch) hashes.
type Extension struct {
	from, to Frontier
	levels   []level
}

// level holds the complete nodes of one height from index first on: that of
// the old frontier, if there is one, and those that the batch completes.
type level struct {
	first int64
	nodes []Hash
}

// Extend appends leaves to the log with the frontier f.
func Extend(f Frontier, leaves []Hash) *Extension {
	x := &Extension{from: f}
	size := f.size + int64(len(leaves))
	for l := 0; size>>l > 0; l++ {
		x.levels = append(x.levels, level{
			first: f.size >> l,
			nodes: make([]Hash, 0, len(leaves)>>l+2),
		})
	}
	next := len(f.hashes) - 1 // smallest subtree first
	for l := range x.levels {
		if f.size>>l&1 == 1 {
			x.levels[l].first--
			x.levels[l].nodes = append(x.levels[l].nodes, f.hashes[next])
			next--
		}
	}
	tail := NewTail(f)
	for _, leaf := range leaves {
		x.add(leaf)
		tail.Push(leaf)
	}
	x.to = tail.Frontier()
	return x
}

func (x *Extension) add(h Hash) {
	for l := range x.levels {
		lv := &x.levels[l]
		lv.nodes = append(lv.nodes, h)
		n := lv.first + int64(len(lv.nodes)) - 1
		if n&1 == 0 {
			return // a left child; its parent waits for the sibling
		}
		h = tlog.NodeHash(lv.nodes[len(lv.nodes)-2], h)
	}
}

// From and To are the log before and after the batch.
func (x *Extension) From() Frontier { return x.from }

// To is the log with the batch.
func (x *Extension) To() Frontier { return x.to }

// ReadHashes serves the proofs of package tlog. All they ask for is a
// complete subtree that either touches the batch or stands on the old right
// edge: for a leaf at or behind the old size, a left sibling of its path that
// lies wholly before the old size is the subtree of a 1 bit of that size.
func (x *Extension) ReadHashes(indexes []int64) ([]Hash, error) {
	hashes := make([]Hash, len(indexes))
	for i, index := range indexes {
		l, n := tlog.SplitStoredHashIndex(index)
		if l >= len(x.levels) || n < x.levels[l].first || n >= x.levels[l].first+int64(len(x.levels[l].nodes)) {
			return nil, fmt.Errorf("merkle: node %d of level %d is neither on the right edge of %d leaves nor in the batch", n, l, x.from.size)
		}
		hashes[i] = x.levels[l].nodes[n-x.levels[l].first]
	}
	return hashes, nil
}

// Inclusion proves leaf index, which must be one of the batch, in the log
// with the batch (RFC 9162 §2.1.3).
func (x *Extension) Inclusion(index int64) ([]Hash, error) {
	if index < x.from.size || index >= x.to.size {
		return nil, fmt.Errorf("inclusion proof of leaf %d: not in the batch [%d, %d)", index, x.from.size, x.to.size)
	}
	return tlog.ProveRecord(x.to.size, index, x)
}

// Consistency proves that the log with the batch continues the log before it
// (RFC 9162 §2.1.4). From an empty log, and to a log without new leaves,
// there is nothing to prove: the proof is empty.
func (x *Extension) Consistency() ([]Hash, error) {
	if x.from.size == 0 || x.from.size == x.to.size {
		return nil, nil
	}
	return tlog.ProveTree(x.to.size, x.from.size, x)
}
