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
	// AppendSteps appends the counted steps of a turn in the segment.
	AppendSteps(steps []int32, turn int32) []int32
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

// Facts are the anomalies of one segment, as far as the passes over its order
// went (see segment.Order). A Facts reuses its storage.
type Facts struct {
	// All holds every fact by run order of the record, then code, then detail.
	// What a summary tells of them is Telling's business.
	All []Fact
	// From is where those of the last pass begin.
	From int

	order *segment.Order
	index *provenance.Index
	graph *dag.Graph
	turns Turns
	masks []uint64 // by place in run order: the codes on the record
	names []string

	heads   segment.Table[segment.Sym, bool] // a decision of the segment publishes it
	agents  segment.Table[segment.Sym, bool]
	started segment.Dict[segment.Sym, bool]
	skills  segment.Dict[[2]segment.Sym, bool]
	passing passing
	base    struct {
		facts   int
		passing passing
	}

	denied   []bool               // by step; by pass
	stopped  map[segment.Sym]bool // by pass: what is asked for at a seal
	stamps   []int32              // by Sym, for sets
	stamp    int32
	numbers  []int32 // the same by number of a remembered id
	recalled map[int32][]*segment.StepInfo
	stated   []segment.Sym // storage of statedParents
	steps    []int32       // storage of turnSummary
	listed   listed        // storage of resolve
}

// passing is what the records so far, in run order, say of the run.
type passing struct {
	publishes bool // a decision publishes heads
	lastAsk   bool // the last decision is an ask
	anyAgent  bool
	promised  bool // a handshake promised provenance
	claims    bool // a head was claimed while none was published
	missing   bool // provenance was missing while none was promised
}

// perStep is how many facts of one code on one step are told.
const perStep = 20

// Find finds the facts of a segment in one pass. absence adds the checks of
// absence.
func (f *Facts) Find(graph *dag.Graph, turns Turns, absence bool) {
	f.Start(graph, turns)
	f.Pass()
	if absence {
		f.Absence()
	}
}

// Start readies the facts for the first pass of a graph's order.
func (f *Facts) Start(graph *dag.Graph, turns Turns) {
	f.order, f.index, f.graph, f.turns = graph.Order, graph.Index, graph, turns
	g := f.order.Seg
	n := g.Syms.Len()
	f.All = f.All[:0]
	f.heads.Reset(n)
	f.agents.Reset(n)
	f.started.Reset()
	f.skills.Reset()
	f.stamps, f.stamp = segment.Resize(f.stamps, n), 0
	f.numbers, f.recalled = nil, nil
	f.passing = passing{}
	if m := f.order.Mem; m != nil {
		f.passing = passing{publishes: len(m.Heads) > 0, lastAsk: m.LastDecisionAsk, anyAgent: len(m.Agents) > 0, promised: m.Deterministic}
	}
}

// Forget lets go of what belongs to the segment and its run.
func (f *Facts) Forget() {
	clear(f.All)
	clear(f.listed.earlier)
	f.All, f.recalled, f.stopped = f.All[:0], nil, nil
}

// Keep makes the state the base, as the order's Keep does.
func (f *Facts) Keep() {
	f.heads.Keep()
	f.agents.Keep()
	f.started.Keep()
	f.skills.Keep()
	f.base.facts, f.base.passing = len(f.All), f.passing
}

// Rewind goes back to the base.
func (f *Facts) Rewind() {
	f.heads.Rewind()
	f.agents.Rewind()
	f.started.Rewind()
	f.skills.Rewind()
	f.All, f.passing = f.All[:f.base.facts], f.base.passing
}

// Pass finds the facts of the order's last pass.
func (f *Facts) Pass() {
	f.From = len(f.All)
	f.prepare()
	o := f.order
	for _, r := range o.Refs[o.From:] {
		if r.IsStep() {
			f.step(r)
		} else {
			f.decision(r)
		}
	}
	for _, c := range f.graph.NewCuts() {
		f.add(c.From, LineageCycle, string(f.graph.AppendNodeID(nil, c.ToNode)))
	}
	f.settle()
}

// Absence adds, after a single pass, the checks of absence (°), which are made
// at every seal but a size seal, and at no other time.
func (f *Facts) Absence() {
	f.absence()
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

// Mask readies Codes, once all facts are found.
func (f *Facts) Mask() {
	f.masks = segment.Resize(f.masks, len(f.order.Refs))
	for i := range f.All {
		f.masks[f.order.Pos(f.All[i].Record)] |= 1 << f.All[i].Code
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

// settle puts the facts of the pass in the order in which they are told.
func (f *Facts) settle() {
	slices.SortStableFunc(f.All[f.From:], func(a, b Fact) int {
		return cmp.Or(
			cmp.Compare(f.order.Pos(a.Record), f.order.Pos(b.Record)),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Detail, b.Detail))
	})
}

// Telling is what a summary has told so far of a segment's facts.
type Telling struct {
	under *Telling // what was told before; it is not changed
	told  map[telling]int
}

// Reset forgets what was told, but for what under has told.
func (t *Telling) Reset(under *Telling) { *t = Telling{under: under} }

// telling is one fact as it is told; without detail, all of a code on a step.
type telling struct {
	step   segment.Sym
	code   Code
	one    bool
	detail string
}

func (t *Telling) times(k telling) (n int) {
	for ; t != nil; t = t.under {
		n += t.told[k]
	}
	return n
}

// Tell calls tell with each of the facts, given in order, that a summary tells:
// equal ones once, of one code on one step the first 20.
func (f *Facts) Tell(t *Telling, facts []Fact, tell func(*Fact)) {
	if len(facts) == 0 {
		return
	}
	if t.told == nil {
		t.told = make(map[telling]int, 2*len(facts))
	}
	for i := range facts {
		fact := &facts[i]
		step := f.StepID(fact)
		one, all := telling{step, fact.Code, true, fact.Detail}, telling{step: step, code: fact.Code}
		if t.times(one) > 0 || t.times(all) >= perStep {
			continue
		}
		t.told[one]++
		t.told[all]++
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
