package window

import (
	"cmp"
	"slices"
	"strings"

	"provstream/internal/dag"
	"provstream/internal/lineage"
	"provstream/internal/segment"
)

// seal ends the open segment of a run. The order inside is fixed: open turns
// close (not at a size seal), turns whose summary differs from what was emitted
// get a last revision, then the DAG, then the session summary (not at a size
// seal) (rules.md §4). now is the clock, or the time of the record that sealed
// at once.
func (p *Partition) seal(r *run, why Reason, now int64, emit func(Emission)) {
	p.changed(r)
	if r.seg == nil {
		p.openSegment(r) // what a size seal left: a final summary and no DAG
	}
	size := why == bySize
	v := p.analyzeWhole(r)
	if !size {
		v.facts.Absence()
		v.placeFacts()
	}
	v.facts.Mask()
	p.tellTurns(r, v, size, emit)
	if !size {
		p.closeAll(r)
	}
	hasDAG := v.graph.OwnNodes() > 0
	first := r.mem == nil
	if first {
		r.mem = &segment.Memory{MaxIDs: p.cfg.MaxRunIDs}
		r.totals = &sessionTotals{}
	}
	if hasDAG {
		doc := v.graph.Document(r.tenant, r.session, now, v.facts.Codes, p.alloc)
		emit(Emission{Kind: Run, Key: r.key, Value: doc.Value, ID: r.tenant + "/" + doc.ID, Time: now})
		r.mem.NoteDAG(doc.ID, doc.Hash)
		r.totals.addDAG(doc.ID)
	}
	r.mem.MaxIDs = p.cfg.MaxRunIDs
	p.remember(r, v, size, hasDAG)
	p.foldTurns(r, v, size)
	r.totals.add(v, &lineage.Telling{})
	r.totals.provs.Own()
	if size {
		r.sizeSealed0 = r.sizeSealed0 || first && !r.mem.SessionStart
	} else {
		p.tellUntold(r)
		p.tellSession(r, nil, why, emit)
	}
	v.facts.Tell(&lineage.Telling{}, v.facts.All, func(f *lineage.Fact) { p.facts[f.Code]++ })
	p.afterSeal(r, v, why, now)
}

// idInfo is what is remembered of an id that the segment carries.
func (v *view) idInfo(id segment.Sym) segment.IDInfo {
	info := segment.IDInfo{Depth: v.index.Depth(id)}
	if m, ok := v.index.Mint(id); ok && m.Record.IsStep() {
		switch dag.KindOf(v.order.Seg, &v.order.Seg.Steps[m.Record.Step()]) {
		case dag.Retrieval, dag.MemoryRead:
			info.Retrieval = true
		}
	}
	return info
}

// tellTurns gives each turn, at a size seal each closed one, a last revision
// where its summary differs from what was emitted.
func (p *Partition) tellTurns(r *run, v *view, size bool, emit func(Emission)) {
	if r.turnsTold {
		return
	}
	for _, ti := range p.turnsToTell(r, v, size) {
		p.tellTurn(r, v, ti, p.closingAtEnd(r, ti), emit)
	}
}

// turnsToTell lists, by turn_id, the turns that get a summary at a seal.
func (p *Partition) turnsToTell(r *run, v *view, size bool) []int32 {
	var list []int32
	seen := make(map[int32]bool)
	look := func(ti int32) (isNew bool) {
		if seen[ti] {
			return false
		}
		seen[ti] = true
		if t := &r.turns[ti]; t.live() && (t.closed || !size) {
			list = append(list, ti)
		}
		return true
	}
	withOuter := func(ti int32) {
		// A nested turn's steps may meet the count of the turns around it.
		for ok := true; ok && look(ti) && r.nesting; {
			ti, ok = r.findTurn(r.turns[ti].parent)
		}
	}
	for i := range v.aggs {
		withOuter(v.aggs[i].turn)
	}
	for id := range r.formerParents {
		if ti, ok := r.findTurn(id); ok {
			withOuter(ti)
		}
	}
	if !size {
		r.formerParents = nil
	}
	if !size && r.openTurns > 0 {
		for i := range r.turns {
			if !r.turns[i].closed {
				look(int32(i))
			}
		}
	}
	slices.SortFunc(list, func(a, b int32) int { return cmp.Compare(r.turns[a].id, r.turns[b].id) })
	return list
}

// closeAll closes the open turns of a run whose segment seals.
func (p *Partition) closeAll(r *run) {
	if r.openTurns == 0 {
		return
	}
	for i := range r.turns {
		t := &r.turns[i]
		if !t.closed && t.live() {
			t.closed = true
			p.timers.stop(t.timer)
			t.timer = nil
		}
	}
	r.openTurns = 0
}

// remember keeps what later segments need, and tells the first record that did
// not fit.
func (p *Partition) remember(r *run, v *view, size, hasDAG bool) {
	r.mem.Settle(&v.order)
	unfit := r.mem.Remember(segment.Sealed{
		Order: &v.order, Size: size, InDAG: hasDAG,
		IDOf: v.idInfo,
		TurnOf: func(s *segment.Step) int32 {
			if !inTurn(s) {
				return -1
			}
			return r.turnOf(s.Turn)
		},
		OpenCall: v.facts.OpenCall, Unanswered: v.facts.Unanswered, OpenSubagent: v.facts.OpenSubagent,
	})
	r.mem.Nodes += int(v.graph.Nodes)
	if hasDAG {
		_, r.mem.DAGRecordedAt = r.seg.RecordedAt()
	}
	if unfit != segment.NoRef {
		v.facts.Insert(unfit, lineage.MemoryLimit)
		v.placeFacts()
	}
}

