package generate

import (
	"fmt"

	"provstream/internal/acs"
)

// answer appends a response that is no decision about a step, or a plain one.
func (s *session) answer(e *event, result object) *answer {
	a := &answer{after: 1 + s.rng.Int64N(9), result: result, request: e.id}
	e.answers = append(e.answers, a)
	return a
}

// decide appends the Guardian's decision on a step (ACS §6).
func (s *session) decide(e *event, verdict string, cited ...string) *answer {
	evaluator := obj("evaluator", "deterministic", "evaluation_duration_ms", 1+s.rng.IntN(9))
	r := obj("type", "final", "acs_version", "0.1.0", "request_id", e.id, "decision", verdict, "metadata", evaluator)
	switch verdict {
	case "deny":
		r.set("reasoning", "Blocked by policy.")
		r.set("reason_codes", []string{"policy_violation"})
	case "modify":
		r.set("reasoning", "Address is masked.")
		r.set("modifications", obj("redactions", []object{obj("path", "/arguments/address/value", "replacement", "[REDACTED]")}))
	case "ask":
		r.set("reasoning", "Above the limit for this role.")
		ask := obj("approver", obj("type", "human", "id", "shift-lead"), "question", "May this refund be paid?", "timeout_seconds", 120,
			"timeout_disposition", "deny")
		if p := s.mint("user_input", "shift-lead"); p != nil {
			ask.set("intent_extension", obj("capabilities", []object{obj("tool", "issue_refund", "operation", "write", "resource", "refund")},
				"scope", "this_request", "provenance", p))
			s.see(p)
		}
		r.set("ask_details", ask)
	case "defer":
		r.set("reasoning", "Needs the customs answer.")
		r.set("defer_details", obj("reason", "pending_dependency", "resolution_method", "additional_context", "resolution_timeout_ms", 60000))
	}
	if len(cited) > 0 {
		r.set("cited_provenance_ids", cited)
	}
	a := s.answer(e, r)
	a.chained = s.chained
	return a
}

// request is a toolCallRequest with two arguments that derive from the context.
// Now and then an argument is the user's own words, which carry the same
// Provenance object again.
func (s *session) request(tool string) *event {
	p, q := s.mint("agent_generated", "atlas-large", s.recent(3)...), s.mint("agent_generated", "atlas-large", s.recent(2)...)
	args := obj("parcel", obj("value", fmt.Sprintf("PX%06d", s.rng.IntN(1e6)), "provenance", p),
		"options", obj("value", obj("detail", pick(s.rng, subjects), "limit", s.rng.IntN(50)), "provenance", q))
	// Extraction goes by member name in JCS order: options, parcel.
	carried := []*prov{q, p}
	if words := s.userWords(); words != nil && s.rng.IntN(3) == 0 {
		args = append(args, member{"words", obj("value", "as the user said", "provenance", words)})
		carried = append(carried, words)
	}
	return s.add(acs.MethodToolCallRequest, obj("tool", obj("name", tool, "provider", "desk"), "arguments", args,
		"operation", "read", "capability", "desk."+tool), carried...)
}

// userWords is the object of the last user message in this turn.
func (s *session) userWords() *prov {
	for i := len(s.events) - 1; i >= 0 && s.turn != nil && s.events[i].turn == s.turn.id; i-- {
		if s.events[i].method == acs.MethodUserMessage && len(s.events[i].prov) > 0 {
			return s.events[i].prov[0]
		}
	}
	return nil
}

// result is the toolCallResult of a call. Without ref it names no request, as
// shell adapters leave it.
func (s *session) result(call *event, tool string, ref bool) *event {
	var parents []string
	for _, p := range call.prov {
		parents = append(parents, p.id)
	}
	p := s.mint("tool_output", tool, parents...)
	status := "success"
	if s.rng.IntN(15) == 0 {
		status = "failure"
	}
	payload := obj("tool", obj("name", tool, "provider", "desk"), "exit_status", status,
		"outputs", []object{obj("value", toolOutput(s.rng, 200+s.rng.IntN(1600)), "provenance", p)}, "duration_ms", 5+s.rng.IntN(900))
	if ref {
		payload.set("request_id_ref", call.id)
	}
	e := s.add(acs.MethodToolCallResult, payload, p)
	s.see(p)
	return e
}

func (s *session) toolCall(tool string, shell bool) {
	call := s.request(tool)
	var cited []string
	if len(call.prov) > 0 && s.rng.IntN(3) == 0 {
		cited = []string{call.prov[0].id}
	}
	s.decide(call, "allow", cited...)
	s.result(call, tool, !shell)
}

// deniedCall has no result.
func (s *session) deniedCall() {
	s.decide(s.request("issue_refund"), "deny")
}

// deferredCall waits for something; its result comes when the turn goes on.
func (s *session) deferredCall() {
	s.decide(s.request("search_routes"), "defer")
}

