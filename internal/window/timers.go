package window

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"
)

// timer is due at a time of the log's clock. A timer may be early: idle times
// move with each record, so a timer is moved only when it is looked at.
type timer struct {
	due  int64
	run  *run
	turn int32 // index of the turn; -1 for the run's own timer
	pos  int   // in the heap; -1 outside
}

// timers is a heap by due. What is due together is put in order when it is
// taken out.
type timers []*timer

func (h timers) Len() int { return len(h) }

func (h timers) Less(i, j int) bool { return h[i].due < h[j].due }

func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i, j
}

// Push and Pop serve container/heap.
func (h *timers) Push(x any) {
	t := x.(*timer)
	t.pos = len(*h)
	*h = append(*h, t)
}

func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.pos = -1
	return t
}

func (t *timer) turnID() string {
	if t.turn < 0 {
		return ""
	}
	return t.run.turns[t.turn].id
}

// set puts a timer at due. A due that only moves later stays where it is and is
// moved when it comes up.
func (h *timers) set(t *timer, due int64) {
	switch {
	case t.pos < 0:
		t.due = due
		heap.Push(h, t)
	case due < t.due:
		t.due = due
		heap.Fix(h, t.pos)
	}
}

func (h *timers) stop(t *timer) {
	if t != nil && t.pos >= 0 {
		heap.Remove(h, t.pos)
	}
}

// NextTimer returns a time before which no timer is due.
func (p *Partition) NextTimer() (due int64, ok bool) {
	if len(p.timers) == 0 {
		return 0, false
	}
	return p.timers[0].due, true
}

// fire fires what is due at the clock. Emissions stand in the order of (due,
// run key, turn_id), but each run is looked at once: timers of different runs
// touch nothing in common, and one analysis serves all turns that a run closes.
func (p *Partition) fire(emit func(Emission)) {
	var later []*timer // of runs whose snapshot a replay has not come to yet
	for len(p.timers) > 0 && p.timers[0].due <= p.clock {
		ripe := p.takeRipe()
		p.fired = p.fired[:0]
		for len(ripe) > 0 {
			n := 1
			for n < len(ripe) && ripe[n].run == ripe[0].run {
				n++
			}
			if p.offset < ripe[0].run.asOf {
				later = append(later, ripe[:n]...)
			} else {
				p.fireOf(ripe[:n])
			}
			ripe = ripe[n:]
		}
		p.order = p.order[:0]
		for i := range p.fired {
			p.order = append(p.order, int32(i))
		}
		// Numbers are moved, not the firings, which are large.
		slices.SortFunc(p.order, func(a, b int32) int { return cmp.Or(p.fired[a].compare(&p.fired[b]), cmp.Compare(a, b)) }) // stable
		for _, i := range p.order {
			emit(p.fired[i].emission)
		}
		clear(p.fired) // its runs may be forgotten now
		clear(p.ripe)
	}
	if max(cap(p.ripe), cap(p.fired)) > keptTimers {
		p.ripe, p.due, p.fired, p.order = nil, nil, nil, nil
	}
	for _, t := range later {
		p.timers.set(t, t.due)
	}
}

// keptTimers bounds the storage that fire keeps from tick to tick.
const keptTimers = 1 << 12

// firing is an emission that a timer gave.
type firing struct {
	due      int64
	key      string // run key
	turnID   string
	emission Emission
}

func (f *firing) compare(g *firing) int {
	if f.due != g.due {
		return cmp.Compare(f.due, g.due)
	}
	return cmp.Or(strings.Compare(f.key, g.key), strings.Compare(f.turnID, g.turnID))
}

// takeRipe takes the timers that may be due out of the heap, run by run.
func (p *Partition) takeRipe() []*timer {
	p.ripe = p.ripe[:0]
	for len(p.timers) > 0 && p.timers[0].due <= p.clock {
		p.ripe = append(p.ripe, heap.Pop(&p.timers).(*timer))
	}
	slices.SortFunc(p.ripe, func(a, b *timer) int { return cmp.Compare(a.run.key, b.run.key) })
	return p.ripe
}

