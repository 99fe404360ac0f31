package reference

import (
	"cmp"
	"slices"
	"strings"

	"provstream/internal/acs"
)

// edge points from effect to cause.
type edge struct {
	from, to *item
	kind     string
}

// nodeKind is the Kindgi kind of a record.
func nodeKind(it *item) string {
	if it.decision {
		return "policy-decision"
	}
	if it.rejected() {
		return "event"
	}
	switch it.hook {
	case acs.HookUserMessage:
		return "input"
	case acs.HookAgentResponse:
		return "model-output"
	case acs.HookKnowledgeRetrieval:
		return "retrieval"
	case acs.HookToolCallRequest:
		return "tool-call"
	case acs.HookToolCallResult:
		return "tool-result"
	case acs.HookMemoryContextRetrieval:
		return "memory-read"
	case acs.HookMemoryStore:
		return "memory-write"
	case acs.HookPostCompact, acs.HookAgBOMSnapshot:
		return "artifact"
	case acs.HookWrapped:
		switch acs.MCPMethod(it.Method) {
		case "resources/read":
			return "retrieval"
		case "prompts/get":
			return "prompt"
		case "tools/call":
			if it.Answer {
				return "tool-result"
			}
			return "tool-call"
		}
	}
	return "event"
}

// add puts an edge; a cause without a node gives none, self edges are dropped
// and (from, to, kind) stands once.
func (a *analysis) add(from, to *item, kind string) {
	if from == nil || to == nil || from == to || from.node == 0 || to.node == 0 {
		return
	}
	e := edge{from, to, kind}
	if !a.known[e] {
		a.known[e] = true
		a.edges = append(a.edges, e)
	}
}

// node is where a resolved step stands for an edge: itself, or the segment
// node when it lies in an earlier segment that gave a DAG.
func (a *analysis) node(it *item) *item {
	if it == nil || it.segment == a.past.segments {
		return it
	}
	if it.gaveNoDAG {
		return nil
	}
	return a.segmentNode
}

// findEdges applies the edge rules 1 to 8 and keeps the graph acyclic.
func (a *analysis) findEdges() {
	for _, it := range a.items {
		if it.node == 0 {
			continue
		}
		if it.carries() {
			a.rule1(it)
		}
		if !it.decision {
			a.rule3(it)
		}
		if it.counted {
			a.rule2(it)
			a.rule4(it)
			a.rule5(it)
			a.rule7(it)
			a.rule8(it)
		}
		if it.decision {
			a.rule6(it)
		}
	}
	a.cutCycles()
	slices.SortFunc(a.edges, func(x, y edge) int {
		return cmp.Or(cmp.Compare(x.from.node, y.from.node), cmp.Compare(x.to.node, y.to.node), strings.Compare(x.kind, y.kind))
	})
}

// rule1: declared lineage.
func (a *analysis) rule1(it *item) {
	stop := it.hook == acs.HookSubagentStop && !it.decision
	for _, o := range it.objects() {
		m := a.mints[o.ID]
		isMint := m != nil && m.at == it
		stated := map[string]bool{} // parents that need no edge of their own
		if !isMint {
			to, kind := a.source(o.ID)
			a.add(it, to, kind)
			if m == nil { // minted in an earlier segment: its parents are not known any more
				continue
			}
			stated = setOf(m.first.DerivedFrom)
		}
		for _, q := range o.DerivedFrom {
			if !stop && !stated[q] {
				to, kind := a.source(q)
				a.add(it, to, kind)
			}
		}
	}
}

// pairCalls finds the call of each result of the segment, and which results
// have none.
func (a *analysis) pairCalls() {
	for _, it := range a.items {
		if !it.counted {
			continue
		}
		if it.hook == acs.HookToolCallResult && it.RequestIDRef != "" {
			call := a.named(it.RequestIDRef)
			if call != nil && (call.segment != a.past.segments || call.hook == acs.HookToolCallRequest) {
				a.pair(it, call)
			}
		}
		if isMCP(it) && it.Answer {
			if call := a.mcpRequest(it); call != nil {
				a.pair(it, call)
			}
		}
	}
	for _, it := range a.items {
		if it.counted && it.hook == acs.HookToolCallResult && it.RequestIDRef == "" {
			for _, call := range a.items[:it.pos] {
				if call.counted && call.hook == acs.HookToolCallRequest && call.turn() == it.turn() &&
					call.Tool == it.Tool && !a.answered[call] {
					a.pair(it, call)
					it.inferredCall = true
					break
				}
			}
		}
	}
	for _, it := range a.items {
		if it.decision && it.Decision == "deny" && !it.rejected() && it.earlier != nil {
			a.settled[it.request] = true
		}
	}
}

