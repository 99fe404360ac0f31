package reference

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"provstream/internal/acs"
)

// perCode is how many facts of one code on one step are told.
const perCode = 20

// findAnomalies makes the checks of rules §6 that need no end of the segment.
// (lineage_cycle is found with the edges.)
func (a *analysis) findAnomalies() {
	agents := setOf(a.past.agents)
	for _, it := range a.items {
		if a.late && it.decision {
			it.fact("decision_after_seal", "")
		} else if a.late {
			it.fact("step_after_seal", "")
		}
		if it.rejected() {
			it.fact("step_rejected", it.Rejected)
		}
		if it.loser {
			it.fact("step_conflict", hex.EncodeToString(it.RequestHash[:]))
		}
		if it.winner && it.Skewed {
			it.fact("clock_skew", strconv.FormatInt((it.EventTime-it.RecordedAt)/1000, 10))
		}
		if !it.decision && !it.rejected() && it.AgentID != "" && !agents[it.AgentID] {
			if len(agents) > 0 {
				it.fact("agent_changed", it.AgentID)
			}
			agents[it.AgentID] = true
		}
		if it.decision && it.answers == nil && it.earlier == nil && !a.past.limited {
			it.fact("decision_without_step", "")
		}
		if it.carries() {
			a.provenanceFacts(it)
		}
		if it.winner {
			a.chainFacts(it)
		}
		if it.counted {
			a.stepFacts(it)
		}
	}
}

// provenanceFacts: unknown origins, unresolved parents, conflicts.
func (a *analysis) provenanceFacts(it *item) {
	stop := it.hook == acs.HookSubagentStop && !it.decision
	for _, o := range it.objects() {
		if acs.ParseOrigin(o.Origin) == acs.OriginUnknown {
			it.fact("unknown_origin", o.Origin)
		}
		m := a.mints[o.ID]
		if m == nil {
			continue // of an earlier segment
		}
		if m.at == it && !stop {
			for _, q := range o.DerivedFrom {
				if !a.resolves(q) {
					it.unresolved = append(it.unresolved, q)
					if !a.past.limited {
						it.fact("unresolved_parent", q)
					}
				}
			}
		}
		if o.Origin != m.first.Origin || o.SourceID != m.first.SourceID ||
			!slices.Equal(sortedSet(o.DerivedFrom), sortedSet(m.first.DerivedFrom)) {
			it.fact("provenance_conflict", o.ID)
		}
	}
}

// chainFacts: chain heads that no decision of the run published.
func (a *analysis) chainFacts(it *item) {
	if it.ChainHash == "" && it.PreCompactChainHash == "" {
		return
	}
	heads := setOf(a.past.heads)
	ask := a.past.lastAsk
	for _, d := range a.items {
		if d.decision && !d.rejected() && d.DecisionChainHash != "" {
			heads[d.DecisionChainHash] = true
		}
		if d.decision && d.pos < it.pos {
			ask = d.Decision == "ask"
		}
	}
	if len(heads) == 0 || ask {
		return
	}
	for _, h := range []string{it.ChainHash, it.PreCompactChainHash} {
		if h != "" && !heads[h] {
			it.fact("chain_gap", h)
		}
	}
}

func (a *analysis) stepFacts(it *item) {
	if it.hook == acs.HookUnknown || it.hook == acs.HookPing {
		it.fact("unknown_method", it.Method)
	}
	if it.ProvenanceMissing > 0 && a.deterministic() {
		it.fact("provenance_missing", strconv.Itoa(it.ProvenanceMissing))
	}
	switch it.hook {
	case acs.HookTurnStart, acs.HookTurnEnd:
		if it.PayloadTurnID != "" && it.TurnID != "" && it.PayloadTurnID != it.TurnID {
			it.fact("turn_id_mismatch", it.TurnID)
		}
		if t := a.turns[it.turn()]; t != nil && t.end == it {
			a.turnEndFacts(it, t)
		}
	case acs.HookPreCompact, acs.HookPostCompact:
		a.compactionFacts(it)
	case acs.HookSubagentStop:
		start := func(s *item) bool {
			return s.hook == acs.HookSubagentStart && s.SubagentSessionID == it.SubagentSessionID
		}
		if a.first(start) == nil && !a.past.subagents[it.SubagentSessionID] && !a.past.limited {
			it.fact("subagent_unstarted", it.SubagentSessionID)
		}
	case acs.HookSkillLoad:
		register := func(s *item) bool { return s.hook == acs.HookSkillRegister && skillKey(s) == skillKey(it) }
		if a.first(register) == nil && !a.past.skills[skillKey(it)] && !a.past.limited {
			it.fact("skill_unregistered", it.SkillID)
		}
	}
	a.callFacts(it)
}