// dueTimer is a timer of a run with the time at which it is really due.
type dueTimer struct {
	*timer
	due int64
}

// fireOf fires the timers of one run that are really due, in order, and adds
// what they emit to p.fired; the others go back.
func (p *Partition) fireOf(ripe []*timer) {
	p.due = p.due[:0]
	for _, t := range ripe {
		if due, ok := p.dueOf(t); ok && due > p.clock {
			p.timers.set(t, due)
		} else if ok {
			p.due = append(p.due, dueTimer{t, due})
		}
	}
	slices.SortFunc(p.due, func(a, b dueTimer) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.turnID(), b.turnID()))
	})
	var at int
	emit := func(e Emission) {
		f := &p.due[at]
		p.fired = append(p.fired, firing{f.due, f.run.key, f.turnID(), e})
	}
	for at = range p.due {
		f := p.due[at].timer
		if _, ok := p.dueOf(f); !ok {
			continue // what fired before has closed the turn
		}
		if f.turn >= 0 {
			p.closeTurn(f.run, f.turn, p.clock, emit)
		} else {
			p.fireRun(f.run, emit)
		}
	}
	clear(p.due)
}

// dueOf returns when a timer is really due.
func (p *Partition) dueOf(t *timer) (int64, bool) {
	if t.turn >= 0 {
		due, _, ok := p.turnDue(t.run, t.turn)
		return due, ok
	}
	due, _, ok := p.runDue(t.run)
	return due, ok
}

// runDue returns when and why a run seals, or, without reason, when it is
// forgotten.
func (p *Partition) runDue(r *run) (due int64, why Reason, ok bool) {
	switch {
	case !r.awaitsSeal():
		return r.forgetAt, 0, true
	case r.ended:
		return r.lastAt + ms(p.cfg.LateGrace), byLate, true
	case r.hasEnd && r.endAt+ms(p.cfg.SealGrace) <= r.lastAt+ms(p.cfg.SessionIdle):
		return r.endAt + ms(p.cfg.SealGrace), bySessionEnd, true
	}
	return r.lastAt + ms(p.cfg.SessionIdle), byIdle, true
}

func (p *Partition) fireRun(r *run, emit func(Emission)) {
	if _, why, _ := p.runDue(r); why != 0 {
		p.seal(r, why, p.clock, emit)
		return
	}
	p.forget(r)
}

// arm sets all timers of a run to what the configuration makes of it.
func (p *Partition) arm(r *run) {
	if r.seg != nil && r.seg.Len() > 0 && r.seg.Weight >= p.cfg.MaxRunWeight {
		p.heavy = append(p.heavy, r)
	}
	p.schedule(r)
	for i := range r.turns {
		if t := &r.turns[i]; !t.closed && t.live() {
			p.scheduleTurn(r, int32(i))
		}
	}
}

// schedule sets the run's timer after a record.
func (p *Partition) schedule(r *run) {
	due, _, _ := p.runDue(r)
	p.timers.set(&r.timer, due)
}

// fireImmediate acts on graces of 0: with the record that makes it true.
func (p *Partition) fireImmediate(r *run, recordedAt int64, emit func(Emission)) {
	if p.cfg.CompleteGrace == 0 || p.cfg.Grace == 0 || p.cfg.TurnIdle == 0 {
		p.closeImmediate(r, recordedAt, emit)
	}
	_, why, _ := p.runDue(r)
	now := p.sealTime(recordedAt)
	switch {
	case why == bySessionEnd && p.cfg.SealGrace == 0,
		why == byLate && p.cfg.LateGrace == 0,
		why == byIdle && p.cfg.SessionIdle == 0:
		p.seal(r, why, now, emit)
	}
}
