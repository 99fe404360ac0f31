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
// remembered. It is made in one pass or, on top of a base, in several (base.go).
// An Order reuses its storage.
type Order struct {
	Seg *Segment
	Mem *Memory // nil in a run's first segment

	// Refs holds every record in run order, up to those of the last pass.
	Refs []Ref
	// From is the place at which the records of the last pass begin.
	From int
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
	// Unruly is true when a turn is told of several enclosing turns: which one
	// counts depends on the order of its records.
	Unruly bool

	winner   Table[Sym, int32] // of a step_id: 1 + the accepted step that has it; Earlier when sealed before
	rejected Table[Sym, int32] // 1 + the first rejected step
	byID     Table[Sym, int32] // of a JSON-RPC id: 1 + the first step with it
	missed   Table[Sym, bool]  // looked for in vain
	joins    bool              // byID is kept: there are error responses

	base                       base
	latest                     int64 // the time of the last record so far
	limit                      int64 // of the pass
	knownSteps, knownDecisions int
	rest, restDecisions        []int32 // not in the base; rest is sorted
	steps, answers             []int32 // of the pass; sorted
	crossed                    Crossing
}

// Build puts seg in order in one pass.
func (o *Order) Build(seg *Segment, mem *Memory) {
	o.Start(seg, mem)
	o.Pass(Always)
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

// unplaced is the position of a step of the pass before it has one.
const unplaced int32 = -1

// settleConflicts gives each step its standing. The winner of a step_id is the
// one already sealed, else the first unskewed one in canonical order, else the
// first (rules.md §1). A rejected step is neither winner nor loser.
func (o *Order) settleConflicts() {
	g := o.Seg
	for _, i := range o.steps {
		s := &g.Steps[i]
		o.StepPos[i] = unplaced
		o.Found(s.StepID)
		if s.Rejected {
			if o.rejected.At(s.StepID) == 0 {
				o.rejected.Set(s.StepID, i+1)
			}
			continue
		}
		switch w := o.winner.At(s.StepID); {
		case w == 0 && g.Accepted(o.Mem, s.StepID):
			o.winner.Set(s.StepID, Earlier)
		case w == 0:
			o.winner.Set(s.StepID, i+1)
		case w > 0 && o.StepPos[w-1] != unplaced:
			o.Cross(CrossedConflict)
		case w > 0 && g.Steps[w-1].Skewed && !s.Skewed:
			o.winner.Set(s.StepID, i+1)
		}
	}
	for _, i := range o.steps {
		o.Standing[i] = o.standing(i)
	}
}

func (o *Order) standing(i int32) Standing {
	switch s := &o.Seg.Steps[i]; {
	case s.Rejected:
		return Rejected
	case o.winner.At(s.StepID) != i+1:
		return Loser
	case s.Hook == acs.HookHandshake:
		return Handshake
	}
	return Counted
}

// Resolve returns the accepted step that a step_id names: an index, Earlier or
// Nowhere. A rejected step is found only by resolveForDecision.
func (o *Order) Resolve(id Sym) int32 {
	if w := o.winner.At(id); w > 0 {
		return w - 1
	} else if w == Earlier || o.Seg.Accepted(o.Mem, id) {
		return Earlier
	}
	o.Miss(id)
	return Nowhere
}

func (o *Order) resolveForDecision(id Sym) int32 {
	if s := o.Resolve(id); s != Nowhere {
		return s
	}
	if s := o.Recall(id); s != nil && s.Rejected {
		return EarlierRejected
	}
	return o.rejected.At(id) - 1 // the first in run order, or Nowhere
}

// joinDecisions finds the step of each decision. An error response joins the
// first step of the segment with the same JSON-RPC id (rules.md §3).
func (o *Order) joinDecisions() {
	g := o.Seg
	o.indexIDs()
	for _, i := range o.answers {
		d := &g.Decisions[i]
		step := Nowhere
		if d.requestID != None {
			step = o.resolveForDecision(d.requestID)
			o.RequestID[i] = d.requestID
		} else if step = o.stepWithID(d.jsonID); step != Nowhere {
			o.RequestID[i] = g.Steps[step].StepID
		} else {
			o.RequestID[i] = g.Syms.Intern(g.errorRequestID(d))
		}
		o.StepOf[i] = step
		if step >= 0 && o.StepPos[step] != unplaced {
			o.Cross(CrossedDecision)
		}
	}
	o.growTables() // the request_ids of errors may be new strings
}

// errorRequestID stands for the request_id of an error response that joins
// nothing: the JCS text of its id.
func (g *Segment) errorRequestID(d *Decision) string {
	if d.jsonID == None {
		return "null"
	}
	return g.JSONIDText(d.jsonID)
}

// indexIDs notes the first step with each JSON-RPC id, for error responses.
func (o *Order) indexIDs() {
	g := o.Seg
	if !o.joins {
		for _, i := range o.answers {
			if g.Decisions[i].requestID == None {
				o.Cross(CrossedTracking)
			}
		}
		return
	}
	for _, i := range o.steps {
		s := &g.Steps[i]
		if s.jsonID == None || o.Standing[i] == Loser || o.Standing[i] == Rejected {
			continue
		}
		o.Found(s.jsonID)
		if o.byID.At(s.jsonID) == 0 {
			o.byID.Set(s.jsonID, i+1)
		}
	}
}

func (o *Order) stepWithID(id Sym) int32 {
	if id == None || !o.joins || string(o.Seg.Syms.Bytes(id)) == nullID {
		return Nowhere
	}
	if o.byID.At(id) == 0 {
		o.Miss(id)
	}
	return o.byID.At(id) - 1
}

// merge makes the run order: a decision stands right after the step it
// answers; without its step, at its recorded_at after every step of that
// instant.
func (o *Order) merge() {
	g := o.Seg
	for rank, i := range o.steps {
		o.StepPos[i] = int32(rank)
	}
	slices.SortFunc(o.answers, o.compareDecisions)
	split := 0 // answers before it have a step in the segment
	for split < len(o.answers) && o.StepOf[o.answers[split]] >= 0 {
		split++
	}
	joined, alone := o.answers[:split], o.answers[split:]
	for _, i := range o.steps {
		at := g.Steps[i].EventTime
		for len(alone) > 0 && g.Decisions[alone[0]].RecordedAt < at {
			o.place(DecisionRef(alone[0]), g.Decisions[alone[0]].RecordedAt)
			alone = alone[1:]
		}
		o.place(StepRef(i), at)
		for len(joined) > 0 && o.StepOf[joined[0]] == i {
			o.place(DecisionRef(joined[0]), at)
			joined = joined[1:]
		}
	}
	for _, i := range alone {
		o.place(DecisionRef(i), g.Decisions[i].RecordedAt)
	}
}

// place gives a record the next position. Its time is never before that of the
// record in front; only a pass may begin at or before the end of the base.
func (o *Order) place(r Ref, at int64) {
	if at <= o.base.until && o.From > 0 {
		o.Cross(CrossedLate)
	}
	o.latest = max(o.latest, at)
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
