// Package lineage finds what contradicts itself in a run: the anomalies of
// rules.md §6. They are facts for policy, never verdicts. The best known is
// compaction_lineage, provenance laundering: a compaction whose summary names
// fewer sources than what it compacted carried.
//
// The package is pure: no Kafka, clock, logger or goroutine.
package lineage

import (
	"cmp"
	"slices"

	"provstream/internal/dag"
	"provstream/internal/provenance"
	"provstream/internal/segment"
)

// Fact is one anomaly.
type Fact struct {
	Code   Code
	Record segment.Ref // segment.NoRef for a fact about no single step
	Detail string
}

// Turns is what the checks need of the run's turns over all its segments.
// Turns are named by their index in the run.
type Turns interface {
	// Index returns the index of a turn that has a counted step.
	Index(turn segment.Sym) int32
	// Members counts the members of a turn, and those that are tool calls.
	Members(turn int32) (steps, toolCalls int)
	// Nested counts all counted steps of the turns nested in a turn,
	// transitively, their boundaries included.
	Nested(turn int32) (steps, toolCalls int)
	// EachNested calls f with every turn nested in a turn.
	EachNested(turn int32, f func(int32))
	// HasSealedSteps and HasSealedEnd tell of sealed segments.
	HasSealedSteps(turn int32) bool
	HasSealedEnd(turn int32) bool
}

// Met reports whether a turnEnd's step_count is met: by the turn's members, or
// by those and all counted steps of its nested turns (rules.md §4).
func Met(declared float64, members, nested int) (met, byNested bool) {
	if declared == float64(members) {
		return true, false
	}
	if nested > 0 && declared == float64(members+nested) {
		return true, true
	}
	return false, false
}

// Facts are the anomalies of one segment. A Facts reuses its storage from Find
// to Find.
type Facts struct {
	// All holds every fact by run order of the record, then code, then detail.
	// What a summary tells of them is Told.
	All []Fact

	order *segment.Order
	index *provenance.Index
	graph *dag.Graph
	turns Turns
	masks []uint64 // by place in run order: the codes on the record
	names []string

	heads     []bool // by Sym: a decision of the segment publishes it
	publishes bool
	lastAsk   bool
	agents    []bool // by Sym
	anyAgent  bool
	promised  bool   // a handshake promised provenance
	denied    []bool // by step
	stopped   map[segment.Sym]bool
	started   map[segment.Sym]bool
	skills    map[[2]segment.Sym]bool
	stamps    []int32 // by Sym, for sets
	stamp     int32
	numbers   []int32 // the same by number of a remembered id
	turnSteps map[int32][]int32
	recalled  map[int32][]*segment.StepInfo
}

// perStep is how many facts of one code on one step are told.
const perStep = 20

// Find finds the facts of a segment. absence adds the checks of absence (°),
// which are made at every seal but a size seal, and at no other time.
func (f *Facts) Find(graph *dag.Graph, turns Turns, absence bool) {
	f.order, f.index, f.graph, f.turns = graph.Order, graph.Index, graph, turns
	f.All = f.All[:0]
	f.prepare()
	o := f.order
	for _, r := range o.Refs {
		if r.IsStep() {
			f.step(r)
		} else {
			f.decision(r)
		}
	}
	for _, c := range graph.Cuts {
		f.add(c.From, LineageCycle, string(graph.AppendNodeID(nil, c.ToNode)))
	}
	if absence {
		f.absence()
	}
	f.settle()
}

func (f *Facts) add(r segment.Ref, code Code, detail string) {
	f.All = append(f.All, Fact{Code: code, Record: r, Detail: detail})
}

// StepID returns the step_id that a fact is told of: of a decision its
// request_id.
func (f *Facts) StepID(fact *Fact) segment.Sym {
	switch r := fact.Record; {
	case r == segment.NoRef:
		return segment.None
	case r.IsStep():
		return f.order.Seg.Steps[r.Step()].StepID
	default:
		return f.order.RequestID[r.Decision()]
	}
}

// Codes returns the sorted codes on a record. The slice is valid until the
// next call.
func (f *Facts) Codes(r segment.Ref) []string {
	mask := f.masks[f.order.Pos(r)]
	f.names = f.names[:0]
	for c := Code(0); mask != 0; c, mask = c+1, mask>>1 {
		if mask&1 != 0 {
			f.names = append(f.names, c.String())
		}
	}
	return f.names
}

// settle puts the facts in the order in which they are told.
func (f *Facts) settle() {
	f.masks = segment.Resize(f.masks, len(f.order.Refs))
	if len(f.All) == 0 {
		return
	}
	slices.SortStableFunc(f.All, func(a, b Fact) int {
		return cmp.Or(
			cmp.Compare(f.order.Pos(a.Record), f.order.Pos(b.Record)),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Detail, b.Detail))
	})
	for i := range f.All {
		f.masks[f.order.Pos(f.All[i].Record)] |= 1 << f.All[i].Code
	}
}

// Told calls tell with the facts that a summary tells of those at the given
// indexes of All, in order: equal ones once, of one code on one step the first
// 20. A nil list is all of them.
func (f *Facts) Told(at []int32, tell func(*Fact)) {
	type key struct {
		step   segment.Sym
		code   Code
		detail string
	}
	n := len(at)
	if at == nil {
		n = len(f.All)
	}
	if n == 0 {
		return
	}
	told := make(map[key]bool, n)
	count := make(map[key]int, n)
	for i := range n {
		k := i
		if at != nil {
			k = int(at[i])
		}
		fact := &f.All[k]
		step := f.StepID(fact)
		one, group := key{step, fact.Code, fact.Detail}, key{step: step, code: fact.Code}
		if told[one] || count[group] >= perStep {
			continue
		}
		told[one] = true
		count[group]++
		tell(fact)
	}
}

// Insert adds a fact where it belongs in the order of telling. It shows in no
// mask: the DAG is written already.
func (f *Facts) Insert(r segment.Ref, code Code) {
	pos := f.order.Pos(r)
	at := len(f.All)
	for i := range f.All {
		p := f.order.Pos(f.All[i].Record)
		if p > pos || p == pos && f.All[i].Code > code {
			at = i
			break
		}
	}
	f.All = slices.Insert(f.All, at, Fact{Code: code, Record: r})
}

func (f *Facts) text(s segment.Sym) string { return f.order.Seg.Syms.String(s) }

// newSet starts an empty set of Syms; mark adds one and reports whether it is
// new to the set.
func (f *Facts) newSet() { f.stamp++ }

func (f *Facts) mark(s segment.Sym) bool {
	if f.stamps[s] == f.stamp {
		return false
	}
	f.stamps[s] = f.stamp
	return true
}

func (f *Facts) marked(s segment.Sym) bool { return f.stamps[s] == f.stamp }
