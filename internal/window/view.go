package window

import (
	"provstream/internal/acs"
	"provstream/internal/dag"
	"provstream/internal/lineage"
	"provstream/internal/provenance"
	"provstream/internal/segment"
)

// view is one run's open segment, analysed. It reuses its storage; it holds
// the analysis of one version of one segment at a time (see analysis.go).
type view struct {
	run       *run
	seg       *segment.Segment
	version   uint64
	disturbed uint64 // Segment.Disturbed when it was last analysed in one pass

	order segment.Order
	index provenance.Index
	graph dag.Graph
	facts lineage.Facts

	aggs    []turnAgg
	aggOf   []int32 // by index of the turn; -1 without a part in the segment
	session sessionAgg
	soFar   *sessionTotals // the session with this segment; nil until asked for
	spare   sessionTotals  // storage of soFar
	factAt  []int32        // by place in run order: the record's first fact, -1 without
	nests   *nesting
	words   words

	// The base: aggregates that the pass on top of it changed, as they were, and
	// the session's sums up to there.
	based       bool
	stamp       uint64 // of the pass
	keptAggs    int
	changedAggs []turnAgg
	sums        *sessionTotals
	telling     lineage.Telling
	// When to try a base, and where.
	margin, skip, failures, streak int

	owner  *run // the run that keeps the view; nil of the shared one
	weight int
	links  links[view]
}

// decisionCounts counts answers by their verdict; error and rejected answers
// count nowhere.
type decisionCounts [5]int

// verdicts in the order of their names.
var verdicts = [...]string{"allow", "ask", "defer", "deny", "modify"}

func (c *decisionCounts) add(verdict []byte) {
	for i, v := range verdicts {
		if v == string(verdict) {
			c[i]++
		}
	}
}

func (c *decisionCounts) merge(d *decisionCounts) {
	for i := range c {
		c[i] += d[i]
	}
}

// fold is a ProvenanceSummary of steps of the open segment.
type fold struct {
	entries  int
	byOrigin [acs.OriginCount]int
	earliest [acs.OriginCount]segment.Sym
	depth    int32
}

// add takes a counted step; steps come in run order.
func (f *fold) add(v *view, s *segment.Step) {
	f.entries++
	provs := v.order.Seg.Provs(s)
	for i := range provs {
		p := &provs[i]
		f.depth = max(f.depth, v.index.Depth(p.ID))
		if p.Origin == acs.OriginUnknown {
			continue
		}
		if f.byOrigin[p.Origin] == 0 {
			f.earliest[p.Origin] = s.StepID
		}
		f.byOrigin[p.Origin]++
	}
}

// addTo adds the fold to the summary of steps that stand before.
func (f *fold) addTo(s *provenance.Summary, g *segment.Segment) {
	later := provenance.Summary{EntryCount: f.entries, ByOrigin: f.byOrigin, MaxDepth: f.depth}
	for o, n := range f.byOrigin {
		if n > 0 {
			later.Earliest[o] = g.Syms.Bytes(f.earliest[o])
		}
	}
	s.Merge(&later)
}

// span of instants, empty when not set.
type times struct {
	set         bool
	first, last int64
}

func (t *times) add(at int64) {
	if !t.set {
		*t = times{true, at, at}
		return
	}
	t.first, t.last = min(t.first, at), max(t.last, at)
}

func (t *times) merge(u times) {
	if u.set {
		t.add(u.first)
		t.add(u.last)
	}
}

// turnAgg is a turn's part in the open segment.
type turnAgg struct {
	stamp     uint64 // of the pass that changed it last
	turn      int32
	steps     int  // its counted steps, boundaries included
	calls     int  // tool calls among them
	all       fold // its counted steps but the turnStart
	beforeEnd fold // ... and but the last turnEnd: its members
	times     times
	agent     segment.Sym
	start     int32 // its turnStart, when it stands in this segment; -1
	end       int32 // its last turnEnd in this segment, -1
	decisions decisionCounts
	records   int           // its steps, losers and rejected ones too
	anyTimes  times         // of those, and of the decisions about them
	refs      []segment.Ref // the same, in run order
}

// sessionAgg is the open segment's part in the session summary.
type sessionAgg struct {
	fold        fold
	calls       int
	compactions int
	decisions   decisionCounts
	counted     times // counted steps and handshakes
	hasCounted  bool
	all         times // every record
	agent, name segment.Sym
	promised    segment.Sym // provenance_producer: deterministic wins
}

func (a *turnAgg) addStep(v *view, i int32, s *segment.Step) {
	o := &v.order
	a.records++
	a.refs = append(a.refs, segment.StepRef(i))
	a.anyTimes.add(s.EventTime)
	if a.agent == segment.None && !s.Rejected {
		a.agent = s.AgentID
	}
	if o.Standing[i] != segment.Counted {
		return
	}
	a.steps++
	a.times.add(s.EventTime)
	if o.Turns.Start(s.Turn) == i {
		a.start = i
		return
	}
	if s.Hook == acs.HookToolCallRequest {
		a.calls++
	}
	a.all.add(v, s)
	if o.Turns.End(s.Turn) == i {
		a.end = i
		return
	}
	a.beforeEnd.add(v, s)
}

func (s *sessionAgg) addStep(v *view, i int32, st *segment.Step) {
	o, g := &v.order, v.order.Seg
	s.all.add(st.EventTime)
	standing := o.Standing[i]
	if standing == segment.Rejected {
		return
	}
	m := g.More(st)
	if s.agent == segment.None {
		s.agent = st.AgentID
	}
	if s.name == segment.None {
		s.name = m.AgentName
	}
	switch standing {
	case segment.Handshake:
		s.counted.add(st.EventTime)
		if m.Producer != segment.None && string(g.Syms.Bytes(s.promised)) != "deterministic" {
			s.promised = m.Producer
		}
	case segment.Counted:
		s.hasCounted = true
		s.counted.add(st.EventTime)
		s.fold.add(v, st)
		switch st.Hook {
		case acs.HookToolCallRequest:
			s.calls++
		case acs.HookPostCompact:
			s.compactions++
		}
	}
}

