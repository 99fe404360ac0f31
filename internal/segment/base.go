package segment

import (
	"math"
	"slices"
)

// An analysis of a segment is made in passes, each over records that stand
// behind those of the passes before. One pass over all records is the plain
// case, and always exact. A long segment whose turns close all the time is
// analysed in two: what stands before some instant is the base, whose state is
// kept, and what stands behind it is analysed again, with what has come since,
// each time a turn closes. So a closing turn costs what its own records cost.
//
// That is exact as long as nothing about the base depends on what stands behind
// it. Whoever finds that it may calls [Order.Cross], and the segment is analysed
// in one pass. What the base looked up in vain is marked ([Order.Miss]); a later
// record that is what was missed crosses.

// Always is the limit of a pass over all records.
const Always = math.MaxInt64

// Crossing is why the records behind a base cannot be analysed on top of it.
type Crossing uint8

// The crossings.
const (
	NotCrossed       Crossing = iota
	CrossedLate               // a record stands in the base
	CrossedConflict           // a step_id of the base is used again
	CrossedDecision           // it answers a step of the base
	CrossedMissed             // the base looked for it in vain
	CrossedMint               // it mints an id that the base lacks, or mints it first
	CrossedTurn               // its turn ended in the base, or is told more of
	CrossedOuterTurn          // a turn around its own ended in the base
	CrossedCall               // the call that it names has a result in the base by inference
	CrossedSession            // the base lacks a sessionStart
	CrossedPromise            // what makes a fact of what the base could not judge
	CrossedTracking           // of what the base kept no track
	Crossings
)

// Cross notes that a record of this pass bears on the base.
func (o *Order) Cross(why Crossing) {
	if o.From > 0 && o.crossed == NotCrossed {
		o.crossed = why
	}
}

// Crossed returns why the last pass is not exact, NotCrossed when it is.
func (o *Order) Crossed() Crossing { return o.crossed }

// Miss marks what a record of this pass looked for in vain.
func (o *Order) Miss(s Sym) {
	if !o.missed.At(s) {
		o.missed.Set(s, true)
	}
}

// Found notes what a record of this pass is, where a record of the base may
// have looked for it.
func (o *Order) Found(s Sym) {
	if o.missed.At(s) {
		o.Cross(CrossedMissed)
	}
}

// Size is how many records the storage of the order is made for, about.
func (o *Order) Size() int { return max(cap(o.StepPos)+cap(o.DecisionPos), cap(o.winner.v)/2) }

// InBase reports whether a record of a pass up to this one stands in the base.
func (o *Order) InBase(r Ref) bool { return int(o.Pos(r)) < o.From }

// Start readies an Order for the first pass over a segment.
func (o *Order) Start(seg *Segment, mem *Memory) {
	o.Seg, o.Mem = seg, mem
	o.From, o.Refs, o.crossed, o.Unruly = 0, o.Refs[:0], NotCrossed, false
	o.rest, o.restDecisions, o.knownSteps, o.knownDecisions = o.rest[:0], o.restDecisions[:0], 0, 0
	o.base, o.latest = base{}, math.MinInt64
	o.Standing, o.StepPos, o.DecisionPos = o.Standing[:0], o.StepPos[:0], o.DecisionPos[:0]
	o.StepOf, o.RequestID = o.StepOf[:0], o.RequestID[:0]
	n := seg.Syms.Len()
	o.winner.Reset(n)
	o.rejected.Reset(n)
	o.missed.Reset(n)
	o.Turns.reset(n)
	o.joins = seg.hasErrors()
	o.byID.Reset(0)
	if o.joins {
		o.byID.Reset(n)
	}
	o.collect()
}

// base is what Keep keeps beside the tables.
type base struct {
	refs   int
	until  int64 // no record of the base stands at a later time
	unruly bool
}

