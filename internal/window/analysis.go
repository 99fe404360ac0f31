package window

import "provstream/internal/segment"

// How a run's open segment is analysed.
//
// A closing turn needs the whole segment in order: mints, depths, facts, the sums
// of the session. One pass over all records is always exact, and is what short
// segments and every seal get. In a long segment whose turns keep closing, what
// lies behind is a base that is kept, and a turn that closes costs only the
// records behind it (segment/base.go). Nothing that is emitted depends on which
// way was taken: where a record bears on the base, and after a conflict, the
// segment is analysed in one pass.

const (
	// ownView is how many records a segment has before its analysis is kept.
	ownView = 16
	// Between so many records stay behind the base: those that come out of order
	// stand among them. It grows for a run whose records come later.
	leastMargin, mostMargin = 4, 256
	// keptRecords bounds the analyses that a partition keeps, in records; each
	// counts as viewWeight more. A record takes some 200 bytes there.
	keptRecords, viewWeight = 1 << 16, 64
	// usualWeight is what a usual record adds to Segment.Weight: a record with a
	// thousand ids counts as many.
	usualWeight = 1000
	// spareViews is how many analyses of sealed segments lend their storage.
	spareViews = 8
	// mostSkipped bounds how many turns close before a base is tried again.
	mostSkipped = 64
)

// views are the analyses that a partition keeps, least recently used first.
type views struct {
	list  list[view]
	size  int
	spare []*view
	paths paths
	// ownView, leastMargin and mostSkipped, which tests change.
	own, margin, skips int
}

// paths counts how segments were analysed.
type paths struct {
	whole, based, kept, unruly int
	crossed                    [segment.Crossings]int
}

func newViews() views {
	return views{own: ownView, margin: leastMargin, skips: mostSkipped, list: list[view]{of: func(v *view) *links[view] { return &v.links }}}
}

// viewOf returns the view of a run's open segment: its own, or for a short one
// that which all runs share.
func (p *Partition) viewOf(r *run) *view {
	v := r.view
	if v == nil {
		if r.seg.Len() < p.views.own {
			return &p.view
		}
		v = p.views.take()
		v.owner, r.view = r, v
	}
	w := &p.views
	w.list.renew(v)
	w.size -= v.weight
	v.weight = max(r.seg.Len(), v.order.Size(), int(r.seg.Weight/usualWeight)) + viewWeight
	w.size += v.weight
	for w.size > keptRecords && w.list.first != v {
		w.release(w.list.first)
	}
	return v
}

func (w *views) take() *view {
	if n := len(w.spare); n > 0 {
		v := w.spare[n-1]
		w.spare = w.spare[:n-1]
		return v
	}
	return &view{}
}

// release takes a run's view away.
func (w *views) release(v *view) {
	if v == nil {
		return
	}
	w.list.remove(v)
	w.size -= v.weight
	v.owner.view = nil
	v.owner, v.weight = nil, 0
	v.forget()
	v.margin, v.skip, v.failures, v.streak = 0, 0, 0, 0
	if len(w.spare) < spareViews && v.order.Size() <= keptSymbols {
		w.spare = append(w.spare, v)
	}
}

// forget lets go of the run and its segment; the storage stays.
func (v *view) forget() {
	v.run, v.seg, v.based = nil, nil, false
	v.order.Seg, v.order.Mem = nil, nil
	v.sums, v.soFar, v.spare = nil, nil, sessionTotals{}
	v.telling.Reset(nil)
	v.facts.Forget()
}

// analyze puts a run's open segment in order, finds its mints, edges and facts,
// and adds up its turns. The result is kept until the segment changes.
func (p *Partition) analyze(r *run) *view {
	v := p.viewOf(r)
	if v.run == r && v.seg == r.seg && v.version == r.seg.Version && !r.dirty {
		return v
	}
	v.nests, v.words = &p.nests, p.words
	if !p.onBase(v, r) {
		p.inOnePass(v, r)
	}
	v.run, v.seg, v.version, v.soFar = r, r.seg, r.seg.Version, nil
	return v
}

