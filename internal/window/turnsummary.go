package window

import (
	"crypto/sha256"
	"strconv"

	"provstream/internal/acs"
	"provstream/internal/dag"
	"provstream/internal/jcs"
	"provstream/internal/lineage"
	"provstream/internal/provenance"
	"provstream/internal/segment"
)

// turnTotals is what a turn's next revision needs of its sealed segments. It is
// kept as long as the run is, for each of its turns: a few hundred bytes.
type turnTotals struct {
	steps, calls int
	anyTimes     times // of all its steps and the decisions about them
	// members is the summary without the last turnEnd. A further turnEnd makes
	// that a member: it adds endEntries, or gives withEnd where it has objects.
	members     provenance.Packed
	withEnd     *provenance.Packed
	endEntries  uint8
	hasStart    bool
	hasEnd      bool
	times       times
	agent       string
	triggeredBy string
	outcome     string
	stepCount   acs.Number
	callCount   acs.Number
	decisions   decisionCounts
	tally       tally
}

// all is the summary of the members and the last turnEnd.
func (k *turnTotals) all() provenance.Summary {
	if k.withEnd != nil {
		return k.withEnd.Summary()
	}
	s := k.members.Summary()
	s.EntryCount += int(k.endEntries)
	return s
}

func (k *turnTotals) setSums(members, all *provenance.Summary) {
	k.members, k.withEnd, k.endEntries = members.Pack(), nil, uint8(all.EntryCount-members.EntryCount)
	if !all.SameObjects(members) {
		p := all.Pack()
		k.withEnd = &p
	}
}

// turnSummary is the value of a prov.turns record, but for what the run adds.
type turnSummary struct {
	turnTotals
	parent    string
	members   int
	missing   float64
	agent     string
	provs     provenance.Summary
	decisions decisionCounts
	times     times
}

// tellTurn emits a turn's summary when it differs from the last one emitted.
func (p *Partition) tellTurn(r *run, v *view, ti int32, why closing, emit func(Emission)) {
	t := &r.turns[ti]
	s := v.summarize(r, ti)
	b, revisionAt, closedAt := s.append(p.text[:0], r, t)
	p.text = b
	sum := sha256.Sum256(b)
	hash := segment.Hash16(sum[:16])
	if t.revision > 0 && hash == t.emitted {
		return
	}
	t.revision++
	t.emitted = hash
	out := p.alloc(len(b) + 24)[:0]
	out = append(out, b[:closedAt]...)
	out = jcs.AppendString(out, why.String())
	out = append(out, b[closedAt:revisionAt]...)
	out = strconv.AppendInt(out, int64(t.revision), 10)
	out = append(out, b[revisionAt:]...)
	emit(Emission{
		Kind: Turn, Key: r.key, Value: out, Time: s.shown().last,
		ID: r.key + "#" + t.id + "#" + strconv.Itoa(t.revision),
	})
}

// shown are the times of the counted steps; without any, of all.
func (s *turnSummary) shown() times {
	if s.times.set {
		return s.times
	}
	return s.anyTimes
}

// summarize puts a turn's sealed part and its part in the open segment
// together. Sealed segments stand first in run order.
func (v *view) summarize(r *run, ti int32) turnSummary {
	t := &r.turns[ti]
	s := turnSummary{parent: t.parent, members: t.members()}
	if t.sealed != nil {
		s.turnTotals = *t.sealed
		s.tally = t.sealed.tally.clone()
	}
	s.steps, s.calls = t.allSteps()
	s.agent, s.times, s.decisions = s.turnTotals.agent, s.turnTotals.times, s.turnTotals.decisions
	s.provs = s.turnTotals.members.Summary()
	if k := v.aggFor(ti); k >= 0 {
		v.addAgg(&s, &v.aggs[k])
	}
	if missing := s.stepCount.Value - float64(s.members); s.stepCount.Set && missing > 0 {
		nested, _ := v.Nested(ti)
		if met, _ := lineage.Met(s.stepCount.Value, s.members, nested); !met {
			s.missing = missing
		}
	}
	return s
}

func (v *view) aggFor(ti int32) int32 {
	if int(ti) >= len(v.aggOf) {
		return -1
	}
	return v.aggOf[ti]
}

func (v *view) addAgg(s *turnSummary, a *turnAgg) {
	g := v.order.Seg
	here := a.all
	if a.end >= 0 {
		// The sealed turnEnd, if any, becomes a member.
		s.provs, here = s.turnTotals.all(), a.beforeEnd
		end := &g.Steps[a.end]
		b := g.Boundary(end)
		s.hasEnd, s.outcome = true, v.word(b.Outcome)
		s.stepCount, s.callCount = b.StepCount, b.ToolCallCount
	}
	here.addTo(&s.provs, g)
	if a.start >= 0 {
		s.triggeredBy = v.word(g.Boundary(&g.Steps[a.start]).TriggeredBy)
	}
	if s.agent == "" {
		s.agent = v.word(a.agent)
	}
	s.times.merge(a.times)
	s.anyTimes.merge(a.anyTimes)
	s.decisions.merge(&a.decisions)
	v.tallyTurn(&s.tally, a)
}

