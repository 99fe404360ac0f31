package window

import (
	"provstream/internal/acs"
	"provstream/internal/lineage"
	"provstream/internal/provenance"
	"provstream/internal/segment"
	"provstream/internal/state"
)

// save writes the mutable part of a run: everything but its open records.
func (r *run) save(w *state.Writer, asOf int64) {
	w.Int(asOf)
	w.String(r.tenant)
	w.String(r.session)
	for _, b := range [...]bool{r.seg != nil, r.nesting, r.hasEnd, r.ended, r.afterSize, r.dirty, r.sizeSealed0, r.mem != nil} {
		w.Bool(b)
	}
	for _, v := range [...]int64{r.lastAt, r.endAt, r.forgetAt, int64(r.revision), int64(r.liveTurns), int64(r.openTurns), r.firstOffset, r.lastOffset} {
		w.Int(v)
	}
	w.Uint(uint64(len(r.untoldTurns)))
	for _, ti := range r.untoldTurns {
		w.Uint(uint64(ti))
	}
	w.Uint(uint64(len(r.turns)))
	for i := range r.turns {
		r.turns[i].save(w)
	}
	if r.mem != nil {
		r.mem.Save(w)
		r.totals.save(w)
	}
	w.Uint(r.saved.generation)
	w.Uint(uint64(r.saved.chunks))
	if r.seg != nil {
		r.seg.SaveTimes(w)
	}
}

// load reads what save wrote, up to the times of the open segment, and reports
// whether there is one.
func (r *run) load(in *state.Reader) (open bool) {
	r.asOf = in.Int()
	r.tenant, r.session = in.String(), in.String()
	hasMemory := false
	for _, b := range [...]*bool{&open, &r.nesting, &r.hasEnd, &r.ended, &r.afterSize, &r.dirty, &r.sizeSealed0, &hasMemory} {
		*b = in.Bool()
	}
	r.replaced = r.dirty // whether a copy made it so is not saved
	r.lastAt, r.endAt, r.forgetAt = in.Int(), in.Int(), in.Int()
	r.revision, r.liveTurns, r.openTurns = int(in.Int()), int(in.Int()), int(in.Int())
	r.firstOffset, r.lastOffset = in.Int(), in.Int()
	for range in.Len(1) {
		r.untoldTurns = append(r.untoldTurns, int32(in.Uint()))
	}
	n := in.Len(8)
	r.turns = make([]turn, n)
	for i := range r.turns {
		r.turns[i].load(in)
	}
	if hasMemory {
		r.mem = segment.LoadMemory(in)
		r.totals = loadTotals(in)
	}
	r.saved.generation, r.saved.chunks = in.Uint(), int(in.Uint())
	return open
}

func (t *turn) save(w *state.Writer) {
	w.String(t.id)
	w.String(t.parent)
	for _, b := range [...]bool{t.hasStart, t.hasEnd, t.deferred, t.closed, t.before, t.endGone, t.sealed != nil} {
		w.Bool(b)
	}
	for _, v := range [...]int64{
		int64(t.steps), int64(t.calls), int64(t.records), int64(t.end), int64(t.phase), int64(t.since), int64(t.ender),
		t.endAt, t.lastAt, t.reopenAt, int64(t.revision),
	} {
		w.Int(v)
	}
	saveNumber(w, t.declared)
	w.Fixed(t.emitted[:])
	if t.sealed != nil {
		t.sealed.save(w)
	}
}

func (t *turn) load(in *state.Reader) {
	t.id, t.parent = in.String(), in.String()
	sealed := false
	for _, b := range [...]*bool{&t.hasStart, &t.hasEnd, &t.deferred, &t.closed, &t.before, &t.endGone, &sealed} {
		*b = in.Bool()
	}
	t.steps, t.calls, t.records = int(in.Int()), int(in.Int()), int(in.Int())
	t.end, t.phase, t.since, t.ender = int32(in.Int()), phase(in.Int()), int32(in.Int()), int32(in.Int())
	t.endAt, t.lastAt, t.reopenAt, t.revision = in.Int(), in.Int(), in.Int(), int(in.Int())
	t.declared = loadNumber(in)
	copy(t.emitted[:], in.Fixed(len(t.emitted)))
	if sealed {
		t.sealed = loadTurnTotals(in)
	}
}

func (k *turnTotals) save(w *state.Writer) {
	w.Int(int64(k.steps))
	w.Int(int64(k.calls))
	saveTimes(w, k.anyTimes)
	saveTimes(w, k.times)
	members, all := k.members.Summary(), k.all()
	saveSummary(w, &members)
	saveSummary(w, &all)
	w.Bool(k.hasStart)
	w.Bool(k.hasEnd)
	w.String(k.agent)
	w.String(k.triggeredBy)
	w.String(k.outcome)
	saveNumber(w, k.stepCount)
	saveNumber(w, k.callCount)
	saveDecisions(w, &k.decisions)
	k.tally.save(w)
}

