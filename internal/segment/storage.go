package segment

import "unsafe"

// Storage lends the segments of a partition their arrays: what a segment has
// outgrown, or a sealed one has left, goes to the next that needs an array of
// its size. Runs come and go all the time, so hardly anything has to be
// allocated; and no run holds more than without, because arrays are passed on
// by size. nil lends nothing. It is not safe for concurrent use.
type Storage struct {
	held      int // bytes in all pools
	steps     pool[Step]
	decisions pool[Decision]
	provs     pool[Prov]
	mores     pool[More]
	bounds    pool[Boundary]
	syms      pool[Sym]
	numbers   pool[int32]
	words     pool[uint32]
	text      pool[byte]
}

const (
	// mostHeld bounds what a Storage keeps for segments to come, in bytes.
	mostHeld = 4 << 20
	// mostTable is the longest hash table that is passed on: the lengths of longer
	// ones fit ours badly.
	mostTable = 512
)

// Segment returns an empty segment that borrows from st.
func (st *Storage) Segment(afterEnd bool) *Segment {
	return &Segment{Syms: Symbols{store: st}, AfterEnd: afterEnd}
}

// Release gives the arrays of a segment that is no longer needed back to its
// storage. Nothing may look at the segment, or at the text of its Syms, then.
func (g *Segment) Release() {
	st := g.Syms.store
	if st == nil {
		return
	}
	st.steps.give(st, g.Steps)
	st.decisions.give(st, g.Decisions)
	st.provs.give(st, g.provs)
	st.mores.give(st, g.mores)
	st.bounds.give(st, g.boundaries)
	st.syms.give(st, g.lists)
	st.numbers.give(st, g.dedupe)
	st.numbers.give(st, g.best)
	st.words.give(st, g.Syms.ends)
	st.words.give(st, g.Syms.slots)
	st.text.give(st, g.Syms.text)
	*g = Segment{AfterEnd: g.AfterEnd, Version: g.Version, Disturbed: g.Disturbed}
}

// The lengths of arrays: each a third longer than the one before, so that what
// a run holds unused is little. Longer arrays are not passed on.
var lengths = func() (l []int) {
	for n := 8; n <= 1<<13; n += max(8, n/3) {
		l = append(l, n)
	}
	return l
}()

// sizeAtLeast[n/8] is the least size, as an index into lengths, of n elements.
var sizeAtLeast = func() (t [1<<13/8 + 1]uint8) {
	size := 0
	for i := range t {
		for size < len(lengths)-1 && lengths[size] < 8*i {
			size++
		}
		t[i] = uint8(size)
	}
	return t
}()

// none is the storage of segments that borrow nothing. It is full.
var none = Storage{held: mostHeld}

func (st *Storage) orNone() *Storage {
	if st == nil {
		return &none
	}
	return st
}

// pool keeps the arrays of one type by size. The type must not hold pointers.
type pool[T any] struct{ free [32][][]T }

// room returns s with room for n more.
func (p *pool[T]) room(st *Storage, s []T, n int) []T {
	if n <= cap(s)-len(s) {
		return s
	}
	grown := append(p.take(st, max(len(s)+n, cap(s)+1)), s...)
	p.give(st, s)
	return grown
}

// take returns an empty array for n elements. What stands behind its length is
// of others.
func (p *pool[T]) take(st *Storage, n int) []T {
	if n > lengths[len(lengths)-1] {
		return make([]T, 0, n+n/3)
	}
	size := sizeAtLeast[(n+7)/8]
	f := p.free[size]
	if len(f) == 0 {
		return make([]T, 0, lengths[size])
	}
	s := f[len(f)-1]
	p.free[size] = f[:len(f)-1]
	st.held -= cap(s) * int(unsafe.Sizeof(*new(T)))
	return s
}

// table returns n zero elements.
func (p *pool[T]) table(st *Storage, n int) []T {
	if n > mostTable {
		return make([]T, n)
	}
	s := p.take(st, n)[:n]
	clear(s)
	return s
}

// give takes back an array that nobody looks at any more.
func (p *pool[T]) give(st *Storage, s []T) {
	if cap(s) < lengths[0] || cap(s) > lengths[len(lengths)-1] {
		return
	}
	size := sizeAtLeast[cap(s)/8]
	if lengths[size] > cap(s) {
		size--
	}
	s = s[:0:lengths[size]]
	if bytes := cap(s) * int(unsafe.Sizeof(*new(T))); st.held+bytes <= mostHeld {
		st.held += bytes
		p.free[size] = append(p.free[size], s)
	}
}