// analyzeWhole analyses a run's open segment in one pass: the view then has all
// edges. That is what a seal needs, and it is done in the shared view, so that
// the others hold little.
func (p *Partition) analyzeWhole(r *run) *view {
	v := &p.view
	if v.run == r && v.seg == r.seg && v.version == r.seg.Version && !r.dirty {
		return v
	}
	v.nests, v.words = &p.nests, p.words
	p.inOnePass(v, r)
	v.version, v.soFar = r.seg.Version, nil
	return v
}

// inOnePass analyses all records of the segment.
func (p *Partition) inOnePass(v *view, r *run) {
	p.views.paths.whole++
	v.start(r)
	v.sort(segment.Always)
	v.writeBack()
	v.judge()
	v.disturbed = r.seg.Disturbed
}

// onBase analyses the records behind the base, and moves the base on. It reports
// whether that is exact.
func (p *Partition) onBase(v *view, r *run) bool {
	if v.owner != r || v.run != r || v.seg != r.seg || v.disturbed != r.seg.Disturbed || r.dirty {
		return false
	}
	if v.skip > 0 {
		v.skip--
		return false
	}
	v.margin = max(v.margin, p.views.margin)
	if v.based {
		v.rewind()
	} else {
		v.start(r)
	}
	if limit, ok := v.order.Limit(v.margin); ok {
		if !p.passed(v, limit) {
			return false
		}
		p.views.paths.kept++
		v.keep()
	}
	if !v.based || !p.passed(v, segment.Always) {
		return false
	}
	p.views.paths.based++
	if v.streak++; v.streak >= 4 {
		v.failures = 0
	}
	return true
}

// passed makes a pass and reports whether it is exact. Where it is not, there is
// no base for a while, the longer the more often it happens.
func (p *Partition) passed(v *view, limit int64) bool {
	v.sort(limit)
	why := v.order.Crossed()
	if why == segment.NotCrossed && !v.order.Unruly {
		v.judge()
		why = v.order.Crossed()
	}
	if why == segment.NotCrossed && !v.order.Unruly {
		return true
	}
	if why == segment.NotCrossed {
		p.views.paths.unruly++
	} else {
		p.views.paths.crossed[why]++
	}
	if why == segment.CrossedLate && v.margin < mostMargin {
		v.margin *= 2
	} else if v.failures++; v.failures > 1 {
		v.skip = min(p.views.skips, 1<<min(v.failures, 10))
	}
	v.streak = 0
	return false
}

// start readies the view for the first pass over a segment.
func (v *view) start(r *run) {
	v.run, v.seg, v.based, v.sums = r, r.seg, false, nil
	v.order.Start(r.seg, r.mem)
	v.index.Start(&v.order)
	v.graph.Start(&v.order, &v.index)
	v.facts.Start(&v.graph, v)
	v.clearAggs()
	v.factAt = v.factAt[:0]
}

// sort puts the records of a pass in order and adds them up.
func (v *view) sort(limit int64) {
	v.order.Pass(limit)
	v.index.Pass()
	v.graph.Pass()
	v.addUp()
}

// judge finds the facts of a pass.
func (v *view) judge() {
	v.facts.Pass()
	v.placeFacts()
}

// keep makes the passes so far the base.
func (v *view) keep() {
	v.based = true
	v.order.Keep()
	v.index.Keep()
	v.graph.Keep()
	v.facts.Keep()
	v.keptAggs, v.changedAggs = len(v.aggs), v.changedAggs[:0]
	if v.sums == nil {
		v.sums = v.run.totals.over(nil)
		v.telling.Reset(nil)
	}
	v.sums.add(v, &v.telling)
}

// rewind goes back to the base.
func (v *view) rewind() {
	v.order.Rewind()
	v.index.Rewind()
	v.graph.Rewind()
	v.facts.Rewind()
	v.rewindAggs()
	v.factAt = v.factAt[:min(len(v.factAt), len(v.order.Refs))]
}