func loadTurnTotals(in *state.Reader) *turnTotals {
	k := &turnTotals{steps: int(in.Int()), calls: int(in.Int())}
	k.anyTimes, k.times = loadTimes(in), loadTimes(in)
	members, all := loadSummary(in), loadSummary(in)
	k.setSums(&members, &all)
	k.hasStart, k.hasEnd = in.Bool(), in.Bool()
	k.agent, k.triggeredBy, k.outcome = in.String(), in.String(), in.String()
	k.stepCount, k.callCount = loadNumber(in), loadNumber(in)
	k.decisions = loadDecisions(in)
	k.tally = loadTally(in)
	return k
}

func (s *sessionTotals) save(w *state.Writer) {
	w.Int(int64(s.calls))
	w.Int(int64(s.compactions))
	saveDecisions(w, &s.decisions)
	saveSummary(w, &s.provs)
	saveTimes(w, s.counted)
	saveTimes(w, s.all)
	w.Bool(s.hasCounted)
	w.String(s.agent)
	w.String(s.name)
	w.String(s.producer)
	w.Uint(uint64(len(s.subagents)))
	for _, a := range s.subagents {
		w.String(a.session)
		w.String(a.outcome)
	}
	w.Uint(uint64(len(s.known)))
	for h, at := range s.known {
		w.Fixed(h[:])
		w.Uint(uint64(at))
	}
	s.tally.save(w)
	saveAnomalies(w, s.last)
	w.Uint(uint64(len(s.dags)))
	for _, id := range s.dags {
		w.String(id)
	}
}

func loadTotals(in *state.Reader) *sessionTotals {
	s := &sessionTotals{calls: int(in.Int()), compactions: int(in.Int())}
	s.decisions, s.provs = loadDecisions(in), loadSummary(in)
	s.counted, s.all, s.hasCounted = loadTimes(in), loadTimes(in), in.Bool()
	s.agent, s.name, s.producer = in.String(), in.String(), in.String()
	for range in.Len(2) {
		s.subagents = append(s.subagents, subagent{session: in.String(), outcome: in.String()})
	}
	if n := in.Len(17); n > 0 {
		s.known = make(map[segment.Hash16]int32, n)
		for range n {
			var h segment.Hash16
			copy(h[:], in.Fixed(len(h)))
			s.known[h] = int32(in.Uint())
		}
	}
	s.tally, s.last = loadTally(in), loadAnomalies(in)
	for range in.Len(1) {
		s.dags = append(s.dags, in.String())
	}
	s.writeDAGs()
	return s
}

func (t *tally) save(w *state.Writer) {
	w.Uint(uint64(len(t.counts)))
	for _, c := range t.counts {
		w.Uint(uint64(c.code))
		w.Uint(uint64(c.n))
	}
	saveAnomalies(w, t.first)
}

func loadTally(in *state.Reader) (t tally) {
	for range in.Len(2) {
		t.counts = append(t.counts, codeCount{code: lineage.Code(in.Uint()), n: int(in.Uint())})
	}
	t.first = loadAnomalies(in)
	return t
}

func saveAnomalies(w *state.Writer, list []anomaly) {
	w.Uint(uint64(len(list)))
	for _, a := range list {
		w.Uint(uint64(a.code))
		w.String(a.stepID)
		w.String(a.detail)
	}
}

func loadAnomalies(in *state.Reader) (list []anomaly) {
	for range in.Len(3) {
		list = append(list, anomaly{code: lineage.Code(in.Uint()), stepID: in.String(), detail: in.String()})
	}
	return list
}

func saveSummary(w *state.Writer, s *provenance.Summary) {
	w.Int(int64(s.EntryCount))
	w.Int(int64(s.MaxDepth))
	for o, n := range s.ByOrigin {
		w.Uint(uint64(n))
		if n > 0 {
			w.String(string(s.Earliest[o]))
		}
	}
}

func loadSummary(in *state.Reader) (s provenance.Summary) {
	s.EntryCount, s.MaxDepth = int(in.Int()), int32(in.Int())
	for o := range s.ByOrigin {
		if s.ByOrigin[o] = int(in.Uint()); s.ByOrigin[o] > 0 {
			s.Earliest[o] = []byte(in.String())
		}
	}
	return s
}

func saveTimes(w *state.Writer, t times) {
	w.Bool(t.set)
	if t.set {
		w.Int(t.first)
		w.Int(t.last)
	}
}

func loadTimes(in *state.Reader) (t times) {
	if in.Bool() {
		t = times{set: true, first: in.Int(), last: in.Int()}
	}
	return t
}

func saveDecisions(w *state.Writer, c *decisionCounts) {
	for _, n := range c {
		w.Uint(uint64(n))
	}
}

func loadDecisions(in *state.Reader) (c decisionCounts) {
	for i := range c {
		c[i] = int(in.Uint())
	}
	return c
}

func saveNumber(w *state.Writer, n acs.Number) {
	w.Bool(n.Set)
	if n.Set {
		w.Float(n.Value)
	}
}

func loadNumber(in *state.Reader) (n acs.Number) {
	if in.Bool() {
		n = acs.Number{Set: true, Value: in.Float()}
	}
	return n
}
