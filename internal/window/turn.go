package window

import (
	"cmp"
	"slices"

	"provstream/internal/acs"
	"provstream/internal/lineage"
	"provstream/internal/segment"
)

// phase says what an open turn waits for.
type phase uint8

const (
	awaitsEnd phase = iota // no turnEnd for this opening yet: closes idle
	ended                  // its turnEnd is here: closes complete or grace
	reopened               // had closed with a turnEnd that was not deferred
)

// turn is a turn of a run over all its segments: when it closes, and what was
// emitted of it last. What its summary says is computed when it closes.
type turn struct {
	id     string
	parent string // turn_id of the enclosing turn, as far as known
	timer  *timer // nil until something waited once

	// Counted steps in the open segment, tool calls among them.
	steps, calls int
	records      int   // all its steps in the open segment, losers and rejected ones too
	hasStart     bool  // a turnStart is among the counted ones
	end          int32 // the last turnEnd among them, -1 without
	sealed       *turnTotals

	// The turn's turnEnd, wherever it stands.
	hasEnd   bool
	deferred bool // its outcome
	declared acs.Number

	phase    phase
	closed   bool
	waiting  bool  // listed in run.waiting
	before   bool  // it was opened again with a turnEnd, not deferred, that stands in a sealed segment
	since    int32 // index in the open segment from which steps belong to this opening
	ender    int32 // the turnEnd that ends this opening, -1 when it is in no open segment
	endAt    int64 // at of that turnEnd
	endGone  bool  // it stands in a sealed segment
	lastAt   int64 // of its last step
	reopenAt int64 // of the record that opened it again

	revision int
	emitted  segment.Hash16 // of the last summary, revision and closed_by aside
}

// live reports whether the turn has a step, counted or not.
func (t *turn) live() bool { return t.records > 0 || t.sealed != nil }

// allSteps counts the turn's counted steps, boundaries included.
func (t *turn) allSteps() (steps, calls int) {
	if t.sealed != nil {
		return t.steps + t.sealed.steps, t.calls + t.sealed.calls
	}
	return t.steps, t.calls
}

// members counts the turn's steps without its turnStart and its turnEnd.
func (t *turn) members() int {
	n, _ := t.allSteps()
	if t.hasStart || t.sealed != nil && t.sealed.hasStart {
		n--
	}
	if t.hasEnd {
		n--
	}
	return n
}

// turnOf returns the index of a turn of the run, adding it when it is new.
func (r *run) turnOf(sym segment.Sym) int32 {
	for len(r.turnBySym) < r.seg.Syms.Len() {
		r.turnBySym = append(r.turnBySym, 0)
	}
	if i := r.turnBySym[sym]; i != 0 {
		return i - 1
	}
	id := r.seg.Syms.String(sym)
	i, ok := r.findTurn(id)
	if !ok {
		i = int32(len(r.turns))
		r.turns = append(r.turns, turn{id: id, end: -1, ender: -1})
		if r.turnByID != nil {
			r.turnByID[id] = i
		}
	}
	r.turnBySym[sym] = i + 1
	r.segTurns = append(r.segTurns, i)
	return i
}

// fewTurns are searched one by one.
const fewTurns = 16

func (r *run) findTurn(id string) (int32, bool) {
	if len(r.turns) <= fewTurns {
		for i := range r.turns {
			if r.turns[i].id == id {
				return int32(i), true
			}
		}
		return 0, false
	}
	if r.turnByID == nil {
		r.turnByID = make(map[string]int32, 2*len(r.turns))
		for i := range r.turns {
			r.turnByID[r.turns[i].id] = int32(i)
		}
	}
	i, ok := r.turnByID[id]
	return i, ok
}

