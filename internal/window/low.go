package window

// interval is a range of offsets in which a replay must not begin: a run that
// is gone by the end of the range has records on both sides.
type interval struct {
	first, last int64
	clock       int64 // at first
	hasClock    bool
}

func (r *run) interval(last int64) interval {
	return interval{first: r.firstOffset, last: last, clock: r.firstClock, hasClock: r.firstHasClock}
}

// addInterval adds a range, merging those that overlap: a replay that may begin
// in none of them may not begin in their union.
func addInterval(list []interval, in interval) []interval {
	kept := list[:0]
	for _, g := range list {
		if g.last < in.first || in.last < g.first {
			kept = append(kept, g)
			continue
		}
		if g.first < in.first {
			in.first, in.clock, in.hasClock = g.first, g.clock, g.hasClock
		}
		in.last = max(in.last, g.last)
	}
	return append(kept, in)
}

// Low returns the offset from which a replay, begun with that clock, rebuilds
// the state that the partition has at next: the first offset of the oldest run
// still held, or earlier where a forgotten run straddles it.
func (p *Partition) Low(next int64) (offset, clock int64, hasClock bool) {
	offset, clock, hasClock = next, p.clock, p.hasClock
	if r := p.oldest; r != nil {
		offset, clock, hasClock = r.firstOffset, r.firstClock, r.firstHasClock
	}
	for moved := true; moved; {
		moved = false
		for _, g := range p.gone {
			if g.first < offset && offset <= g.last {
				offset, clock, hasClock, moved = g.first, g.clock, g.hasClock, true
			}
		}
	}
	kept := p.gone[:0]
	for _, g := range p.gone {
		if g.last >= offset {
			kept = append(kept, g)
		}
	}
	p.gone = kept
	return offset, clock, hasClock
}