// rewindAggs takes back what the pass on top of the base added up.
func (v *view) rewindAggs() {
	for i := len(v.changedAggs) - 1; i >= 0; i-- {
		a := &v.changedAggs[i]
		v.aggs[v.aggOf[a.turn]] = *a
	}
	v.changedAggs = v.changedAggs[:0]
	for i := v.keptAggs; i < len(v.aggs); i++ {
		v.aggOf[v.aggs[i].turn] = -1
	}
	v.aggs = v.aggs[:v.keptAggs]
}

// outerEnded reports whether a turn around this one ended in the base: the
// count that its turnEnd declares may mean the steps of this one.
func (v *view) outerEnded(ti int32) bool {
	const deepest = 64
	r := v.run
	for range deepest {
		up, ok := r.findTurn(r.turns[ti].parent)
		if !ok || up == ti {
			return false
		}
		if k := v.aggFor(up); k >= 0 && v.aggs[k].end >= 0 && v.order.InBase(segment.StepRef(v.aggs[k].end)) {
			return true
		}
		ti = up
	}
	return true
}

// addUp makes the aggregates of turns and session in one go in run order: the
// session's of this pass, a turn's of all passes.
func (v *view) addUp() {
	o, g, r := &v.order, v.order.Seg, v.run
	v.session = sessionAgg{}
	v.stamp++
	for len(v.aggOf) < len(r.turns)+len(o.Refs)-o.From {
		v.aggOf = append(v.aggOf, -1)
	}
	for _, ref := range o.Refs[o.From:] {
		if !ref.IsStep() {
			v.addDecision(ref.Decision())
			continue
		}
		i := ref.Step()
		s := &g.Steps[i]
		v.session.addStep(v, i, s)
		if !inTurn(s) {
			continue
		}
		ti := r.turnOf(s.Turn)
		if v.based && r.nesting && o.Standing[i] == segment.Counted && v.outerEnded(ti) {
			o.Cross(segment.CrossedOuterTurn)
		}
		v.agg(ti).addStep(v, i, s)
	}
}

// clearAggs empties the aggregates. A run may have many more turns than its
// open segment: only what was set is reset.
func (v *view) clearAggs() {
	for i := range v.aggs {
		v.aggOf[v.aggs[i].turn] = -1
	}
	v.aggs, v.keptAggs, v.changedAggs = v.aggs[:0], 0, v.changedAggs[:0]
}

// agg returns the aggregate of a turn, to be changed.
func (v *view) agg(ti int32) *turnAgg {
	if k := v.aggOf[ti]; k >= 0 {
		a := &v.aggs[k]
		if int(k) < v.keptAggs && a.stamp != v.stamp {
			v.changedAggs = append(v.changedAggs, *a)
			a.stamp = v.stamp
		}
		return a
	}
	v.aggOf[ti] = int32(len(v.aggs))
	if len(v.aggs) < cap(v.aggs) {
		v.aggs = v.aggs[:len(v.aggs)+1]
	} else {
		v.aggs = append(v.aggs, turnAgg{})
	}
	a := &v.aggs[len(v.aggs)-1]
	*a = turnAgg{turn: ti, start: -1, end: -1, refs: a.refs[:0]}
	return a
}

// inTurn reports whether a step belongs to a turn.
func inTurn(s *segment.Step) bool {
	return s.Turn != segment.None && !s.IsHandshake()
}

// AppendSteps implements lineage.Turns.
func (v *view) AppendSteps(steps []int32, ti int32) []int32 {
	k := v.aggFor(ti)
	if k < 0 {
		return steps
	}
	for _, ref := range v.aggs[k].refs {
		if ref.IsStep() && v.order.Standing[ref.Step()] == segment.Counted {
			steps = append(steps, ref.Step())
		}
	}
	return steps
}
