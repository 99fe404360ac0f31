package window

import (
	"strconv"

	"provstream/internal/acs"
	"provstream/internal/dag"
	"provstream/internal/jcs"
	"provstream/internal/lineage"
	"provstream/internal/provenance"
	"provstream/internal/segment"
)

// Bounds of a session summary: its size does not grow with the session.
const (
	listedSubagents = 100
	listedDAGs      = 100
)

// sessionTotals is a run's session summary over its sealed segments.
type sessionTotals struct {
	calls       int
	compactions int
	decisions   decisionCounts
	provs       provenance.Summary
	counted     times
	hasCounted  bool
	all         times
	agent, name string
	producer    string
	subagents   []subagent
	known       map[segment.Hash16]int32 // subagents by session: 1 + place in the list, or 0 when unlisted
	under       *sessionTotals           // what was added before: its subagents are known too
	tally       tally
	last        []anomaly // facts about no single step
	dags        []string
	dagList     []byte // dags as JCS, without brackets
}

type subagent struct{ session, outcome string }

func (s *sessionTotals) addDAG(id string) {
	s.dags = append(s.dags, id)
	if n := len(s.dags) - listedDAGs; n > 0 {
		s.dags = append([]string(nil), s.dags[n:]...)
	}
	s.writeDAGs()
}

// writeDAGs writes the list of DAGs, which every summary of a long run repeats.
func (s *sessionTotals) writeDAGs() {
	var b []byte
	for i, id := range s.dags {
		if i > 0 {
			b = append(b, ',')
		}
		b = jcs.AppendString(b, id)
	}
	s.dagList = b
}

// untold adds facts that stand last.
func (s *sessionTotals) untold(facts []anomaly) {
	for _, f := range facts {
		s.tally.count(f.code)
		if len(s.last) < toldAnomalies {
			s.last = append(s.last, f)
		}
	}
}

// over returns totals that go on from s, which they leave as it is. What there
// may be as many of as the run ever had is shared, not copied.
// into, if not nil, lends its storage.
func (s *sessionTotals) over(into *sessionTotals) *sessionTotals {
	if into == nil {
		into = &sessionTotals{}
	}
	counts, first, subagents := into.tally.counts[:0], into.tally.first[:0], into.subagents[:0]
	if s == nil {
		*into = sessionTotals{}
	} else {
		*into = *s
		counts, first, subagents = append(counts, s.tally.counts...), append(first, s.tally.first...), append(subagents, s.subagents...)
	}
	into.tally, into.subagents = tally{counts, first}, subagents
	into.known, into.under = nil, s
	return into
}

// add adds the records of the view's last pass, which stand after everything
// added before. t is what was told of the segment's facts so far.
func (s *sessionTotals) add(v *view, t *lineage.Telling) {
	a, g := &v.session, v.order.Seg
	s.calls += a.calls
	s.compactions += a.compactions
	s.decisions.merge(&a.decisions)
	a.fold.addTo(&s.provs, g)
	s.counted.merge(a.counted)
	s.hasCounted = s.hasCounted || a.hasCounted
	s.all.merge(a.all)
	if s.agent == "" {
		s.agent = v.word(a.agent)
	}
	if s.name == "" {
		s.name = v.word(a.name)
	}
	if producer := v.word(a.promised); producer != "" && s.producer != "deterministic" {
		s.producer = producer
	}
	s.addSubagents(v)
	v.facts.Tell(t, v.facts.All[v.facts.From:], func(f *lineage.Fact) { s.tally.addFact(v, f) })
}

// addSubagents lists subagents in order of first appearance, with their last
// outcome.
func (s *sessionTotals) addSubagents(v *view) {
	g := v.order.Seg
	for _, ref := range v.order.Refs[v.order.From:] {
		if !ref.IsStep() || v.order.Standing[ref.Step()] != segment.Counted {
			continue
		}
		st := &g.Steps[ref.Step()]
		if st.Hook != acs.HookSubagentStart && st.Hook != acs.HookSubagentStop {
			continue
		}
		m := g.More(st)
		key := segment.IDHash(g.Syms.Bytes(m.Subagent))
		at, ok := s.knows(key)
		if !ok {
			if s.known == nil {
				s.known = make(map[segment.Hash16]int32)
			}
			if len(s.subagents) < listedSubagents {
				s.subagents = append(s.subagents, subagent{session: v.text(m.Subagent)})
				at = int32(len(s.subagents))
			}
			s.known[key] = at
		}
		if st.Hook == acs.HookSubagentStop && at > 0 && m.Outcome != segment.None {
			s.subagents[at-1].outcome = v.word(m.Outcome)
		}
	}
}