// tellUntold makes the facts about what size seals left open and no seal has
// told: one a code, about no single step.
func (p *Partition) tellUntold(r *run) {
	calls, subagents := r.mem.Untold()
	var facts []anomaly
	if calls > 0 {
		facts = append(facts, anomaly{code: lineage.CallWithoutResult, detail: itoa(calls)})
	}
	if r.sizeSealed0 && !r.mem.SessionStart {
		facts = append(facts, anomaly{code: lineage.MissingSessionStart})
	}
	r.sizeSealed0 = false
	var turns []string
	for _, ti := range r.untoldTurns {
		if !r.turns[ti].hasEnd {
			turns = append(turns, r.turns[ti].id)
		}
	}
	r.untoldTurns = nil
	slices.Sort(turns)
	for _, id := range slices.Compact(turns) {
		facts = append(facts, anomaly{code: lineage.MissingTurnEnd, detail: id})
	}
	if subagents > 0 {
		facts = append(facts, anomaly{code: lineage.SubagentUnfinished, detail: itoa(subagents)})
	}
	r.totals.untold(facts)
	for _, f := range facts {
		p.facts[f.code]++
	}
}

// keptSymbols bounds the storage that an analysis leaves for the next: a
// segment of that many strings is larger than any that fits in a DAG of 4 MiB.
const keptSymbols = 1 << 17

// afterSeal readies the run for what may come: its next segment, or to be
// forgotten.
func (p *Partition) afterSeal(r *run, v *view, why Reason, now int64) {
	p.open -= r.seg.Len()
	p.seals[why]++
	p.openRuns.remove(r)
	sealed := r.seg
	if why == bySize {
		// The analysis may have found that a turnEnd had lost its step_id, or has it
		// again, because what took it moves on.
		p.rescheduleTurns(r)
	}
	r.seg, r.turnBySym, r.segTurns, r.inside = nil, nil, nil, nil
	r.dirty, r.replaced = false, false
	large := sealed.Syms.Len() > keptSymbols
	v.forget()
	p.views.release(r.view)
	sealed.Release()
	if large {
		p.view, p.text = view{}, nil
	}
	if why == bySize {
		r.afterSize = true
		p.schedule(r)
		return
	}
	r.afterSize, r.hasEnd = false, false
	r.ended = r.ended || why == bySessionEnd || why == byLate
	r.forgetAt = now + ms(p.cfg.IdleRetention)
	if why == bySessionEnd || why == byLate {
		r.forgetAt = now + ms(p.cfg.LateRetention)
	}
	p.schedule(r)
}

// sealHeavy seals by size: with the records whose recorded_at is not after the
// clock, since a tick says that everything older is in the log.
func (p *Partition) sealHeavy(emit func(Emission)) {
	if len(p.heavy) == 0 {
		return
	}
	slices.SortFunc(p.heavy, func(a, b *run) int { return strings.Compare(a.key, b.key) })
	list := slices.Compact(p.heavy)
	p.heavy = nil
	for _, r := range list {
		if r.seg == nil || r.seg.Weight < p.cfg.MaxRunWeight || p.runs[r.key] != r {
			continue
		}
		if p.offset < r.asOf {
			p.heavy = append(p.heavy, r) // a replay has not come to it yet
			continue
		}
		first, last := r.seg.RecordedAt()
		switch {
		case first > p.clock:
			p.heavy = append(p.heavy, r)
		case last <= p.clock:
			p.seal(r, bySize, p.clock, emit)
		default:
			p.sealPart(r, emit)
		}
	}
}

// sealPart seals the records up to the clock; the others open the next segment.
func (p *Partition) sealPart(r *run, emit func(Emission)) {
	// The turns tell of all their records, those that move on included, as they
	// stand once the segment is sealed; they are told before the DAG.
	turns := p.turnsToTell(r, p.analyze(r), true)
	r.turnsTold = true
	var dag []Emission
	upTo, rest, moved := r.seg.Split(p.clock)
	since := make(map[int32]int32, len(r.segTurns))
	for _, ti := range r.segTurns {
		t := &r.turns[ti]
		at, _ := slices.BinarySearch(moved, t.since)
		since[ti] = int32(at) // as an index among what moves on,
		t.since -= int32(at)  // and among what stays
	}
	listedBefore := r.open.listed
	p.clearSegment(r)
	r.seg = upTo
	p.seal(r, bySize, p.clock, func(e Emission) { dag = append(dag, e) })
	r.turnsTold = false
	rest.AfterEnd = r.ended
	p.clearSegment(r)
	r.seg = rest
	for ti, at := range since {
		r.turns[ti].since = at
	}
	if listedBefore {
		p.openRuns.renew(r)
	}
	v := p.analyze(r)
	for _, ti := range turns {
		p.tellTurn(r, v, ti, p.closingAtEnd(r, ti), emit)
	}
	for _, e := range dag {
		emit(e)
	}
	p.rescheduleTurns(r)
	p.schedule(r)
	if rest.Weight >= p.cfg.MaxRunWeight {
		p.heavy = append(p.heavy, r)
	}
}

// clearSegment forgets what the turns counted in the open segment.
func (p *Partition) clearSegment(r *run) {
	for _, ti := range r.segTurns {
		t := &r.turns[ti]
		live := t.live()
		t.steps, t.calls, t.records, t.hasStart, t.end = 0, 0, 0, false, -1
		if live && !t.live() {
			r.countLive(t, false)
		}
	}
	r.turnBySym, r.segTurns = nil, nil
}

func (p *Partition) rescheduleTurns(r *run) {
	for _, ti := range r.segTurns {
		if r.turns[ti].live() {
			p.scheduleTurn(r, ti)
		}
	}
}