// append appends the summary as JCS without the values of closed_by and
// revision, and tells where they belong.
func (s *turnSummary) append(b []byte, r *run, t *turn) (out []byte, revisionAt, closedAt int) {
	b = append(b, `{"agent_id":`...)
	b = appendStringOrNull(b, s.agent)
	b = append(b, `,"anomalies":`...)
	b = s.tally.appendFirst(b, nil)
	b = append(b, `,"anomaly_counts":`...)
	b = s.tally.appendCounts(b)
	b = append(b, `,"closed_by":`...)
	closedAt = len(b)
	b = append(b, `,"decisions":`...)
	b = s.decisions.append(b)
	if s.stepCount.Set {
		b = append(b, `,"declared_step_count":`...)
		b = jcs.AppendNumber(b, s.stepCount.Value)
	}
	if s.callCount.Set {
		b = append(b, `,"declared_tool_call_count":`...)
		b = jcs.AppendNumber(b, s.callCount.Value)
	}
	b = append(b, `,"ended_at":"`...)
	b = dag.AppendTime(b, s.shown().last)
	b = append(b, `","missing_steps":`...)
	b = jcs.AppendNumber(b, s.missing)
	b = append(b, `,"outcome":`...)
	b = appendStringOrNull(b, s.outcome)
	if s.parent != "" {
		b = append(b, `,"parent_turn_id":`...)
		b = jcs.AppendString(b, s.parent)
	}
	b = append(b, `,"provenance_summary":`...)
	b = s.provs.AppendJCS(b)
	b = append(b, `,"revision":`...)
	revisionAt = len(b)
	b = append(b, `,"session_id":`...)
	b = jcs.AppendString(b, r.session)
	b = append(b, `,"started_at":"`...)
	b = dag.AppendTime(b, s.shown().first)
	b = append(b, `","step_count":`...)
	b = strconv.AppendInt(b, int64(s.members), 10)
	b = append(b, `,"tenant_id":`...)
	b = jcs.AppendString(b, r.tenant)
	b = append(b, `,"tool_call_count":`...)
	b = strconv.AppendInt(b, int64(s.calls), 10)
	if s.triggeredBy != "" {
		b = append(b, `,"triggered_by":`...)
		b = jcs.AppendString(b, s.triggeredBy)
	}
	b = append(b, `,"turn_id":`...)
	b = jcs.AppendString(b, t.id)
	return append(b, '}'), revisionAt, closedAt
}

func appendStringOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return jcs.AppendString(b, s)
}

func (c *decisionCounts) append(b []byte) []byte {
	for i, n := range c {
		b = append(b, `,"`...)
		if i == 0 {
			b[len(b)-2] = '{'
		}
		b = append(b, verdicts[i]...)
		b = append(b, `":`...)
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return append(b, '}')
}

// closeTurn closes a turn at its timer: its summary, and the session's.
func (p *Partition) closeTurn(r *run, ti int32, now int64, emit func(Emission)) {
	p.changed(r)
	if r.seg == nil {
		p.openSegment(r)
	}
	v := p.analyze(r)
	_, why, ok := p.turnDue(r, ti)
	if !ok {
		return
	}
	t := &r.turns[ti]
	t.closed = true
	r.openTurns--
	p.timers.stop(t.timer)
	t.timer = nil
	p.tellTurn(r, v, ti, why, emit)
	p.tellSession(r, v, 0, emit)
}

// foldTurns adds the sealed segment's turns to what is kept of them.
func (p *Partition) foldTurns(r *run, v *view, size bool) {
	for i := range v.aggs {
		a := &v.aggs[i]
		t := &r.turns[a.turn]
		s := v.summarize(r, a.turn)
		if t.sealed == nil {
			t.sealed = &turnTotals{}
		}
		k, g := t.sealed, v.order.Seg
		all := k.all()
		a.all.addTo(&all, g)
		k.steps, k.calls = s.steps, s.calls
		k.setSums(&s.provs, &all)
		k.times, k.anyTimes, k.agent, k.decisions, k.tally = s.times, s.anyTimes, s.agent, s.decisions, s.tally
		k.hasStart = k.hasStart || a.start >= 0
		k.triggeredBy, k.hasEnd, k.outcome = s.triggeredBy, s.hasEnd, s.outcome
		k.stepCount, k.callCount = s.stepCount, s.callCount
		if size && a.start >= 0 && !k.hasEnd {
			r.untoldTurns = append(r.untoldTurns, a.turn)
		}
		t.steps, t.calls, t.records, t.hasStart, t.end = 0, 0, 0, false, -1
		t.endGone, t.ender, t.since, t.before = t.endGone || t.ender >= 0, -1, 0, t.phase == reopened
	}
}