// callFacts: a result for which rule 2 found no call. A reference that
// resolves nowhere is nothing unusual once the memory of the run was full.
func (a *analysis) callFacts(it *item) {
	result := it.hook == acs.HookToolCallResult
	answer := isMCP(it) && it.Answer && acs.MCPMethod(it.Method) == "tools/call"
	if !result && !answer || a.calls[it] != nil {
		return
	}
	reference := result && it.RequestIDRef != "" && a.named(it.RequestIDRef) == nil || answer && it.InnerID != ""
	if reference && a.past.limited {
		return
	}
	it.fact("result_without_call", it.RequestIDRef)
}

// deterministic: a handshake of the run promised provenance.
func (a *analysis) deterministic() bool {
	return producer(append(slices.Clone(a.past.items), a.items...)) == "deterministic"
}

func (a *analysis) turnEndFacts(it *item, t *turn) {
	met, _ := t.met()
	if it.StepCount.Set && !met {
		it.fact("turn_steps_mismatch", fmt.Sprintf("%s/%d", number(it.StepCount.Value), len(t.members)))
	}
	scope := t.scope()
	if n := calls(scope); it.ToolCallCount.Set && it.ToolCallCount.Value != float64(n) {
		it.fact("tool_call_count_mismatch", fmt.Sprintf("%s/%d", number(it.ToolCallCount.Value), n))
	}
	sealed := func(s *item) bool { return s.counted && s.segment < a.past.segments }
	if a.past.limited && (slices.ContainsFunc(t.steps, sealed) || slices.ContainsFunc(scope, sealed)) {
		return // what earlier steps carried may not be known any more
	}
	if it.HasSummary {
		if missing, extra := difference(idsOf(scope), derived(it)); missing+extra > 0 {
			it.fact("turn_summary_lineage", fmt.Sprintf("missing %d, extra %d", missing, extra))
		}
	}
}

// derived is the union of the parents that a step's objects state.
func derived(it *item) map[string]bool {
	out := map[string]bool{}
	for _, o := range it.objects() {
		for _, q := range o.DerivedFrom {
			out[q] = true
		}
	}
	return out
}

// compactionFacts checks a preCompact or postCompact against the steps it
// lists, unless some of them can no longer be known.
func (a *analysis) compactionFacts(it *item) {
	entries := sortedSet(append(slices.Clone(it.EntriesToCompact), it.EntriesCompacted...))
	var listed []*item
	unverifiable := false
	for _, id := range entries {
		s := a.named(id)
		switch {
		case s != nil && s.counted:
			listed = append(listed, s)
		case s != nil:
		case a.past.limited:
			unverifiable = true
		default:
			it.fact("compaction_unknown_step", id)
		}
	}
	if unverifiable {
		it.fact("compaction_unverifiable", "")
		return
	}
	slices.SortFunc(listed, func(x, y *item) int { return cmp.Or(cmp.Compare(x.segment, y.segment), cmp.Compare(x.pos, y.pos)) })
	if it.hook == acs.HookPreCompact {
		if it.DeclaredSummary != nil {
			if names := differs(it.DeclaredSummary, summarize(listed)); len(names) > 0 {
				it.fact("compaction_summary", strings.Join(names, ","))
			}
		}
		return
	}
	if missing, extra := difference(idsOf(listed), derived(it)); missing+extra > 0 {
		it.fact("compaction_lineage", fmt.Sprintf("missing %d, extra %d", missing, extra))
	}
	ours := 0
	for q := range derived(it) {
		if a.resolves(q) {
			ours = max(ours, 1+a.depth(q))
		}
	}
	if it.LineageDepthAfter.Set && it.LineageDepthAfter.Value != float64(ours) {
		it.fact("compaction_depth", fmt.Sprintf("%s/%d", number(it.LineageDepthAfter.Value), ours))
	}
}

