package segment

import (
	"bytes"
	"cmp"
	"slices"

	"provstream/internal/acs"
)

// Ref names a record of a segment: a step by its index, a decision by the
// complement of its index.
type Ref int32

// StepRef and DecisionRef make Refs; NoRef names nothing.
func StepRef(i int32) Ref     { return Ref(i) }
func DecisionRef(i int32) Ref { return Ref(^i) }

// NoRef is no record.
const NoRef Ref = -1 << 31

// IsStep reports whether r names a step.
func (r Ref) IsStep() bool { return r >= 0 }

// Step and Decision return the index of the record that r names.
func (r Ref) Step() int32     { return int32(r) }
func (r Ref) Decision() int32 { return ^int32(r) }

// Standing says how a step counts (rules.md §1, §5).
type Standing uint8

// A Counted step is an accepted one that is no handshake and lost no conflict.
const (
	Counted Standing = iota
	Handshake
	Loser
	Rejected
)

// Where a reference leads, beside a step of the segment.
const (
	// Nowhere: no step of the run has the id.
	Nowhere int32 = -1
	// Earlier: an accepted step of an earlier, remembered segment has it.
	Earlier int32 = -2
	// EarlierRejected: only a rejected step of an earlier segment has it.
	EarlierRejected int32 = -3
)

// Order is a segment in run order, with each step's standing and each
// decision's step. It is a function of the set of records and of what is
// remembered. An Order may be built again and again; it reuses its storage.
type Order struct {
	Seg *Segment
	Mem *Memory // nil in a run's first segment

	// Refs holds every record in run order.
	Refs []Ref
	// Standing of each step.
	Standing []Standing
	// StepPos and DecisionPos are the positions in Refs.
	StepPos, DecisionPos []int32
	// StepOf is the step that each decision answers, or Nowhere, Earlier,
	// EarlierRejected.
	StepOf []int32
	// RequestID is the request_id of each decision; of an error response that
	// of the step it joins, else the JCS text of its id.
	RequestID []Sym
	// Turns of the segment.
	Turns Turns

	winner   []int32 // by Sym of a step_id: 1 + the accepted step that has it; Earlier when sealed before
	rejected []int32 // by Sym: 1 + the first rejected step
	sorted   []int32
	byID     []int32 // by Sym of a JSON-RPC id: 1 + the first step with it
	answers  []int32 // decisions, sorted
}

// Build puts seg in order.
func (o *Order) Build(seg *Segment, mem *Memory) {
	o.Seg, o.Mem = seg, mem
	o.sortSteps()
	o.settleConflicts()
	o.joinDecisions()
	o.merge()
	o.findTurns()
}

// sortSteps sorts by (event time, method rank, step_id, request_hash,
// recorded_at, coordinates) (rules.md §3).
func (o *Order) sortSteps() {
	g := o.Seg
	o.sorted = o.sorted[:0]
	for i := range g.Steps {
		o.sorted = append(o.sorted, int32(i))
	}
	slices.SortFunc(o.sorted, func(a, b int32) int { return g.CompareSteps(a, b) })
}

// CompareSteps compares two steps of the segment in canonical order.
func (g *Segment) CompareSteps(i, j int32) int {
	a, b := &g.Steps[i], &g.Steps[j]
	if c := cmp.Compare(a.EventTime, b.EventTime); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Rank, b.Rank); c != 0 {
		return c
	}
	if a.StepID != b.StepID {
		return bytes.Compare(g.Syms.Bytes(a.StepID), g.Syms.Bytes(b.StepID))
	}
	if c := bytes.Compare(a.RequestHash[:], b.RequestHash[:]); c != 0 {
		return c
	}
	if c := cmp.Compare(a.RecordedAt, b.RecordedAt); c != 0 {
		return c
	}
	return g.compareCoordinates(a.Topic, b.Topic, a.Partition, b.Partition, a.Offset, b.Offset, a.Index, b.Index)
}

func (g *Segment) compareCoordinates(ta, tb Sym, pa, pb int32, oa, ob int64, ia, ib int32) int {
	if ta != tb {
		return bytes.Compare(g.Syms.Bytes(ta), g.Syms.Bytes(tb))
	}
	return cmp.Or(cmp.Compare(pa, pb), cmp.Compare(oa, ob), cmp.Compare(ia, ib))
}

// settleConflicts gives each step its standing. The winner of a step_id is the
// one already sealed, else the first unskewed one in canonical order, else the
// first (rules.md §1). A rejected step is neither winner nor loser.
func (o *Order) settleConflicts() {
	g := o.Seg
	o.Standing = Resize(o.Standing, len(g.Steps))
	o.winner = Resize(o.winner, g.Syms.Len())
	o.rejected = Resize(o.rejected, g.Syms.Len())
	for _, i := range o.sorted {
		s := &g.Steps[i]
		if s.Rejected {
			o.Standing[i] = Rejected
			if o.rejected[s.StepID] == 0 {
				o.rejected[s.StepID] = i + 1
			}
			continue
		}
		switch w := o.winner[s.StepID]; {
		case w == 0 && g.Accepted(o.Mem, s.StepID):
			o.winner[s.StepID] = Earlier
		case w == 0:
			o.winner[s.StepID] = i + 1
		case w > 0 && g.Steps[w-1].Skewed && !s.Skewed:
			o.winner[s.StepID] = i + 1
		}
	}
	for i := range g.Steps {
		s := &g.Steps[i]
		switch {
		case s.Rejected:
		case o.winner[s.StepID] != int32(i)+1:
			o.Standing[i] = Loser
		case s.Hook == acs.HookHandshake:
			o.Standing[i] = Handshake
		}
	}
}