// arrive tells the run's turns of a record that was added to its open segment.
func (p *Partition) arrive(r *run, s *acs.Step, at int64) {
	g := r.seg
	if s.Type == acs.TypeDecision {
		if ti, ok := r.turnOfDecision(); ok {
			p.reopen(r, ti, at, int32(len(g.Steps)))
			p.scheduleTurn(r, ti)
		}
		return
	}
	i := int32(len(g.Steps)) - 1
	st := &g.Steps[i]
	if st.Hook == acs.HookSessionEnd && !st.Rejected && !r.hasEnd {
		r.hasEnd, r.endAt = true, at
	}
	if !inTurn(st) {
		return
	}
	ti := r.turnOf(st.Turn)
	t := &r.turns[ti]
	if !t.live() {
		r.liveTurns++
		r.openTurns++
	}
	t.records++
	t.lastAt = max(t.lastAt, at)
	if st.IsTurnBoundary() {
		g.Boundary(st).At = at
	}
	p.reopen(r, ti, at, i)
	if !st.Rejected && g.Best(st.StepID) == i && !g.Accepted(r.mem, st.StepID) {
		p.join(r, ti, i, at)
	}
	p.scheduleTurn(r, ti)
}

// join counts a step for its turn.
func (p *Partition) join(r *run, ti, i int32, at int64) {
	g, t := r.seg, &r.turns[ti]
	st := &g.Steps[i]
	t.steps++
	if parent := g.Syms.Bytes(g.More(st).ParentTurn); len(parent) > 0 && t.parent == "" {
		r.enclose(ti, string(parent))
	} else if len(parent) > 0 && string(parent) != t.parent {
		p.markDirty(r) // which of them holds is a question of the run order
	}
	switch st.Hook {
	case acs.HookToolCallRequest:
		t.calls++
	case acs.HookTurnStart:
		if parent := g.Boundary(st).PayloadParent; parent != segment.None {
			if t.hasStart {
				p.markDirty(r)
			}
			r.enclose(ti, g.Syms.String(parent))
		}
		t.hasStart = true
	case acs.HookTurnEnd:
		if t.end < 0 || g.CompareSteps(t.end, i) < 0 {
			r.setEnd(t, i)
		}
		if t.phase != reopened && (t.ender < 0 || g.CompareSteps(t.ender, i) < 0) {
			t.phase, t.ender, t.endAt = ended, i, at
		}
	}
	if r.nesting {
		p.markNested(r)
	}
}

// setEnd makes a turnEnd of the open segment the turn's turnEnd.
func (r *run) setEnd(t *turn, i int32) {
	b := r.seg.Boundary(&r.seg.Steps[i])
	t.end, t.hasEnd, t.declared = i, true, b.StepCount
	t.deferred = string(r.seg.Syms.Bytes(b.Outcome)) == "deferred"
}

func (r *run) enclose(ti int32, parent string) {
	if t := &r.turns[ti]; t.parent != parent {
		if t.parent != "" {
			if r.formerParents == nil {
				r.formerParents = make(map[string]struct{})
			}
			r.formerParents[t.parent] = struct{}{}
		}
		t.parent = parent
		r.nesting = true
		if r.inside != nil && parent != "" {
			r.inside[parent] = append(r.inside[parent], ti)
		}
	}
}

// reopen opens a closed turn again: with a turnEnd that is not deferred for a
// moment, else as an open turn that ends with its next turnEnd: one of the
// steps from index since on.
func (p *Partition) reopen(r *run, ti int32, at int64, since int32) {
	t := &r.turns[ti]
	if !t.closed {
		return
	}
	t.closed, t.ender, t.endGone = false, -1, false
	t.since = since
	r.openTurns++
	t.phase, t.reopenAt = awaitsEnd, at
	t.before = t.sealed != nil && t.sealed.hasEnd && t.sealed.outcome != "deferred"
	if t.hasEnd && !t.deferred {
		t.phase = reopened
	}
}

// turnOfDecision returns the turn of the step that the decision added last
// answers.
func (r *run) turnOfDecision() (int32, bool) {
	g := r.seg
	step := g.StepOfLastDecision(r.mem)
	if step < 0 {
		return 0, false
	}
	st := &g.Steps[step]
	if !inTurn(st) {
		return 0, false
	}
	if info := g.Recall(r.mem, st.StepID); info != nil && (info.Accepted || info.Rejected && st.Rejected) {
		return 0, false // it answers a step of an earlier segment
	}
	return r.turnOf(st.Turn), true
}

