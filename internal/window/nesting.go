package window

import "slices"

// nesting counts the steps of the turns nested in a turn. Where those are few
// they are looked up. Where they are many, the sums of all turns of the run are
// computed in one go when something changed, and kept.
type nesting struct {
	run     *run
	version uint64

	parent       []int32 // index of the enclosing turn, -1
	steps, calls []int   // of all nested turns, transitively
	first, next  []int32 // children as linked lists
	waiting      []int32
	queue        []int32
}

// fewNested turns are looked up; fewSteps bounds the search for them.
const fewNested, fewSteps = 32, 128

// few returns the turns nested in a turn, transitively; ok is false when they
// are not few.
func (n *nesting) few(r *run, ti int32) (nested []int32, ok bool) {
	r.indexInside()
	n.queue = append(n.queue[:0], ti)
	steps := 0
	for k := 0; k < len(n.queue); k++ {
		outer := r.turns[n.queue[k]].id
		for _, c := range r.inside[outer] {
			if steps++; steps > fewSteps || len(n.queue) > fewNested {
				return nil, false
			}
			if t := &r.turns[c]; t.parent == outer && t.id != outer && t.live() && !slices.Contains(n.queue, c) {
				n.queue = append(n.queue, c)
			}
		}
	}
	return n.queue[1:], true
}

// indexInside makes the index of enclosed turns after a snapshot was loaded.
func (r *run) indexInside() {
	if r.inside != nil {
		return
	}
	r.inside = make(map[string][]int32)
	for i := range r.turns {
		if parent := r.turns[i].parent; parent != "" {
			r.inside[parent] = append(r.inside[parent], int32(i))
		}
	}
}

// of returns the counted steps of the turns nested in a turn, boundaries
// included, and the tool calls among them.
func (n *nesting) of(r *run, ti int32) (steps, calls int) {
	if !n.fresh(r) {
		if nested, ok := n.few(r, ti); ok {
			for _, c := range nested {
				s, k := r.turns[c].allSteps()
				steps, calls = steps+s, calls+k
			}
			return steps, calls
		}
	}
	n.refresh(r)
	return n.steps[ti], n.calls[ti]
}

func (n *nesting) fresh(r *run) bool {
	return n.run == r && n.version == r.counts && len(n.steps) == len(r.turns)
}

func (n *nesting) refresh(r *run) {
	if n.fresh(r) {
		return
	}
	n.run, n.version = r, r.counts
	size := len(r.turns)
	n.parent, n.first, n.next = fill(n.parent, size, -1), fill(n.first, size, -1), fill(n.next, size, -1)
	n.waiting = fill(n.waiting, size, 0)
	n.steps, n.calls = fill(n.steps, size, 0), fill(n.calls, size, 0)
	for i := range r.turns {
		t := &r.turns[i]
		if t.parent == "" || t.parent == t.id || !t.live() {
			continue
		}
		if p, ok := r.findTurn(t.parent); ok {
			n.parent[i] = p
			n.next[i], n.first[p] = n.first[p], int32(i)
			n.waiting[p]++
		}
	}
	n.sum(r)
}

// sum adds up from the innermost turns outwards. Turns that name each other
// in a ring are nested in each other.
func (n *nesting) sum(r *run) {
	n.queue = n.queue[:0]
	for i := range r.turns {
		if n.waiting[i] == 0 {
			n.queue = append(n.queue, int32(i))
		}
	}
	for k := 0; k < len(n.queue); k++ {
		i := n.queue[k]
		p := n.parent[i]
		if p < 0 {
			continue
		}
		steps, calls := r.turns[i].allSteps()
		n.steps[p] += n.steps[i] + steps
		n.calls[p] += n.calls[i] + calls
		if n.waiting[p]--; n.waiting[p] == 0 {
			n.queue = append(n.queue, p)
		}
	}
	for i := range r.turns {
		if n.waiting[i] > 0 {
			n.sumRing(r, int32(i))
		}
	}
}

func (n *nesting) sumRing(r *run, start int32) {
	steps, calls := 0, 0
	for i := start; ; {
		s, c := r.turns[i].allSteps()
		steps, calls = steps+n.steps[i]+s, calls+n.calls[i]+c
		if i = n.parent[i]; i == start {
			break
		}
	}
	for i := start; ; {
		s, c := r.turns[i].allSteps()
		n.steps[i], n.calls[i], n.waiting[i] = steps-s, calls-c, 0
		if i = n.parent[i]; i == start {
			break
		}
	}
}

// each calls f with every turn nested in a turn.
func (n *nesting) each(r *run, ti int32, f func(int32)) {
	if nested, ok := n.few(r, ti); ok {
		for _, c := range nested {
			f(c)
		}
		return
	}
	n.refresh(r)
	n.queue = append(n.queue[:0], ti)
	for k := 0; k < len(n.queue); k++ {
		for c := n.first[n.queue[k]]; c >= 0; c = n.next[c] {
			if c == ti {
				continue // a ring comes round
			}
			f(c)
			n.queue = append(n.queue, c)
		}
	}
}

func fill[T any](s []T, n int, v T) []T {
	if cap(s) < n {
		s = make([]T, n, n+n/4)
	}
	s = s[:n]
	for i := range s {
		s[i] = v
	}
	return s
}

// markNested notes that the count of an enclosing turn may be met now.
func (p *Partition) markNested(r *run) {
	r.counts++
	if !r.nestedDirty {
		r.nestedDirty = true
		p.nested = append(p.nested, r)
	}
}

// settleNested looks again at the turns that wait for their count.
func (p *Partition) settleNested() {
	for _, r := range p.nested {
		r.nestedDirty = false
		for _, ti := range r.stillWaiting() {
			if t := &r.turns[ti]; t.phase == ended && t.live() {
				p.scheduleTurn(r, ti)
			}
		}
	}
	p.nested = p.nested[:0]
}
