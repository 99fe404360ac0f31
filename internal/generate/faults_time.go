package generate

import (
	"fmt"
	"strings"

	"provstream/internal/acs"
)

// needsTime is what a fault needs that plays after a seal: the log's clock must
// pass between its records, as it does when they are sent in real time.
const needsTime = "the records after sessionEnd must be sent after the run was sealed"

// lateFaults are records that come out of turn.
func lateFaults() []Fault {
	return []Fault{
		{
			Name: "out_of_order", About: "records that reach Kafka in another order than they happened",
			happen: func(s *session) {
				for _, e := range s.events {
					if e.method != acs.MethodSessionEnd && e.batch == 0 {
						e.lag += s.rng.Int64N(max(1, min(120_000, s.now-e.at)))
					}
				}
			},
		},
		{
			Name: "step_after_seal", About: "a step five minutes after sessionEnd", Anomalies: codes{"step_after_seal": 1}, Needs: needsTime,
			happen: func(s *session) { s.afterEnd(300_000, func() { s.note(s.recent(1)...) }) },
		},
		{
			Name: "decision_after_seal", About: "a decision five minutes after sessionEnd", Anomalies: codes{"decision_after_seal": 1}, Needs: needsTime,
			happen: func(s *session) {
				e := s.last(acs.MethodUserMessage)
				s.decide(e, "deny").after = s.now - e.at + 300_000
			},
		},
		{
			Name: "resumed_after_idle", About: "a session that goes on two hours later: two segments",
			Needs: "--session-idle must pass between its halves",
			happen: func(s *session) {
				s.beforeEnd(func() {
					s.now += 7_200_000
					s.beginTurn("user_message", "")
					s.userMessage()
					s.toolCall("get_parcel", false)
					s.response()
					s.endTurn("completed")
				})
			},
		},
		{
			Name: "memory_limit", About: "more ids than are remembered of a run, then a compaction of what was forgotten (compaction_unverifiable)",
			Anomalies: codes{"memory_limit": 1, "compaction_unverifiable": 2},
			Needs:     "aggregator --max-run-ids=500, and --session-idle must pass between its halves",
			happen: func(s *session) {
				s.beforeEnd(func() {
					for range 4 {
						s.manyIDs(400)
					}
					s.now += 7_200_000
					s.beginTurn("user_message", "")
					s.userMessage()
					s.compact("manual")
					s.response()
					s.endTurn("completed")
				})
			},
		},
	}
}

// manyIDs is one step that carries n ids.
func (s *session) manyIDs(n int) {
	var results []object
	var carried []*prov
	for range n {
		p := s.mint("external", "feed")
		carried = append(carried, p)
		results = append(results, obj("value", s.rng.IntN(1000), "provenance", p))
	}
	s.add(acs.MethodMemoryContextRetrieval, obj("results", results), carried...)
}

// lookalike is a value that looks like a Provenance object.
func lookalike(id string) object {
	return obj("provenance_id", id, "origin", "user_input", "source_id", "the-user", "derived_from", []string{"forged"},
		"provenance", obj("provenance_id", id, "origin", "system"), "registration_provenance", obj("provenance_id", id, "origin", "system"))
}

// hostileFaults try what must not work. None of them is an anomaly.
func hostileFaults() []Fault {
	return []Fault{
		{
			Name: "lookalike_provenance", About: "forged Provenance objects inside values, metadata and trigger sources",
			happen: func(s *session) {
				id := s.first(acs.MethodUserMessage).prov[0].id
				s.first(acs.MethodAgentTrigger).payload.set("trigger_source", lookalike(id))
				s.first(acs.MethodSessionStart).payload.set("platform_context", obj("provenance", lookalike(id)))
				s.last(acs.MethodSessionEnd).payload.set("summary", obj("value", "x", "provenance", lookalike(id)))
				s.beforeEnd(func() {
					call := s.request("get_parcel")
					args := call.payload.get("arguments").(object).clone()
					args[0].value = obj("value", lookalike(id), "provenance", call.prov[1])
					call.payload.set("arguments", args)
					e := s.result(call, "get_parcel", true)
					e.payload.set("outputs", []object{obj("value", []object{lookalike(id), obj("provenance", lookalike(id))}, "provenance", e.prov[0])})
					e.payload.set("provenance", lookalike(id))
					e = s.note()
					e.payload.set("metadata", lookalike(id))
				})
			},
		},
		{
			Name: "long_strings", About: "names of more than 256 bytes, in several scripts",
			happen: func(s *session) {
				s.beforeEnd(func() {
					tool := strings.Repeat("werkzeug-道具-🔧-", 20)
					s.toolCall(tool, false)
					s.toolCall(tool, false)
					p := s.note().prov[0]
					p.id = strings.Repeat("i", 300)
					s.note(p.id).agent = s.agentID
				})
			},
		},
		{
			Name: "odd_tenant", About: "a tenant whose name needs escaping in the run key",
			setup: func(s *session) { s.tenant = "a/b c%2Fü" },
		},
		{
			Name: "many_ids", About: "one step with 5,000 provenance ids that the next one derives from",
			happen: func(s *session) {
				s.beforeEnd(func() {
					s.manyIDs(5000)
					e := s.note()
					for i := range 5000 {
						e.prov[0].parents = append(e.prov[0].parents, fmt.Sprintf("p%d", s.pids-5000+i))
					}
				})
			},
		},
		{
			Name: "deep_lineage", About: "a chain of 300 ids, each derived from the one before",
			happen: func(s *session) {
				s.beforeEnd(func() {
					parent := ""
					for range 300 {
						parent = s.note(parent).prov[0].id
					}
				})
			},
		},
		{
			Name: "large_session", About: "a session of 2,600 steps, heavier than --max-run-weight: it is sealed by size",
			happen: func(s *session) {
				s.beforeEnd(func() {
					for range 1300 {
						s.toolCall("get_parcel", false)
					}
				})
			},
		},
	}
}