// differs names the members of a declared summary that are not ours.
func differs(d *acs.DeclaredSummary, ours provenanceSummary) []string {
	var names []string
	if d.HasEarliestStepIDByOrigin {
		same := len(d.EarliestStepIDByOrigin) == len(ours.earliest)
		for _, v := range d.EarliestStepIDByOrigin {
			same = same && ours.earliest[v.Origin] == v.StepID && ours.earliest[v.Origin] != ""
		}
		if !same {
			names = append(names, "earliest_step_id_by_origin")
		}
	}
	if d.HasEntryCount && d.EntryCount != float64(ours.entries) {
		names = append(names, "entry_count")
	}
	if d.HasEntryCountByOrigin {
		declared := map[string]float64{}
		for _, v := range d.EntryCountByOrigin {
			declared[v.Origin] = v.Count
		}
		same := true
		for o, n := range ours.byOrigin {
			same = same && declared[o] == float64(n)
		}
		for o, n := range declared {
			same = same && n == float64(ours.byOrigin[o])
		}
		if !same {
			names = append(names, "entry_count_by_origin")
		}
	}
	if d.HasMaxLineageDepth && d.MaxLineageDepth != float64(ours.depth) {
		names = append(names, "max_lineage_depth")
	}
	if d.HasOriginsSeen && !slices.Equal(sortedSet(d.OriginsSeen), sortedSet(ours.origins)) {
		names = append(names, "origins_seen")
	}
	return names
}

// findAbsences makes the checks marked ° in rules §6, over this segment.
func (a *analysis) findAbsences() {
	if a.past.segments == 0 && len(a.items) > 0 && a.first(is(acs.HookSessionStart)) == nil {
		a.items[0].fact("missing_session_start", "")
	}
	for _, it := range a.items {
		if !it.counted {
			continue
		}
		if t := a.turns[it.turn()]; it.hook == acs.HookTurnStart && t != nil && t.start == it && t.end == nil {
			it.fact("missing_turn_end", t.id)
		}
		if a.callOpen(it) {
			it.fact("call_without_result", "")
		}
		if it.hook == acs.HookSubagentStart && a.first(stopOf(it.SubagentSessionID)) == nil {
			it.fact("subagent_unfinished", it.SubagentSessionID)
		}
	}
}

func stopOf(session string) func(*item) bool {
	return func(s *item) bool { return s.hook == acs.HookSubagentStop && s.SubagentSessionID == session }
}

// callOpen: a call of this segment with neither a result nor a deny in it.
func (a *analysis) callOpen(it *item) bool {
	request := it.hook == acs.HookToolCallRequest ||
		isMCP(it) && !it.Answer && acs.MCPMethod(it.Method) == "tools/call"
	if !it.counted || !request || a.answered[it] {
		return false
	}
	for _, d := range a.items {
		if d.decision && d.answers == it && !d.rejected() && d.Decision == "deny" {
			return false
		}
	}
	return true
}

// told turns the facts on items into what a summary tells: sorted by run
// order, code and detail, equal ones once, at most 20 of a code on a step.
func told(items []*item, session bool) []Fact {
	var out []Fact
	seen := map[Fact]bool{}
	count := map[[2]string]int{}
	for _, it := range items {
		facts := slices.Clone(it.facts)
		if session {
			facts = append(facts, it.sessionFacts...)
		}
		slices.SortFunc(facts, func(x, y Fact) int {
			return cmp.Or(strings.Compare(x.Code, y.Code), strings.Compare(x.Detail, y.Detail))
		})
		for _, f := range facts {
			key := [2]string{f.StepID, f.Code}
			if seen[f] || count[key] >= perCode {
				continue
			}
			seen[f] = true
			count[key]++
			out = append(out, f)
		}
	}
	return out
}