// knows returns where a subagent is listed: 1 + its place, or 0.
func (s *sessionTotals) knows(key segment.Hash16) (at int32, ok bool) {
	for ; s != nil && !ok; s = s.under {
		at, ok = s.known[key]
	}
	return at, ok
}

// subagentCount is the number of subagents, listed or not.
func (s *sessionTotals) subagentCount() (n int) {
	for ; s != nil; s = s.under {
		n += len(s.known)
	}
	return n
}

// tellSession emits the session summary: with v, after a turn closed, over
// the sealed segments and the open one; without, at a seal, over all.
func (p *Partition) tellSession(r *run, v *view, why Reason, emit func(Emission)) {
	s := r.totals
	if v != nil {
		s = v.sessionSoFar(r)
	}
	r.revision++
	t := s.counted
	if !s.hasCounted {
		t = s.all
	}
	p.text = s.append(p.text[:0], r, t, why)
	out := append(p.alloc(len(p.text))[:0], p.text...)
	emit(Emission{
		Kind: Session, Key: r.key, Value: out, Time: t.last,
		ID: r.key + "#session#" + strconv.Itoa(r.revision),
	})
}

// sessionSoFar adds the open segment to the sealed ones. Several turns may
// close on one analysis: it is added up once.
func (v *view) sessionSoFar(r *run) *sessionTotals {
	if v.soFar == nil {
		var t lineage.Telling
		if v.based {
			v.soFar = v.sums.over(&v.spare)
			t.Reset(&v.telling)
		} else {
			v.soFar = r.totals.over(&v.spare)
		}
		v.soFar.add(v, &t)
	}
	return v.soFar
}

// append appends the summary as JCS. A summary with a reason is final.
func (s *sessionTotals) append(b []byte, r *run, t times, why Reason) []byte {
	b = append(b, `{"agent_id":`...)
	b = appendStringOrNull(b, s.agent)
	if s.name != "" {
		b = append(b, `,"agent_name":`...)
		b = jcs.AppendString(b, s.name)
	}
	b = append(b, `,"anomalies":`...)
	b = s.tally.appendFirst(b, s.last)
	b = append(b, `,"anomaly_counts":`...)
	b = s.tally.appendCounts(b)
	b = appendCount(b, "compactions", s.compactions)
	b = append(b, `,"dag_ids":[`...)
	b = append(b, s.dagList...)
	b = append(b, `],"decisions":`...)
	b = s.decisions.append(b)
	b = append(b, `,"ended_at":"`...)
	b = dag.AppendTime(b, t.last)
	b = append(b, `","final":`...)
	b = strconv.AppendBool(b, why != 0)
	b = appendCount(b, "open_turn_count", r.openTurns)
	if s.producer != "" {
		b = append(b, `,"provenance_producer":`...)
		b = jcs.AppendString(b, s.producer)
	}
	b = append(b, `,"provenance_summary":`...)
	b = s.provs.AppendJCS(b)
	b = appendCount(b, "revision", r.revision)
	if why != 0 {
		b = append(b, `,"sealed_by":"`...)
		b = append(b, why.String()...)
		b = append(b, '"')
	}
	b = appendCount(b, "segment_count", r.segments())
	b = append(b, `,"session_id":`...)
	b = jcs.AppendString(b, r.session)
	b = append(b, `,"started_at":"`...)
	b = dag.AppendTime(b, t.first)
	b = append(b, '"')
	b = appendCount(b, "step_count", s.provs.EntryCount)
	b = appendCount(b, "subagent_count", s.subagentCount())
	b = append(b, `,"subagents":`...)
	b = s.appendSubagents(b)
	b = append(b, `,"tenant_id":`...)
	b = jcs.AppendString(b, r.tenant)
	b = appendCount(b, "tool_call_count", s.calls)
	b = appendCount(b, "turn_count", r.liveTurns)
	return append(b, '}')
}

func (s *sessionTotals) appendSubagents(b []byte) []byte {
	b = append(b, '[')
	for i, a := range s.subagents {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		if a.outcome != "" {
			b = append(b, `"outcome":`...)
			b = append(jcs.AppendString(b, a.outcome), ',')
		}
		b = append(b, `"session_id":`...)
		b = append(jcs.AppendString(b, a.session), '}')
	}
	return append(b, ']')
}

func appendCount(b []byte, name string, n int) []byte {
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	return strconv.AppendInt(b, int64(n), 10)
}

// segments is the number of the run's DAGs so far.
func (r *run) segments() int {
	if r.mem == nil {
		return 0
	}
	return r.mem.Segments
}