// scheduleTurn sets the turn's timer to the earliest time at which it may
// close.
func (p *Partition) scheduleTurn(r *run, ti int32) {
	t := &r.turns[ti]
	if t.closed {
		return
	}
	r.await(ti)
	var due int64
	switch t.phase {
	case ended:
		due = t.endAt + ms(min(p.cfg.CompleteGrace, p.cfg.Grace))
	case reopened:
		due = t.reopenAt + ms(p.cfg.CompleteGrace)
	default:
		due = t.lastAt + ms(p.cfg.TurnIdle)
	}
	if t.timer == nil {
		t.timer = &timer{run: r, turn: ti, pos: -1}
	}
	p.timers.set(t.timer, due)
}

// closing is why a turn closed.
type closing uint8

const (
	byComplete closing = iota
	byGrace
	byTurnIdle
	bySession
)

var closingNames = [...]string{byComplete: "complete", byGrace: "grace", byTurnIdle: "idle", bySession: "session"}

func (c closing) String() string { return closingNames[c] }

// turnDue returns when and why an open turn closes as things stand.
func (p *Partition) turnDue(r *run, ti int32) (due int64, why closing, ok bool) {
	t := &r.turns[ti]
	if t.closed || !t.live() {
		return 0, 0, false
	}
	if t.phase == awaitsEnd {
		return t.lastAt + ms(p.cfg.TurnIdle), byTurnIdle, true
	}
	why = p.closingAtEnd(r, ti)
	switch {
	case t.phase == reopened:
		return t.reopenAt + ms(p.cfg.CompleteGrace), why, true
	case why == byComplete:
		return t.endAt + ms(p.cfg.CompleteGrace), why, true
	}
	return t.endAt + ms(p.cfg.Grace), why, true
}

// closingAtEnd is complete when the turn's step_count is met, grace when only
// its turnEnd is here, session otherwise.
func (p *Partition) closingAtEnd(r *run, ti int32) closing {
	t := &r.turns[ti]
	if !t.hasEnd {
		return bySession
	}
	if !t.declared.Set {
		return byGrace
	}
	nested := 0
	if r.nesting && t.declared.Value > float64(t.members()) { // else no nested step can help
		nested, _ = p.nests.of(r, ti)
	}
	if met, _ := lineage.Met(t.declared.Value, t.members(), nested); met {
		return byComplete
	}
	return byGrace
}

// await lists a turn that is open and has its turnEnd: a grace of 0 may close it
// with any record.
func (r *run) await(ti int32) {
	if t := &r.turns[ti]; !t.waiting && !t.closed && t.phase != awaitsEnd {
		t.waiting = true
		r.waiting = append(r.waiting, ti)
	}
}

// stillWaiting drops from the list what closed or lost its turnEnd since.
func (r *run) stillWaiting() []int32 {
	kept := r.waiting[:0]
	for _, ti := range r.waiting {
		if t := &r.turns[ti]; t.closed || t.phase == awaitsEnd {
			t.waiting = false
		} else {
			kept = append(kept, ti)
		}
	}
	r.waiting = kept
	return kept
}

// closeImmediate closes the turns whose grace is 0, with the record that makes
// it true. Where turns are nested, a record may meet the count of any of them.
func (p *Partition) closeImmediate(r *run, recordedAt int64, emit func(Emission)) {
	// A conflict takes steps from turns and gives none its turnEnd: it can wait
	// for the tick when no turn waits for its count. A replaced copy may turn a
	// loser into the winner.
	if len(r.stillWaiting()) == 0 && !r.replaced {
		return
	}
	p.settleDirty()
	type ready struct {
		due int64
		ti  int32
	}
	var list []ready
	for _, ti := range r.stillWaiting() {
		due, why, ok := p.turnDue(r, ti)
		grace := p.cfg.Grace
		if why == byComplete || r.turns[ti].phase == reopened {
			grace = p.cfg.CompleteGrace
		}
		if ok && grace == 0 {
			list = append(list, ready{due, ti})
		}
	}
	slices.SortFunc(list, func(a, b ready) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(r.turns[a.ti].id, r.turns[b.ti].id))
	})
	for _, l := range list {
		p.closeTurn(r, l.ti, p.sealTime(recordedAt), emit)
	}
}
