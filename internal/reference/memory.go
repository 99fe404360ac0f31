package reference

import (
	"slices"
	"strconv"

	"provstream/internal/acs"
)

// history is what a run keeps of its sealed segments. The items themselves
// stand for the cumulative parts of the summaries and for what the turns need;
// everything that a later record may refer to is in the maps, and stands there
// only when it was remembered.
type history struct {
	items    []*item
	segments int // sealed ones, with or without a DAG
	facts    []Fact
	left     []Fact // about no single step: they stand last

	dag    *dag // the last one
	dagIDs []string
	nodes  int

	copies, stepIDs    map[string]bool
	accepted, rejected map[string]*item
	decisions          map[string]int // by request_id
	ids                map[string]*rememberedID
	skills, subagents  map[string]bool
	openMCP            map[string][]*item

	sessionStart, agentTrigger bool
	agents                     []string
	heads                      []string
	lastAsk                    bool

	limited bool // a record was not remembered
	hashes  int

	// What size seals left open and no seal has told.
	openCalls     map[string]bool // step_ids
	openSubagents map[string]int  // session → starts
	openTurns     map[string]bool
	noStart       bool
}

type rememberedID struct {
	depth     int
	retrieval bool
}

func newHistory() *history {
	return &history{
		copies: map[string]bool{}, stepIDs: map[string]bool{}, accepted: map[string]*item{}, rejected: map[string]*item{},
		decisions: map[string]int{}, ids: map[string]*rememberedID{},
		skills: map[string]bool{}, subagents: map[string]bool{}, openMCP: map[string][]*item{},
		openCalls: map[string]bool{}, openSubagents: map[string]int{}, openTurns: map[string]bool{},
	}
}

// seal takes over a segment that is sealed for good. told says that absences
// were checked; limit is the largest number of hashes a run may hold.
func (h *history) seal(a *analysis, d *dag, checked bool, limit int) {
	settle(h, a)
	fits := true
	for _, it := range a.items {
		it.gaveNoDAG = d == nil
		if !h.remember(a, it, checked, limit) {
			if fits && !h.limited { // the first of the run
				it.sessionFacts = append(it.sessionFacts, Fact{Code: "memory_limit", StepID: it.stepID()})
			}
			fits = false
		}
		h.note(it)
		if t := a.turns[it.turn()]; !checked && it.counted && t != nil && t.start == it && t.end == nil {
			h.openTurns[t.id] = true
		}
	}
	h.limited = h.limited || !fits
	if h.segments == 0 && !checked && len(a.items) > 0 {
		h.noStart = true
	}
	if h.sessionStart {
		h.noStart = false
	}
	h.facts = append(h.facts, told(a.items, true)...)
	if d != nil {
		h.dag = d
		h.dagIDs = append(h.dagIDs, d.id)
		for _, it := range a.nodeItems() {
			h.nodes = max(h.nodes, it.node)
		}
	}
	h.items = append(h.items, a.items...)
	if len(a.items) > 0 {
		h.segments++
	}
	if checked {
		h.tellLeft(a)
	}
}

// settle strikes what this segment answers from what was left open.
func settle(h *history, a *analysis) {
	for id := range a.settled {
		delete(h.openCalls, id)
	}
	for result, call := range a.calls {
		if isMCP(result) && call.segment != h.segments {
			h.openMCP[mcpKey(call)] = slices.DeleteFunc(h.openMCP[mcpKey(call)], func(it *item) bool { return it == call })
		}
	}
	for _, it := range a.items {
		if it.counted && it.hook == acs.HookSubagentStop {
			delete(h.openSubagents, it.SubagentSessionID)
		}
	}
}