// Resolve returns the accepted step that a step_id names: an index, Earlier or
// Nowhere. A rejected step is found only by ResolveForDecision.
func (o *Order) Resolve(id Sym) int32 {
	if w := o.winner[id]; w > 0 {
		return w - 1
	} else if w == Earlier {
		return Earlier
	}
	if o.Seg.Accepted(o.Mem, id) {
		return Earlier
	}
	return Nowhere
}

func (o *Order) resolveForDecision(id Sym) int32 {
	if s := o.Resolve(id); s != Nowhere {
		return s
	}
	if s := o.Recall(id); s != nil && s.Rejected {
		return EarlierRejected
	}
	return o.rejected[id] - 1 // the first in run order, or Nowhere
}

// joinDecisions finds the step of each decision. An error response joins the
// first step of the segment with the same JSON-RPC id (rules.md §3).
func (o *Order) joinDecisions() {
	g := o.Seg
	o.StepOf = Resize(o.StepOf, len(g.Decisions))
	o.RequestID = Resize(o.RequestID, len(g.Decisions))
	o.indexIDs()
	for i := range g.Decisions {
		d := &g.Decisions[i]
		if d.requestID != None {
			o.RequestID[i], o.StepOf[i] = d.requestID, o.resolveForDecision(d.requestID)
			continue
		}
		o.StepOf[i] = Nowhere
		if s := o.stepWithID(d.jsonID); s != Nowhere {
			o.StepOf[i], o.RequestID[i] = s, g.Steps[s].StepID
			continue
		}
		o.RequestID[i] = g.Syms.Intern(g.errorRequestID(d))
	}
	// The request_ids of errors may be new symbols.
	o.winner = extend(o.winner, g.Syms.Len())
	o.rejected = extend(o.rejected, g.Syms.Len())
}

// errorRequestID stands for the request_id of an error response that joins
// nothing: the JCS text of its id.
func (g *Segment) errorRequestID(d *Decision) string {
	if d.jsonID == None {
		return "null"
	}
	return g.JSONIDText(d.jsonID)
}

func (o *Order) indexIDs() {
	g := o.Seg
	any := false
	for i := range g.Decisions {
		any = any || g.Decisions[i].requestID == None
	}
	o.byID = o.byID[:0]
	if !any {
		return
	}
	o.byID = Resize(o.byID, g.Syms.Len())
	for _, i := range o.sorted {
		s := &g.Steps[i]
		if s.jsonID != None && o.byID[s.jsonID] == 0 && (o.Standing[i] == Counted || o.Standing[i] == Handshake) {
			o.byID[s.jsonID] = i + 1
		}
	}
}

func (o *Order) stepWithID(id Sym) int32 {
	if id == None || int(id) >= len(o.byID) || string(o.Seg.Syms.Bytes(id)) == nullID {
		return Nowhere
	}
	return o.byID[id] - 1
}

// merge makes the run order: a decision stands right after the step it
// answers; without its step, at its recorded_at after every step of that
// instant.
func (o *Order) merge() {
	g := o.Seg
	o.StepPos = Resize(o.StepPos, len(g.Steps))
	o.DecisionPos = Resize(o.DecisionPos, len(g.Decisions))
	for p, i := range o.sorted {
		o.StepPos[i] = int32(p)
	}
	o.answers = o.answers[:0]
	for i := range g.Decisions {
		o.answers = append(o.answers, int32(i))
	}
	slices.SortFunc(o.answers, o.compareDecisions)

	split := 0 // answers before it have a step in the segment
	for split < len(o.answers) && o.StepOf[o.answers[split]] >= 0 {
		split++
	}
	joined, alone := o.answers[:split], o.answers[split:]
	o.Refs = o.Refs[:0]
	for _, i := range o.sorted {
		for len(alone) > 0 && g.Decisions[alone[0]].RecordedAt < g.Steps[i].EventTime {
			o.place(DecisionRef(alone[0]))
			alone = alone[1:]
		}
		o.place(StepRef(i))
		for len(joined) > 0 && o.StepOf[joined[0]] == i {
			o.place(DecisionRef(joined[0]))
			joined = joined[1:]
		}
	}
	for _, i := range alone {
		o.place(DecisionRef(i))
	}
}

func (o *Order) place(r Ref) {
	if r.IsStep() {
		o.StepPos[r.Step()] = int32(len(o.Refs))
	} else {
		o.DecisionPos[r.Decision()] = int32(len(o.Refs))
	}
	o.Refs = append(o.Refs, r)
}

// compareDecisions sorts the decisions with a step first, by the place of the
// step, then by (recorded_at, topic, partition, offset, index).
func (o *Order) compareDecisions(a, b int32) int {
	const last = 1<<31 - 1
	pos := func(i int32) int32 {
		if s := o.StepOf[i]; s >= 0 {
			return o.StepPos[s]
		}
		return last
	}
	if c := cmp.Compare(pos(a), pos(b)); c != 0 {
		return c
	}
	x, y := &o.Seg.Decisions[a], &o.Seg.Decisions[b]
	if c := cmp.Compare(x.RecordedAt, y.RecordedAt); c != 0 {
		return c
	}
	return o.Seg.compareCoordinates(x.Topic, y.Topic, x.Partition, y.Partition, x.Offset, y.Offset, x.Index, y.Index)
}

// Pos returns the place of a record in run order.
func (o *Order) Pos(r Ref) int32 {
	if r.IsStep() {
		return o.StepPos[r.Step()]
	}
	return o.DecisionPos[r.Decision()]
}

// Resize returns s with n zero elements, reusing its storage.
func Resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	s = s[:n]
	clear(s)
	return s
}

func extend[T any](s []T, n int) []T {
	var zero T
	for len(s) < n {
		s = append(s, zero)
	}
	return s
}
