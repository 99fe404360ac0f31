package generate

import (
	"slices"

	"provstream/internal/acs"
)

// declarationFaults are envelopes that say something untrue about others.
func declarationFaults() []Fault {
	return []Fault{
		{
			Name: "turn_id_mismatch", About: "a turnEnd whose metadata names another turn", Anomalies: codes{"turn_id_mismatch": 1},
			happen: func(s *session) { s.first(acs.MethodTurnEnd).metaTurn = "another-turn" },
		},
		{
			Name: "turn_steps_mismatch", About: "a turnEnd that counts steps nobody saw", Anomalies: codes{"turn_steps_mismatch": 1},
			lie: func(s *session) { add(&s.first(acs.MethodTurnEnd).payload, "step_count", 5) },
		},
		{
			Name: "tool_call_count_mismatch", About: "a turnEnd that hides a tool call", Anomalies: codes{"tool_call_count_mismatch": 1},
			lie: func(s *session) { add(&s.first(acs.MethodTurnEnd).payload, "tool_call_count", -1) },
		},
		{
			Name: "turn_summary_lineage", About: "a turn summary that names half of its sources", Anomalies: codes{"turn_summary_lineage": 1},
			lie: func(s *session) { halve(s.last(acs.MethodTurnEnd)) },
		},
		{
			Name: "compaction_lineage", About: "a compaction that launders lineage: its summary names half of the union",
			Anomalies: codes{"compaction_lineage": 1},
			lie: func(s *session) {
				e := s.first(acs.MethodPostCompact)
				halve(e)
				e.payload.set("lineage_depth_after", s.depthAfter(e.prov[0].parents))
			},
		},
		{
			Name: "compaction_summary", About: "a preCompact whose provenance summary is wrong in two members",
			Anomalies: codes{"compaction_summary": 1},
			lie: func(s *session) {
				e := s.first(acs.MethodPreCompact)
				sum := e.payload.get("pre_compact_provenance_summary").(object)
				add(&sum, "entry_count", 1)
				sum.set("origins_seen", []string{"system"})
				e.payload.set("pre_compact_provenance_summary", sum)
			},
		},
		{
			Name: "compaction_depth", About: "a postCompact that understates lineage_depth_after", Anomalies: codes{"compaction_depth": 1},
			lie: func(s *session) { s.first(acs.MethodPostCompact).payload.set("lineage_depth_after", 0) },
		},
		{
			Name: "compaction_unknown_step", About: "a compaction that lists a step nobody sent", Anomalies: codes{"compaction_unknown_step": 2},
			lie: func(s *session) {
				unknown := s.uuid()
				pre, post := s.first(acs.MethodPreCompact), s.first(acs.MethodPostCompact)
				pre.payload.set("entries_to_compact", append(ids(pre.compacts), unknown))
				post.payload.set("entries_compacted", append(ids(post.compacts), unknown))
			},
		},
	}
}

// add adds n to a number of the object.
func add(o *object, name string, n int) { o.set(name, o.get(name).(int)+n) }

// halve cuts the lineage of what an event minted to half.
func halve(e *event) {
	p := e.prov[0]
	p.parents = slices.Clone(p.parents[:len(p.parents)/2])
}

