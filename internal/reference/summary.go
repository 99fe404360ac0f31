package reference

import (
	"fmt"
	"slices"

	"provstream/internal/acs"
)

const (
	maxFacts     = 100 // anomalies in a summary
	maxSubagents = 100
	maxDAGs      = 100 // dag_ids in a session summary
)

// provenanceSummary is ACS's ProvenanceSummary of a scope.
type provenanceSummary struct {
	origins  []string
	entries  int
	byOrigin map[string]int
	earliest map[string]string
	depth    int
}

// summarize folds the counted steps of a scope, in run order.
func summarize(items []*item) provenanceSummary {
	s := provenanceSummary{byOrigin: map[string]int{}, earliest: map[string]string{}}
	seen := map[string]bool{}
	for _, it := range items {
		if !it.counted {
			continue
		}
		s.entries++
		s.depth = max(s.depth, it.depth)
		for _, o := range it.objects() {
			if acs.ParseOrigin(o.Origin) == acs.OriginUnknown {
				continue
			}
			seen[o.Origin] = true
			s.byOrigin[o.Origin]++
			if s.earliest[o.Origin] == "" {
				s.earliest[o.Origin] = it.StepID
			}
		}
	}
	s.origins = enumOrder(seen)
	return s
}

func (s provenanceSummary) object() object {
	return object{
		"origins_seen": s.origins, "entry_count": s.entries, "entry_count_by_origin": s.byOrigin,
		"earliest_step_id_by_origin": s.earliest, "max_lineage_depth": s.depth,
	}
}

// decisionCounts counts the answers that are neither errors nor rejected.
func decisionCounts(items []*item) object {
	n := map[string]int{}
	for _, it := range items {
		if it.decision && !it.ErrorResponse && !it.rejected() {
			n[it.Decision]++
		}
	}
	o := object{}
	for _, d := range []string{"allow", "deny", "modify", "ask", "defer"} {
		o[d] = n[d]
	}
	return o
}

// times are the first and last event time of the items that have a say: those
// that count, or all when none does.
func times(items []*item, counts func(*item) bool) (first, last int64, ok bool) {
	some := slices.ContainsFunc(items, func(it *item) bool { return it.counted })
	for _, it := range items {
		if some && !counts(it) {
			continue
		}
		t := it.EventTime
		if it.decision {
			t = it.RecordedAt
		}
		if !ok || t < first {
			first = t
		}
		if !ok || t > last {
			last = t
		}
		ok = true
	}
	return first, last, ok
}

