package reference

import (
	"encoding/hex"
	"slices"

	"provstream/internal/acs"
)

// copyKey is equal for the copies of one record: of a step (step_id, method,
// request_hash), of a decision (request_id, hash of its result). An error
// response has no request_id: its JSON-RPC id stands for it.
func copyKey(s *acs.Step) string {
	h := hex.EncodeToString(s.RequestHash[:])
	switch {
	case s.Type == acs.TypeStep:
		return "step\x00" + s.StepID + "\x00" + s.Method + "\x00" + h
	case s.ErrorResponse:
		return "error\x00" + s.ID + "\x00" + h
	}
	return "decision\x00" + s.StepID + "\x00" + h
}

// analysis is everything that the rules say about a segment, given what is
// kept of the earlier ones.
type analysis struct {
	past  *history
	late  bool // the run had ended before this segment
	items []*item
	turns map[string]*turn // of the whole run

	byStep   map[string]*item // the winner of each step_id, in this segment
	mints    map[string]*mint
	depths   map[string]int
	calls    map[*item]*item // result → call, of this segment
	settled  map[string]bool // step_ids of earlier calls that got a result or a deny here
	answered map[*item]bool  // requests with a result here

	segmentNode *item // nil when no earlier DAG is remembered
	edges       []edge
	known       map[edge]bool // the same as a set
}

// analyse looks at the records of a segment. Absence is checked at the seals
// that end something.
func analyse(past *history, records []*record, late, absence bool) *analysis {
	a := &analysis{
		past: past, late: late,
		byStep: map[string]*item{}, mints: map[string]*mint{}, depths: map[string]int{},
		calls: map[*item]*item{}, settled: map[string]bool{}, answered: map[*item]bool{},
		known: map[edge]bool{},
	}
	a.place(records)
	a.turns = turnsOf(append(slices.Clone(past.items), a.items...))
	a.findMints()
	a.findDepths()
	a.number()
	a.pairCalls()
	a.findEdges()
	a.findAnomalies()
	if absence {
		a.findAbsences()
	}
	return a
}

// place decides conflicts, joins decisions to steps and fixes the order.
func (a *analysis) place(records []*record) {
	var steps, decisions []*item
	for _, r := range records {
		it := &item{Step: r.step, rec: r, segment: a.past.segments, depth: -1}
		if it.Type == acs.TypeDecision {
			it.decision = true
			decisions = append(decisions, it)
			continue
		}
		it.hook = acs.HookOf(it.Method)
		steps = append(steps, it)
	}
	slices.SortFunc(steps, func(x, y *item) int { return compareSteps(x.Step, y.Step) })
	a.decideConflicts(steps)
	a.join(steps, decisions)
	a.items = inOrder(steps, decisions)
	number := map[string]int{}
	for i, it := range a.items {
		it.pos = i
		if it.decision {
			number[it.request]++
			it.nth = a.past.decisions[it.request] + number[it.request]
		}
	}
}

// decideConflicts: of several accepted steps with one step_id the winner is
// the one already sealed, else the first unskewed one, else the first.
func (a *analysis) decideConflicts(steps []*item) {
	for _, it := range steps {
		if it.rejected() {
			continue
		}
		best := a.byStep[it.StepID]
		if best == nil || best.Skewed && !it.Skewed {
			a.byStep[it.StepID] = it
		}
	}
	for id := range a.byStep {
		if a.past.accepted[id] != nil {
			delete(a.byStep, id)
		}
	}
	for _, it := range steps {
		if it.rejected() {
			continue
		}
		it.winner = a.byStep[it.StepID] == it
		it.loser = !it.winner
		it.counted = it.winner && it.hook != acs.HookHandshake
	}
}

// join finds the step that each decision answers.
func (a *analysis) join(steps, decisions []*item) {
	rejected := map[string]*item{}
	byID := map[string]*item{}
	for _, it := range steps {
		if it.rejected() && rejected[it.StepID] == nil {
			rejected[it.StepID] = it
		}
		if it.winner && it.ID != "" && it.ID != "null" && byID[it.ID] == nil {
			byID[it.ID] = it
		}
	}
	for _, d := range decisions {
		if d.ErrorResponse {
			d.request = d.ID
			if s := byID[d.ID]; s != nil {
				d.answers, d.request = s, s.StepID
			}
			continue
		}
		d.request = d.StepID
		switch {
		case a.past.accepted[d.StepID] != nil:
			d.earlier = a.past.accepted[d.StepID]
		case a.byStep[d.StepID] != nil:
			d.answers = a.byStep[d.StepID]
		case a.past.rejected[d.StepID] != nil:
			d.earlier = a.past.rejected[d.StepID]
		case rejected[d.StepID] != nil:
			d.answers = rejected[d.StepID]
		}
	}
}

// named resolves a reference to a step: the accepted winner of that id, here
// or in what is remembered.
func (a *analysis) named(id string) *item {
	if id == "" {
		return nil
	}
	if it := a.past.accepted[id]; it != nil {
		return it
	}
	return a.byStep[id]
}

// number gives every node its number in the run, the segment node first.
func (a *analysis) number() {
	n := a.past.nodes
	own := false
	for _, it := range a.items {
		own = own || it.decision || it.hook != acs.HookHandshake || it.rejected()
	}
	if own && a.past.dag != nil {
		n++
		a.segmentNode = &item{segmentRef: true, node: n, pos: -1, segment: a.past.segments}
	}
	for _, it := range a.items {
		if it.decision || it.hook != acs.HookHandshake || it.rejected() {
			n++
			it.node = n
		}
	}
}

// nodes of the segment in order, the segment node among them.
func (a *analysis) nodeItems() []*item {
	var out []*item
	if a.segmentNode != nil {
		out = append(out, a.segmentNode)
	}
	for _, it := range a.items {
		if it.node > 0 {
			out = append(out, it)
		}
	}
	return out
}
