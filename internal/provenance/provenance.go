// Package provenance answers, for the records of one segment, where each
// provenance id was minted, how deep its lineage is, and what a set of steps
// saw: the ACS ProvenanceSummary as a fold.
//
// A carrier of an id is a counted step, or a decision with an intent
// extension, that has a Provenance object of that id. The mint of an id is its
// first unskewed carrier in run order, else its first carrier. An id that an
// earlier segment of the run minted keeps the depth it had there and has its
// mint there (rules.md §5, §7).
//
// The package is pure: no Kafka, clock, logger or goroutine.
package provenance

import (
	"provstream/internal/segment"
)

// Mint is where an id comes from.
type Mint struct {
	// Record is the minting record of the segment; segment.NoRef when the id
	// was minted in an earlier segment or is carried nowhere.
	Record segment.Ref
	// Object is the mint's first object of the id, an index for Segment.ProvAt.
	Object int32
	// Remembered is true when an earlier segment minted the id.
	Remembered bool
	// Retrieval is set with Remembered: the mint was a retrieval or memory-read.
	Retrieval bool
}

// Index holds the mints and depths of one segment's ids, as far as the passes
// over its order went (see segment.Order). It reuses its storage.
type Index struct {
	order *segment.Order
	mints segment.Table[segment.Sym, mint]
	ids   []segment.Sym // that the segment mints, in run order
	from  int           // those of the pass begin here
	base  int           // those of the base end here
	scc   components
	sets  parentSets
}

type mint struct {
	record  segment.Ref
	object  int32
	depth   int32
	state   state
	skewed  bool
	retriev bool
}

type state uint8

// unmeasured is the depth of an id before it is known.
const unmeasured int32 = -1

const (
	unseen state = iota
	minted
	remembered
	absent // looked up in the memory, not there
)

// Build indexes the ids of a segment in one pass.
func (x *Index) Build(o *segment.Order) {
	x.Start(o)
	x.Pass()
}

// Start readies the index for the first pass of an order.
func (x *Index) Start(o *segment.Order) {
	x.order, x.ids, x.base, x.sets = o, x.ids[:0], 0, parentSets{}
	x.mints.Reset(o.Seg.Syms.Len())
}

// Keep makes the state the base, as the order's Keep does.
func (x *Index) Keep() {
	x.mints.Keep()
	x.base = len(x.ids)
}

// Rewind goes back to the base.
func (x *Index) Rewind() {
	x.mints.Rewind()
	x.ids = x.ids[:x.base]
}

// Pass indexes the ids of the order's last pass, in run order.
func (x *Index) Pass() {
	o, g := x.order, x.order.Seg
	x.mints.Grow(g.Syms.Len())
	x.from = len(x.ids)
	for _, r := range o.Refs[o.From:] {
		if r.IsStep() {
			if i := r.Step(); o.Standing[i] == segment.Counted {
				s := &g.Steps[i]
				x.carry(r, g.ProvStart(s), g.Provs(s), s.Skewed)
			}
			continue
		}
		d := &g.Decisions[r.Decision()]
		x.carry(r, g.DecisionProvStart(d), g.DecisionProvs(d), false)
	}
	x.measure()
}

func (x *Index) carry(r segment.Ref, start int32, provs []segment.Prov, skewed bool) {
	for i := range provs {
		id := provs[i].ID
		m := x.mints.At(id)
		switch {
		case m.state == unseen && x.lookUp(id):
		case m.state == remembered:
		case m.state == minted && m.skewed && !skewed:
			if x.order.InBase(m.record) {
				x.order.Cross(segment.CrossedMint)
			}
			e := x.mints.Ref(id)
			e.record, e.object, e.skewed = r, start+int32(i), false
		case m.state != minted:
			if m.state == absent {
				x.order.Cross(segment.CrossedMint) // the base asked for it
			}
			x.mints.Set(id, mint{record: r, object: start + int32(i), depth: unmeasured, state: minted, skewed: skewed})
			x.ids = append(x.ids, id)
		}
	}
}

// lookUp fills in what an earlier segment knew of an id.
func (x *Index) lookUp(id segment.Sym) bool {
	number, ok := x.order.RecallID(id)
	if !ok {
		x.mints.Set(id, mint{state: absent})
	} else {
		info := x.order.Mem.ID(number)
		x.mints.Set(id, mint{record: segment.NoRef, state: remembered, depth: info.Depth, retriev: info.Retrieval})
	}
	return ok
}

// Mint returns where an id was minted. ok is false when the id is carried
// nowhere: it does not resolve.
func (x *Index) Mint(id segment.Sym) (m Mint, ok bool) {
	e := x.seen(id)
	switch e.state {
	case minted:
		return Mint{Record: e.record, Object: e.object}, true
	case remembered:
		return Mint{Record: segment.NoRef, Remembered: true, Retrieval: e.retriev}, true
	}
	return Mint{Record: segment.NoRef}, false
}

// seen returns what is known of an id, looking it up where nobody did.
func (x *Index) seen(id segment.Sym) mint {
	if x.mints.At(id).state == unseen {
		x.lookUp(id)
	}
	return x.mints.At(id)
}

// Resolves reports whether an id is carried anywhere in the run.
func (x *Index) Resolves(id segment.Sym) bool {
	_, ok := x.Mint(id)
	return ok
}

// MintedBy reports whether r is the mint of id.
func (x *Index) MintedBy(id segment.Sym, r segment.Ref) bool {
	e := x.mints.At(id)
	return e.state == minted && e.record == r
}

// Depth returns the depth of an id that resolves, 0 of any other.
func (x *Index) Depth(id segment.Sym) int32 {
	return x.seen(id).depth
}

// parentSets answers set questions about lists of parents in constant time an
// item, also where one object states as many as a record can hold.
type parentSets struct {
	distinct map[int32]int32
	has      map[uint64]struct{}
}

// smallList is scanned rather than indexed.
const smallList = 16

// States reports whether an object's derived_from names q.
func (x *Index) States(object int32, q segment.Sym) bool {
	parents := x.order.Seg.Parents(x.order.Seg.ProvAt(object))
	if len(parents) <= smallList {
		for _, p := range parents {
			if p == q {
				return true
			}
		}
		return false
	}
	x.indexParents(object, parents)
	_, ok := x.sets.has[uint64(object)<<32|uint64(q)]
	return ok
}

// SameParents reports whether two objects state the same set of parents.
func (x *Index) SameParents(a, b int32) bool {
	if x.distinctParents(a) != x.distinctParents(b) {
		return false
	}
	for _, q := range x.order.Seg.Parents(x.order.Seg.ProvAt(a)) {
		if !x.States(b, q) {
			return false
		}
	}
	return true
}

func (x *Index) distinctParents(object int32) int32 {
	parents := x.order.Seg.Parents(x.order.Seg.ProvAt(object))
	if len(parents) > smallList {
		x.indexParents(object, parents)
		return x.sets.distinct[object]
	}
	n := int32(0)
next:
	for i, q := range parents {
		for _, p := range parents[:i] {
			if p == q {
				continue next
			}
		}
		n++
	}
	return n
}

func (x *Index) indexParents(object int32, parents []segment.Sym) {
	if _, ok := x.sets.distinct[object]; ok {
		return
	}
	if x.sets.distinct == nil {
		x.sets = parentSets{distinct: make(map[int32]int32), has: make(map[uint64]struct{})}
	}
	before := len(x.sets.has)
	for _, q := range parents {
		x.sets.has[uint64(object)<<32|uint64(q)] = struct{}{}
	}
	x.sets.distinct[object] = int32(len(x.sets.has) - before)
}