func factObjects(facts []Fact) (counts object, list []any) {
	counts, list = object{}, []any{}
	n := map[string]int{}
	for i, f := range facts {
		n[f.Code]++
		counts[f.Code] = n[f.Code]
		if i < maxFacts {
			list = append(list, object{"code": f.Code, "step_id": f.StepID, "detail": f.Detail})
		}
	}
	return counts, list
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// turnSummary is the value of prov.turns without revision and closed_by.
func (r *run) turnSummary(a *analysis, t *turn) (o object, endedAt int64) {
	all := append(slices.Clone(t.steps), t.answers...)
	first, last, _ := times(all, func(it *item) bool { return it.counted })
	members := float64(len(t.members))
	o = object{
		"tenant_id": r.tenant, "session_id": r.session, "agent_id": orNull(agentOf(t.steps)), "turn_id": t.id,
		"outcome": nil, "started_at": stamp(first), "ended_at": stamp(last),
		"step_count": len(t.members), "tool_call_count": calls(t.members), "missing_steps": 0,
		"provenance_summary": summarize(t.members).object(),
		"decisions":          decisionCounts(countedAnswers(t)),
	}
	set(o, "parent_turn_id", t.parent)
	if t.start != nil {
		set(o, "triggered_by", t.start.TriggeredBy)
	}
	if t.end != nil {
		o["outcome"] = orNull(t.end.Outcome)
		if t.end.StepCount.Set {
			o["declared_step_count"] = t.end.StepCount.Value
			if met, _ := t.met(); !met {
				o["missing_steps"] = max(0, t.end.StepCount.Value-members)
			}
		}
		if t.end.ToolCallCount.Set {
			o["declared_tool_call_count"] = t.end.ToolCallCount.Value
		}
	}
	o["anomaly_counts"], o["anomalies"] = factObjects(r.turnFacts(a, t))
	return o, last
}

// countedAnswers are the decisions on the counted steps of the turn.
func countedAnswers(t *turn) []*item {
	var out []*item
	for _, d := range t.answers {
		if d.answers.counted {
			out = append(out, d)
		}
	}
	return out
}

// turnFacts are the facts on the turn's steps and on the decisions about
// them, segment by segment.
func (r *run) turnFacts(a *analysis, t *turn) []Fact {
	var out []Fact
	for n := 0; n <= a.past.segments; n++ {
		var items []*item
		for _, it := range append(slices.Clone(t.steps), t.answers...) {
			if it.segment == n {
				items = append(items, it)
			}
		}
		slices.SortFunc(items, func(x, y *item) int { return x.pos - y.pos })
		out = append(out, told(items, false)...)
	}
	return out
}

func agentOf(items []*item) string {
	for _, it := range items {
		if !it.decision && !it.rejected() && it.AgentID != "" {
			return it.AgentID
		}
	}
	return ""
}

// producer is deterministic if any handshake said so, else what one said.
func producer(items []*item) string {
	said := ""
	for _, it := range items {
		if !it.decision && it.winner && it.hook == acs.HookHandshake && it.ProvenanceProducer != "" && said != "deterministic" {
			said = it.ProvenanceProducer
		}
	}
	return said
}

// sessionSummary is the value of prov.sessions but for revision, final and
// sealed_by.
func (r *run) sessionSummary(a *analysis) (o object, endedAt int64) {
	items := append(slices.Clone(a.past.items), a.items...)
	first, last, _ := times(items, func(it *item) bool { return it.winner })
	open := 0
	for _, s := range r.turns {
		if s.open {
			open++
		}
	}
	steps, compactions := 0, 0
	name := ""
	for _, it := range items {
		if it.counted {
			steps++
			if it.hook == acs.HookPostCompact {
				compactions++
			}
		}
		if name == "" && !it.decision && !it.rejected() {
			name = it.AgentName
		}
	}
	subagents, subagentCount := subagentsOf(items)
	dags := a.past.dagIDs
	if len(dags) > maxDAGs {
		dags = dags[len(dags)-maxDAGs:]
	}
	o = object{
		"tenant_id": r.tenant, "session_id": r.session, "agent_id": orNull(agentOf(items)),
		"started_at": stamp(first), "ended_at": stamp(last),
		"turn_count": len(a.turns), "open_turn_count": open, "step_count": steps, "tool_call_count": calls(items),
		"decisions": decisionCounts(items), "compactions": compactions,
		"subagents": subagents, "subagent_count": subagentCount,
		"provenance_summary": summarize(items).object(),
		"dag_ids":            append([]string{}, dags...), "segment_count": len(a.past.dagIDs),
	}
	set(o, "agent_name", name)
	set(o, "provenance_producer", producer(items))
	o["anomaly_counts"], o["anomalies"] = factObjects(slices.Concat(a.past.facts, told(a.items, true), a.past.left))
	return o, last
}

// subagentsOf lists the subagents by first appearance with their last outcome.
func subagentsOf(items []*item) (list []any, count int) {
	list = []any{}
	outcome := map[string]string{}
	var order []string
	for _, it := range items {
		if !it.counted || it.hook != acs.HookSubagentStart && it.hook != acs.HookSubagentStop {
			continue
		}
		id := it.SubagentSessionID
		if _, ok := outcome[id]; !ok {
			outcome[id] = ""
			order = append(order, id)
		}
		if it.hook == acs.HookSubagentStop && it.Outcome != "" {
			outcome[id] = it.Outcome
		}
	}
	for i, id := range order {
		if i == maxSubagents {
			break
		}
		o := object{"session_id": id}
		set(o, "outcome", outcome[id])
		list = append(list, o)
	}
	return list, len(order)
}

func turnEventID(key, id string, revision int) string {
	return fmt.Sprintf("%s#%s#%d", key, id, revision)
}