// resume goes on with a turn that was deferred: its call has a result now.
func (s *session) resume(deferred *turn) {
	s.response()
	s.endTurn("completed")
	var call *event
	for _, e := range s.events {
		if e.turn == deferred.id && e.method == acs.MethodToolCallRequest {
			call = e
		}
	}
	s.turn = deferred
	s.pass(40, 900)
	s.decide(call, "allow").after = s.now - call.at
	s.result(call, "search_routes", true)
	s.response()
	s.endTurn("completed")
}

// askedCall is approved by a person, whose grant is data like any other.
func (s *session) askedCall() {
	call := s.request("issue_refund")
	s.decide(call, "ask")
	s.result(call, "issue_refund", true)
}

func (s *session) modifiedCall() {
	call := s.request("update_address")
	s.decide(call, "modify")
	s.result(call, "update_address", true)
	call = s.request("quote_price") // the Guardian fails on this one
	call.answers = append(call.answers, &answer{after: 3, err: obj("code", -32603, "message", "internal error")})
	s.result(call, "quote_price", true)
}

// nestedTurn runs inside the open one.
func (s *session) nestedTurn() {
	outer := s.turn
	s.beginTurn("agent_loop", outer.id)
	s.toolCall("list_parcels", false)
	s.response()
	s.endTurn("completed")
	s.turn = outer
}

// mcpCall is a wrapped MCP tools/call and its answer (ACS §5.22).
func (s *session) mcpCall(method string) {
	id := 100 + s.rng.IntN(900)
	call := s.add(method, obj("jsonrpc", "2.0", "id", id, "method", "tools/call",
		"params", obj("name", "weather", "arguments", obj("hub", pick(s.rng, fillers)))))
	s.decide(call, "allow")
	s.add(method, obj("jsonrpc", "2.0", "id", id, "result", obj("content", []object{obj("type", "text", "text", sentence(s.rng, 80))})))
}

// mcpRead reads a resource and a prompt.
func (s *session) mcpRead() {
	id := "r-" + s.uuid()[:8]
	s.add("protocols/MCP/resources/read", obj("jsonrpc", "2.0", "id", id, "method", "resources/read", "params", obj("uri", "desk://hubs/north")))
	s.add("protocols/MCP/resources/read", obj("jsonrpc", "2.0", "id", id,
		"result", obj("contents", []object{obj("uri", "desk://hubs/north", "text", sentence(s.rng, 120))})))
	id = "g-" + s.uuid()[:8]
	s.add("protocols/MCP/prompts/get", obj("jsonrpc", "2.0", "id", id, "method", "prompts/get", "params", obj("name", "apology")))
	s.add("protocols/MCP/prompts/get", obj("jsonrpc", "2.0", "id", id, "result", obj("messages", []object{})))
}

// subagent delegates to another session, which is generated beside this one.
func (s *session) subagent() {
	call := s.request("delegate")
	s.decide(call, "allow")
	child := s.child()
	intent := s.mint("user_input", s.userID)
	start := s.add(acs.MethodSubagentStart, obj("subagent_session_id", child.id, "parent_session_id", s.id, "parent_step_id", call.id,
		"intent_derivation", "inherit_subset", "subagent_intent", obj("raw", "find a route", "parsed", []object{obj("tool", "search_routes")},
			"parser_provenance", intent), "subagent_descriptor", obj("agent_id", child.agentID)), intent)
	s.decide(start, "allow")
	child.now = s.now + 5
	child.delegated()
	s.now = child.now + 20
	var lineage []string
	if n := len(child.context); n > 0 {
		lineage = child.context[n-1:]
	}
	p := s.mint("agent_generated", child.agentID, lineage...)
	s.add(acs.MethodSubagentStop, obj("subagent_session_id", child.id, "outcome", "completed",
		"summary", obj("value", sentence(s.rng, 90), "provenance", p), "subagent_step_count", len(child.events)), p)
	s.see(p)
	s.result(call, "delegate", true)
}

// child is the session of a subagent: same tenant and promise, other agent.
func (s *session) child() *session {
	c := &session{cfg: s.cfg, rng: s.rng, index: s.index, tenant: s.tenant, id: s.uuid(), agentID: s.agentID + "-route-finder",
		agentName: "Route finder", userID: s.userID, provenance: s.provenance}
	s.children = append(s.children, c)
	return c
}

// delegated is the story of a subagent's session.
func (s *session) delegated() {
	s.handshake()
	s.opening()
	s.beginTurn("auto_continuation", "")
	s.toolCall("search_routes", false)
	s.response()
	s.endTurn("completed")
	s.add(acs.MethodSessionEnd, obj("reason", "completed"))
	s.sort()
	s.declare()
}

// batchPair sends two steps as one JSON-RPC batch.
func (s *session) batchPair() {
	n := len(s.events)
	s.retrieval(300)
	s.memoryRead()
	number := 1
	for _, e := range s.events[:n] {
		number = max(number, e.batch+1)
	}
	for _, e := range s.events[n:] {
		e.batch = number
		e.lag = s.now - e.at + 3 // one record: one Kafka timestamp
	}
}