func (a *analysis) pair(result, call *item) {
	a.calls[result] = call
	a.answered[call] = true
	if call.segment != a.past.segments {
		a.settled[call.StepID] = true
	}
}

func isMCP(it *item) bool { return it.hook == acs.HookWrapped && acs.MCPMethod(it.Method) != "" }

// mcpKey is equal for a request and its answers: MCP method and inner id. A
// message without an id has none.
func mcpKey(it *item) string {
	if it.InnerID == "" {
		return ""
	}
	return acs.MCPMethod(it.Method) + "\x00" + it.InnerID
}

// mcpRequest is the last earlier request of an MCP answer.
func (a *analysis) mcpRequest(answer *item) *item {
	if mcpKey(answer) == "" {
		return nil
	}
	for i := answer.pos - 1; i >= 0; i-- {
		it := a.items[i]
		if it.counted && isMCP(it) && !it.Answer && mcpKey(it) == mcpKey(answer) {
			return it
		}
	}
	if open := a.past.openMCP[mcpKey(answer)]; len(open) > 0 {
		return open[len(open)-1]
	}
	return nil
}

// rule2: result → call.
func (a *analysis) rule2(it *item) {
	if call := a.calls[it]; call != nil {
		a.add(it, a.node(call), "produced")
	}
}

// lastBefore is the last counted step of the segment before position pos that
// fits.
func (a *analysis) lastBefore(pos int, fits func(*item) bool) *item {
	for i := pos - 1; i >= 0; i-- {
		if a.items[i].counted && fits(a.items[i]) {
			return a.items[i]
		}
	}
	return nil
}

// first is the first counted step of the segment that fits.
func (a *analysis) first(fits func(*item) bool) *item {
	for _, it := range a.items {
		if it.counted && fits(it) {
			return it
		}
	}
	return nil
}

func is(h acs.Hook) func(*item) bool { return func(it *item) bool { return it.hook == h } }

// rule3: where a step stands in turn and session.
func (a *analysis) rule3(it *item) {
	if t := a.turns[it.turn()]; it.turn() != "" && t.start != nil {
		if t.start == it {
			a.rule3TurnStart(it, t)
			return
		}
		kind := "caused-by"
		if nodeKind(it) == "tool-call" {
			kind = "invoked"
		}
		a.add(it, a.node(t.start), kind)
		return
	}
	a.add(it, a.sessionStart(it), "caused-by")
}

func (a *analysis) rule3TurnStart(it *item, t *turn) {
	if p := a.turns[t.parent]; t.parent != "" && p != nil && p != t && p.start != nil {
		a.add(it, a.node(p.start), "caused-by")
		return
	}
	if trigger := a.lastBefore(it.pos, is(acs.HookAgentTrigger)); trigger != nil {
		a.add(it, trigger, "caused-by")
		return
	}
	if a.past.agentTrigger {
		a.add(it, a.segmentNode, "caused-by")
		return
	}
	a.add(it, a.sessionStart(it), "caused-by")
}

// sessionStart is the last one at or before the step, else the first.
func (a *analysis) sessionStart(it *item) *item {
	if s := a.lastBefore(it.pos+1, is(acs.HookSessionStart)); s != nil {
		return s
	}
	if a.past.sessionStart {
		return a.segmentNode
	}
	return a.first(is(acs.HookSessionStart))
}