// remember keeps the hashes of a record, all or none. It reports whether they
// fitted.
func (h *history) remember(a *analysis, it *item, checked bool, limit int) bool {
	need := 1
	if !h.stepIDs[it.stepID()] {
		need++
	}
	for _, id := range it.ids() {
		if h.ids[id] == nil {
			need++
		}
	}
	mcp := it.counted && isMCP(it) && !it.Answer && mcpKey(it) != "" && !a.answered[it]
	if it.counted {
		need += len(it.objects()) + h.openHashes(a, it, checked)
		if mcp {
			need += 2
		}
	}
	if h.hashes+need > limit {
		return false
	}
	h.hashes += need
	h.copies[copyKey(it.Step)] = true
	h.stepIDs[it.stepID()] = true
	h.rememberReferences(a, it, checked)
	if mcp {
		h.openMCP[mcpKey(it)] = append(h.openMCP[mcpKey(it)], it)
	}
	return true
}

// openHashes counts a skill, a subagent and what a size seal leaves open.
func (h *history) openHashes(a *analysis, it *item, checked bool) int {
	n := 0
	switch it.hook {
	case acs.HookSkillRegister:
		n++
	case acs.HookSubagentStart:
		n++
		if !checked && a.first(stopOf(it.SubagentSessionID)) == nil {
			n++
		}
	}
	if !checked && a.callOpen(it) {
		n++
	}
	return n
}

func (h *history) rememberReferences(a *analysis, it *item, checked bool) {
	switch {
	case it.decision:
		h.decisions[it.request]++
	case it.rejected():
		if h.rejected[it.StepID] == nil {
			h.rejected[it.StepID] = it
		}
	case it.winner || h.accepted[it.StepID] == nil:
		h.accepted[it.StepID] = it
	}
	for _, id := range it.ids() {
		if h.ids[id] == nil {
			h.ids[id] = &rememberedID{depth: a.depth(id), retrieval: isRetrieval(a.mints[id].at)}
		}
	}
	if !it.counted {
		return
	}
	switch it.hook {
	case acs.HookSkillRegister:
		h.skills[skillKey(it)] = true
	case acs.HookSubagentStart:
		h.subagents[it.SubagentSessionID] = true
		if !checked && a.first(stopOf(it.SubagentSessionID)) == nil {
			h.openSubagents[it.SubagentSessionID]++
		}
	}
	if !checked && a.callOpen(it) {
		h.openCalls[it.StepID] = true
	}
}

// note keeps the small facts about a run that need no hash.
func (h *history) note(it *item) {
	h.sessionStart = h.sessionStart || it.counted && it.hook == acs.HookSessionStart
	h.agentTrigger = h.agentTrigger || it.counted && it.hook == acs.HookAgentTrigger
	if !it.decision && !it.rejected() && it.AgentID != "" && len(h.agents) < 100 && !setOf(h.agents)[it.AgentID] {
		h.agents = append(h.agents, it.AgentID)
	}
	if !it.decision {
		return
	}
	h.lastAsk = it.Decision == "ask"
	if !it.rejected() && it.DecisionChainHash != "" {
		h.heads = append(h.heads, it.DecisionChainHash)
		if len(h.heads) > 16 {
			h.heads = h.heads[1:]
		}
	}
}

// tellLeft tells, once, what size seals left open: in the session summary
// only, one fact a code, without a step.
func (h *history) tellLeft(a *analysis) {
	left := []Fact{}
	if len(h.openCalls) > 0 {
		left = append(left, Fact{Code: "call_without_result", Detail: strconv.Itoa(len(h.openCalls))})
	}
	if h.noStart {
		left = append(left, Fact{Code: "missing_session_start"})
	}
	for _, id := range sortedKeys(h.openTurns) {
		if t := a.turns[id]; t != nil && t.end == nil {
			left = append(left, Fact{Code: "missing_turn_end", Detail: id})
		}
	}
	starts := 0
	for _, n := range h.openSubagents {
		starts += n
	}
	if starts > 0 {
		left = append(left, Fact{Code: "subagent_unfinished", Detail: strconv.Itoa(starts)})
	}
	h.left = append(h.left, left...)
	clear(h.openCalls)
	clear(h.openSubagents)
	clear(h.openTurns)
	h.noStart = false
}

func sortedKeys(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return sortedSet(out)
}