// collect takes the records that are new since the last pass.
func (o *Order) collect() {
	g := o.Seg
	for ; o.knownSteps < len(g.Steps); o.knownSteps++ {
		o.rest = append(o.rest, int32(o.knownSteps))
	}
	for ; o.knownDecisions < len(g.Decisions); o.knownDecisions++ {
		o.restDecisions = append(o.restDecisions, int32(o.knownDecisions))
	}
	slices.SortFunc(o.rest, g.CompareSteps)
	o.Standing = extend(o.Standing, len(g.Steps))
	o.StepPos = extend(o.StepPos, len(g.Steps))
	o.DecisionPos = extend(o.DecisionPos, len(g.Decisions))
	o.StepOf = extend(o.StepOf, len(g.Decisions))
	o.RequestID = extend(o.RequestID, len(g.Decisions))
}

// Limit returns an instant before the last n records that are not in the base;
// ok is false when nothing to speak of stands before it.
func (o *Order) Limit(n int) (limit int64, ok bool) {
	k := len(o.rest) - n
	if k < max(1, n/2) {
		return 0, false
	}
	limit = o.Seg.Steps[o.rest[k]].EventTime - 1
	return limit, o.Seg.Steps[o.rest[0]].EventTime <= limit
}

// Pass puts the records behind the base with a time up to limit in order: a
// step's time is its event time, a decision's that of its step.
func (o *Order) Pass(limit int64) {
	o.From, o.crossed, o.limit = len(o.Refs), NotCrossed, limit
	o.steps, o.answers = o.rest, append(o.answers[:0], o.restDecisions...)
	if limit != Always {
		o.takeUntil(limit)
	}
	o.growTables()
	o.settleConflicts()
	o.joinDecisions()
	o.merge()
	o.findTurns()
}

// takeUntil leaves the records with a later time to the next pass.
func (o *Order) takeUntil(limit int64) {
	g := o.Seg
	k, _ := slices.BinarySearchFunc(o.rest, limit, func(i int32, limit int64) int {
		if g.Steps[i].EventTime <= limit {
			return -1
		}
		return 1
	})
	o.steps = o.rest[:k]
	o.answers = o.answers[:0]
	for _, i := range o.restDecisions {
		if g.timeOf(&g.Decisions[i]) <= limit {
			o.answers = append(o.answers, i)
		}
	}
}

// timeOf is where a decision stands as far as the segment knows. If that is
// wrong, a pass crosses.
func (g *Segment) timeOf(d *Decision) int64 {
	if d.requestID != None {
		if s := g.Best(d.requestID); s != Nowhere {
			return g.Steps[s].EventTime
		}
		if int(d.requestID) < len(g.rejected) && g.rejected[d.requestID] != 0 {
			return g.Steps[g.rejected[d.requestID]-1].EventTime
		}
	}
	return d.RecordedAt
}

// Keep makes the records of all passes so far the base.
func (o *Order) Keep() {
	o.base = base{refs: len(o.Refs), until: o.latest, unruly: o.Unruly}
	o.rest = append(o.rest[:0], o.rest[len(o.steps):]...)
	o.steps = nil
	kept := o.restDecisions[:0]
	for _, i := range o.restDecisions {
		if o.Seg.timeOf(&o.Seg.Decisions[i]) > o.limit {
			kept = append(kept, i)
		}
	}
	o.restDecisions = kept
	o.winner.Keep()
	o.rejected.Keep()
	o.missed.Keep()
	o.byID.Keep()
	o.Turns.keep()
}

// Rewind goes back to the base, and takes in the records that are new.
func (o *Order) Rewind() {
	o.Refs, o.latest, o.Unruly = o.Refs[:o.base.refs], o.base.until, o.base.unruly
	o.winner.Rewind()
	o.rejected.Rewind()
	o.missed.Rewind()
	o.byID.Rewind()
	o.Turns.rewind()
	o.collect()
}

// growTables makes room for the strings that are new.
func (o *Order) growTables() {
	n := o.Seg.Syms.Len()
	o.winner.Grow(n)
	o.rejected.Grow(n)
	o.missed.Grow(n)
	o.Turns.grow(n)
	if o.joins {
		o.byID.Grow(n)
	}
}

func (g *Segment) hasErrors() bool {
	for i := range g.Decisions {
		if g.Decisions[i].requestID == None {
			return true
		}
	}
	return false
}