// rule4: compaction.
func (a *analysis) rule4(it *item) {
	entries := it.EntriesToCompact
	if it.hook == acs.HookPostCompact {
		entries = it.EntriesCompacted
	} else if it.hook != acs.HookPreCompact {
		return
	}
	for _, id := range entries {
		a.add(it, a.node(a.named(id)), "influenced-by")
	}
	if it.hook == acs.HookPostCompact {
		set := sortedSet(entries)
		a.add(it, a.lastBefore(it.pos, func(pre *item) bool {
			return pre.hook == acs.HookPreCompact && slices.Equal(sortedSet(pre.EntriesToCompact), set)
		}), "caused-by")
	}
}

// rule5: subagents.
func (a *analysis) rule5(it *item) {
	switch it.hook {
	case acs.HookSubagentStart:
		a.add(it, a.node(a.named(it.ParentStepID)), "caused-by")
	case acs.HookSubagentStop:
		start := func(s *item) bool {
			return s.hook == acs.HookSubagentStart && s.SubagentSessionID == it.SubagentSessionID
		}
		if s := a.lastBefore(it.pos, start); s != nil {
			a.add(it, s, "caused-by")
		} else if a.past.subagents[it.SubagentSessionID] {
			a.add(it, a.segmentNode, "caused-by")
		} else {
			a.add(it, a.first(start), "caused-by")
		}
	}
}

// rule6: decisions. it is the decision.
func (a *analysis) rule6(it *item) {
	if it.answers != nil && it.answers.winner {
		a.add(it.answers, it, "checked-against")
	}
	if it.earlier != nil {
		a.add(it, a.node(it.earlier), "caused-by")
	}
	for _, id := range it.Cited {
		if to, _ := a.source(id); to != it.answers {
			a.add(it, to, "influenced-by")
		}
	}
}

func skillKey(it *item) string {
	return it.SkillID + "\x00" + it.DigestAlgorithm + "\x00" + it.DigestValue
}

// rule7: skills and the AgBOM.
func (a *analysis) rule7(it *item) {
	switch it.hook {
	case acs.HookSkillLoad:
		register := func(s *item) bool { return s.hook == acs.HookSkillRegister && skillKey(s) == skillKey(it) }
		if s := a.lastBefore(it.pos, register); s != nil {
			a.add(it, s, "caused-by")
		} else if a.past.skills[skillKey(it)] {
			a.add(it, a.segmentNode, "caused-by")
		} else {
			a.add(it, a.first(register), "caused-by")
		}
		a.add(it, a.node(a.named(it.ParentStepID)), "caused-by")
	case acs.HookAgBOMChanged:
		a.add(it, a.node(a.named(it.TriggerStepID)), "caused-by")
	}
}

// rule8: undeclared lineage.
func (a *analysis) rule8(it *item) {
	if !seenByModel(it) || len(it.objects()) > 0 {
		return
	}
	if earlier := a.lastBefore(it.pos, seenByModel); earlier != nil {
		a.add(it, earlier, "influenced-by")
		it.inferredLine = true
	}
}

func seenByModel(it *item) bool {
	switch nodeKind(it) {
	case "input", "prompt", "retrieval", "memory-read", "tool-call", "tool-result", "model-output", "memory-write":
		return true
	}
	return false
}

// cutCycles removes, in every strongly connected component, the edges whose
// cause stands later; for this test a decision stands just before its step.
func (a *analysis) cutCycles() {
	place := map[*item]int{}
	after := map[*item][]*item{}
	for _, it := range a.items {
		if it.answers != nil {
			after[it.answers] = append(after[it.answers], it)
		}
	}
	for _, it := range a.items {
		if it.decision && it.answers != nil {
			continue
		}
		for _, d := range after[it] {
			place[d] = len(place) + 1
		}
		place[it] = len(place) + 1
	}
	causes := map[*item][]*item{}
	for _, e := range a.edges {
		causes[e.from] = append(causes[e.from], e.to)
	}
	component := map[*item]int{}
	for n, members := range components(a.nodeItems(), func(it *item) []*item { return causes[it] }) {
		for _, it := range members {
			component[it] = n
		}
	}
	var kept []edge
	for _, e := range a.edges {
		if component[e.from] == component[e.to] && place[e.to] > place[e.from] {
			e.from.fact("lineage_cycle", nodeID(e.to))
			continue
		}
		kept = append(kept, e)
	}
	a.edges = kept
}
