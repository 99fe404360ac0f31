package window

// nesting holds, for one run, the counted steps of the turns nested in each
// turn. It is computed in one pass over the run's turns when it is asked for
// and something changed.
type nesting struct {
	run     *run
	version uint64

	parent       []int32 // index of the enclosing turn, -1
	steps, calls []int   // of all nested turns, transitively
	first, next  []int32 // children as linked lists
	waiting      []int32
	queue        []int32
}

// of returns the counted steps of the turns nested in a turn, boundaries
// included, and the tool calls among them.
func (n *nesting) of(r *run, ti int32) (steps, calls int) {
	n.refresh(r)
	return n.steps[ti], n.calls[ti]
}

func (n *nesting) refresh(r *run) {
	if n.run == r && n.version == r.counts && len(n.steps) == len(r.turns) {
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
		for i := range r.turns {
			if t := &r.turns[i]; !t.closed && t.phase == ended && t.live() {
				p.scheduleTurn(r, int32(i))
			}
		}
	}
	p.nested = p.nested[:0]
}