// lineageFaults are Provenance objects that contradict each other.
func lineageFaults() []Fault {
	return []Fault{
		{
			Name: "unresolved_parent", About: "lineage that leads nowhere", Anomalies: codes{"unresolved_parent": 2},
			happen: func(s *session) { s.beforeEnd(func() { s.note("ghost-1", "ghost-2") }) },
		},
		{
			Name: "provenance_conflict", About: "an id that comes again with another source and other parents",
			Anomalies: codes{"provenance_conflict": 1},
			happen: func(s *session) {
				s.beforeEnd(func() {
					first := s.note()
					e := s.note()
					again := &prov{id: first.prov[0].id, origin: first.prov[0].origin, source: "elsewhere", parents: s.recent(1)}
					e.prov[0] = again
					e.payload.set("content", obj("value", "said again", "provenance", again))
				})
			},
		},
		{
			Name: "lineage_cycle", About: "two ids that derive from each other", Anomalies: codes{"lineage_cycle": 1},
			happen: func(s *session) {
				s.beforeEnd(func() {
					a := s.note()
					b := s.note(a.prov[0].id)
					a.prov[0].parents = []string{b.prov[0].id}
				})
			},
		},
		{
			Name: "unknown_origin", About: "an origin that ACS does not know", Anomalies: codes{"unknown_origin": 1},
			happen: func(s *session) { s.beforeEnd(func() { s.note().prov[0].origin = "hearsay" }) },
		},
		{
			Name: "provenance_missing", About: "a call with two arguments without provenance though the producer promised it",
			Anomalies: codes{"provenance_missing": 1},
			happen: func(s *session) {
				s.beforeEnd(func() {
					call := s.add(acs.MethodToolCallRequest, obj("tool", obj("name", "get_parcel"),
						"arguments", obj("a", obj("value", 1), "b", obj("value", "two"))))
					s.result(call, "get_parcel", true)
				})
			},
		},
		{
			Name: "skill_unregistered", About: "a skill that was never registered", Anomalies: codes{"skill_unregistered": 1},
			happen: func(s *session) {
				s.beforeEnd(func() {
					s.add(acs.MethodSkillLoad, obj("skill_id", "skills/unheard-of", "digest", digest("?"), "load_trigger", "user",
						"load_path", []object{obj("skill_id", "skills/unheard-of")}))
				})
			},
		},
		{
			Name: "result_without_call", About: "tool and MCP results of calls nobody made", Anomalies: codes{"result_without_call": 2},
			happen: func(s *session) {
				s.beforeEnd(func() {
					s.result(&event{id: s.uuid()}, "get_parcel", true)
					s.add("protocols/MCP/tools/call", obj("jsonrpc", "2.0", "id", "lost", "result", obj("content", []object{})))
				})
			},
		},
		{
			Name: "subagent_unstarted", About: "a subagent that ends and never began", Anomalies: codes{"subagent_unstarted": 1},
			happen: func(s *session) {
				s.beforeEnd(func() { s.add(acs.MethodSubagentStop, obj("subagent_session_id", s.uuid(), "outcome", "failed")) })
			},
		},
	}
}

// absenceFaults are things that never come.
func absenceFaults() []Fault {
	return []Fault{
		{
			Name: "call_without_result", About: "tool and MCP calls that nobody answers", Anomalies: codes{"call_without_result": 2},
			happen: func(s *session) {
				s.beforeEnd(func() {
					s.request("get_parcel")
					s.add("protocols/MCP/tools/call", obj("jsonrpc", "2.0", "id", "lost", "method", "tools/call", "params", obj("name", "weather")))
				})
			},
		},
		{
			Name: "missing_session_start", About: "a session without a beginning", Anomalies: codes{"missing_session_start": 1},
			happen: func(s *session) { s.remove(s.first(acs.MethodSessionStart)) },
		},
		{
			Name: "missing_turn_end", About: "a turn without an end", Anomalies: codes{"missing_turn_end": 1},
			happen: func(s *session) { s.remove(s.last(acs.MethodTurnEnd)) },
		},
		{
			Name: "missing_session_end", About: "a session without an end: it is sealed when it has been silent for --session-idle",
			happen: func(s *session) { s.remove(s.last(acs.MethodSessionEnd)) },
		},
		{
			Name: "subagent_unfinished", About: "a subagent that never ends", Anomalies: codes{"subagent_unfinished": 1},
			happen: func(s *session) {
				s.beforeEnd(func() {
					call := s.first(acs.MethodToolCallRequest)
					s.add(acs.MethodSubagentStart, obj("subagent_session_id", s.uuid(), "parent_session_id", s.id, "parent_step_id", call.id,
						"intent_derivation", "fresh"))
				})
			},
		},
	}
}