// addDecision counts an answer for the session and for the turn of its step.
func (v *view) addDecision(i int32) {
	o, g := &v.order, v.order.Seg
	d := &g.Decisions[i]
	v.session.all.add(d.RecordedAt)
	verdict := g.Syms.Bytes(d.Decision)
	counts := d.RejectedKind == segment.None && !d.IsError
	if counts {
		v.session.decisions.add(verdict)
	}
	step := o.StepOf[i]
	if step < 0 || !inTurn(&g.Steps[step]) {
		return
	}
	a := v.agg(v.run.turnOf(g.Steps[step].Turn))
	a.refs = append(a.refs, segment.DecisionRef(i))
	a.anyTimes.add(d.RecordedAt)
	if counts && o.Standing[step] == segment.Counted {
		a.decisions.add(verdict)
	}
}

// writeBack corrects what the run's turns counted while records came: a
// conflict may have changed which steps count.
func (v *view) writeBack() {
	r, g := v.run, v.order.Seg
	for _, ti := range r.segTurns {
		t := &r.turns[ti]
		live := t.live()
		t.steps, t.calls, t.records, t.hasStart, t.end = 0, 0, 0, false, -1
		t.hasEnd = t.sealed != nil && t.sealed.hasEnd
		if t.hasEnd {
			t.declared, t.deferred = t.sealed.stepCount, t.sealed.outcome == "deferred"
		}
		if k := v.aggOf[ti]; k >= 0 {
			a := &v.aggs[k]
			t.steps, t.calls, t.records, t.hasStart = a.steps, a.calls, a.records, a.start >= 0
			if a.end >= 0 {
				r.setEnd(t, a.end)
			}
		}
		parent := r.mem.Turn([]byte(t.id)).Parent()
		if t.steps > 0 {
			parent = g.Syms.String(v.order.Turns.Parent(g.Steps[v.aggs[v.aggOf[ti]].firstStep(v)].Turn))
		}
		r.enclose(ti, parent)
		v.findEnd(t, v.aggOf[ti])
		r.await(ti)
		if t.live() != live {
			r.countLive(t, t.live())
		}
	}
	r.counts++
}

// findEnd finds what the turn's present opening ends with. One that was opened
// again is due soon while the last counted turnEnd from before that is there and not
// deferred; else, also when it has lost that turnEnd to a step of the same step_id
// that stands before it, the last counted turnEnd that came since ends it.
func (v *view) findEnd(t *turn, k int32) {
	if t.closed {
		return
	}
	t.ender = -1
	again := t.before
	if k >= 0 {
		g := v.order.Seg
		for _, ref := range v.aggs[k].refs {
			if !ref.IsStep() || v.order.Standing[ref.Step()] != segment.Counted {
				continue
			}
			s := &g.Steps[ref.Step()]
			if s.Hook != acs.HookTurnEnd {
				continue
			}
			if b := g.Boundary(s); ref.Step() < t.since {
				again = string(g.Syms.Bytes(b.Outcome)) != "deferred"
			} else {
				t.phase, t.ender, t.endAt = ended, ref.Step(), b.At
			}
		}
	}
	switch {
	case again:
		t.phase, t.ender = reopened, -1
	case t.ender < 0 && !t.endGone:
		t.phase = awaitsEnd
	}
}

// firstStep returns a counted step of the turn in the segment.
func (a *turnAgg) firstStep(v *view) int32 {
	for _, ref := range a.refs {
		if ref.IsStep() && v.order.Standing[ref.Step()] == segment.Counted {
			return ref.Step()
		}
	}
	return -1
}

func (r *run) countLive(t *turn, live bool) {
	n := 1
	if !live {
		n = -1
	}
	r.liveTurns += n
	if !t.closed {
		r.openTurns += n
	}
}

// placeFacts notes where in the facts those of each record of the pass begin.
func (v *view) placeFacts() {
	v.factAt = v.factAt[:min(len(v.factAt), v.order.From)]
	for len(v.factAt) < len(v.order.Refs) {
		v.factAt = append(v.factAt, -1)
	}
	for k := len(v.facts.All) - 1; k >= v.facts.From; k-- {
		v.factAt[v.order.Pos(v.facts.All[k].Record)] = int32(k)
	}
}

// The methods of lineage.Turns.

// Index implements lineage.Turns.
func (v *view) Index(turn segment.Sym) int32 { return v.run.turnOf(turn) }

// Members implements lineage.Turns.
func (v *view) Members(ti int32) (steps, calls int) {
	t := &v.run.turns[ti]
	_, calls = t.allSteps()
	return t.members(), calls
}

// Nested implements lineage.Turns.
func (v *view) Nested(ti int32) (steps, calls int) {
	if !v.run.nesting {
		return 0, 0
	}
	return v.nests.of(v.run, ti)
}

// EachNested implements lineage.Turns.
func (v *view) EachNested(ti int32, f func(int32)) { v.nests.each(v.run, ti, f) }

// HasSealedSteps implements lineage.Turns.
func (v *view) HasSealedSteps(ti int32) bool {
	t := &v.run.turns[ti]
	return t.sealed != nil && t.sealed.steps > 0
}

// HasSealedEnd implements lineage.Turns.
func (v *view) HasSealedEnd(ti int32) bool {
	t := &v.run.turns[ti]
	return t.sealed != nil && t.sealed.hasEnd
}
