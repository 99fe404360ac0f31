package generate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"provstream/internal/acs"
)

// story tells one session from handshake to sessionEnd. A rich one has every
// hook; the others have what a day at the desk brings.
func (s *session) story() {
	s.handshake()
	if s.rich {
		s.ping()
	}
	s.opening()
	turns := 4 + s.rng.IntN(6)
	if s.rich {
		turns = 7
	}
	var deferred *turn
	for i := range turns {
		s.beginTurn("user_message", "")
		s.userMessage()
		switch {
		case s.rich:
			s.richTurn(i, &deferred)
		default:
			s.plainTurn(i)
		}
	}
	if s.rich {
		s.add(acs.MethodSkillUnload, obj("skill_id", skillID, "reason", "session_end"))
	}
	s.add(acs.MethodSessionEnd, obj("reason", "completed", "summary", obj("turns", turns)))
}

// plainTurn is a question, a few tool calls and an answer; now and then the
// context is compacted, as frameworks do at the start of a turn.
func (s *session) plainTurn(i int) {
	if i > 0 && i%4 == 0 && s.provenance {
		s.compact("size_threshold")
	}
	for range []int{0, 1, 1, 2}[s.rng.IntN(4)] {
		s.toolCall(pick(s.rng, tools[:7]), false)
	}
	s.response()
	s.endTurn("completed")
}

// richTurn has what makes turn i of a rich session special.
func (s *session) richTurn(i int, deferred **turn) {
	switch i {
	case 0:
		s.skills()
		s.memoryRead()
		s.toolCall("get_parcel", false)
	case 1:
		s.mcpCall("protocols/MCP/tools/call")
		s.mcpCall("wrapped:mcp-2025-06-18/tools/call")
		s.mcpRead()
		s.toolCall("shell", true)
		s.deniedCall()
	case 2:
		s.compact("size_threshold")
		s.retrieval(900)
		s.subagent()
	case 3: // is deferred and goes on after turn 4
		s.deferredCall()
		*deferred = s.turn
		s.endTurn("deferred")
		return
	case 4:
		s.askedCall()
		s.modifiedCall()
		s.nestedTurn()
	case 5:
		s.resume(*deferred)
		return
	case 6:
		s.memoryWrite("customer-notes")
		s.agbomChange()
		s.batchPair()
		s.toolCall("book_pickup", false)
	}
	s.response()
	s.endTurn("completed")
}

const skillID = "skills/late-change"

func digest(text string) object {
	sum := sha256.Sum256([]byte(text))
	return obj("algorithm", "sha-256", "value", hex.EncodeToString(sum[:]))
}

func (s *session) handshake() {
	producer := "none"
	if s.provenance {
		producer = "deterministic"
	}
	e := s.add(acs.MethodHandshakeHello, obj("acs_versions_supported", []string{"0.1.0"},
		"methods_implemented", []string{"steps/sessionStart", "steps/userMessage", "steps/toolCallRequest", "steps/toolCallResult"},
		"transports_supported", []string{"http"}, "provenance_producer", producer,
		"wrapped_protocols", []object{obj("protocol", "MCP", "version", "2025-06-18")},
		"profiles_supported", []string{"acs-core", "acs-provenance"}))
	e.uncounted = true
	s.answer(e, obj("negotiated_version", "0.1.0", "methods_evaluated", []string{"steps/toolCallRequest"}, "selected_transport", "http",
		"timeout_config", obj("default_ms", 2000), "skew_window_ms", 300000, "on_decision_failure", "proceed"))
}

// ping is answered and leaves no trace (rules: dropped and counted).
func (s *session) ping() {
	e := s.add(acs.MethodSystemPing, obj("echo", "are you there"))
	e.uncounted = true
	s.answer(e, obj("type", "final", "acs_version", "0.1.0", "request_id", e.id, "decision", "allow",
		"payload", obj("status", "ok", "echo", "are you there", "server_timestamp", instant(e.at+1))))
}

func (s *session) opening() {
	intent := obj("raw", sentence(s.rng, 60))
	parser := s.mint("user_input", s.userID)
	if parser != nil {
		intent = obj("raw", sentence(s.rng, 60), "parsed", []object{obj("tool", "get_parcel", "operation", "read", "resource", "parcel")},
			"parser_provenance", parser, "scope_mode", "strict")
	}
	start := s.add(acs.MethodSessionStart, obj("user_identity", obj("id", s.userID), "policy_mode", "enforce", "intent", intent,
		"platform_context", obj("desk", "north")), parser)
	if s.chained || s.rich {
		s.decide(start, "allow")
	}
	if s.rich {
		s.agbomSnapshot()
	}
	s.add(acs.MethodAgentTrigger, obj("trigger_type", "user_message", "trigger_source", obj("channel", "chat")))
	s.retrieval(5600)
	if s.rich {
		reg := s.mint("system", "skill-store")
		e := s.add(acs.MethodSkillRegister, obj("skill_id", skillID, "definition", obj("digest", digest(skillID), "ref", "skills/late-change.md"),
			"declared_capabilities", []string{"parcel.read", "pickup.book"}, "registration_provenance", reg), reg)
		s.decide(e, "allow")
	}
}

func (s *session) agbomSnapshot() {
	model, desk := s.mint("system", "registry"), s.mint("system", "registry")
	s.add(acs.MethodAgBOMSnapshot, obj("agbom", obj("agent", obj("agent_id", s.agentID), "generated_at", instant(s.now),
		"components", []object{
			obj("id", "model-1", "type", "model", "name", "atlas-large", "version", "4.1", "provider", "atlas", "endpoint", "https://models.example/v1",
				"model_fields", obj("context_window", 200000), "registration_provenance", model),
			obj("id", "tool-1", "type", "tool", "name", "get_parcel", "version", "2", "provider", "desk",
				"tool_fields", obj("capability", "parcel.read"), "registration_provenance", desk),
		})), model, desk)
}

func (s *session) agbomChange() {
	last := s.events[len(s.events)-1]
	p := s.mint("system", "registry")
	s.add(acs.MethodAgBOMChanged, obj("added", []object{obj("id", "ks-1", "type", "knowledge_source", "name", "tariffs",
		"knowledge_source_fields", obj("source_type", "search_index"), "registration_provenance", p)},
		"removed", []string{"tool-9"}, "trigger_step_id", last.id), p)
}

func (s *session) beginTurn(by, parent string) {
	t := &turn{parent: parent}
	s.turn = t
	e := s.add(acs.MethodTurnStart, nil)
	t.id = e.id
	e.turn, e.parent = t.id, t.parent
	e.payload = obj("turn_id", t.id, "triggered_by", by)
	if parent != "" {
		e.payload.set("parent_turn_id", parent)
	}
}

// endTurn closes the open turn; declare.go fills its counts in.
func (s *session) endTurn(outcome string) *event {
	var summary *prov
	payload := obj("turn_id", s.turn.id, "outcome", outcome)
	if s.rng.IntN(2) == 0 && outcome == "completed" || s.rich {
		summary = s.mint("agent_generated", "summariser")
		if summary != nil {
			payload.set("summary", obj("value", sentence(s.rng, 40), "provenance", summary))
		}
	}
	e := s.add(acs.MethodTurnEnd, payload, summary)
	s.turn = nil
	return e
}

func (s *session) userMessage() {
	p := s.mint("user_input", s.userID)
	content := []object{obj("type", "text", "value", sentence(s.rng, 60+s.rng.IntN(160)), "provenance", p)}
	carried := []*prov{p}
	if s.rich && s.rng.IntN(3) == 0 {
		q := s.mint("user_input", "upload")
		content = append(content, obj("type", "image", "value", obj("uri", "blob://uploads/"+s.uuid(), "bytes", 48211), "provenance", q))
		carried = append(carried, q)
	}
	e := s.add(acs.MethodUserMessage, obj("content", content), carried...)
	for _, c := range carried {
		s.see(c)
	}
	s.decide(e, "allow")
}

func (s *session) response() *event {
	p := s.mint("agent_generated", "atlas-large", s.recent(3+s.rng.IntN(3))...)
	payload := obj("content", []object{obj("type", "text", "value", sentence(s.rng, 120+s.rng.IntN(420)), "provenance", p)})
	if s.rng.IntN(3) == 0 {
		payload.set("reasoning", sentence(s.rng, 80))
	}
	e := s.add(acs.MethodAgentResponse, payload, p)
	s.see(p)
	s.decide(e, "allow")
	return e
}

// retrieval reads a document of about size bytes from the knowledge base.
func (s *session) retrieval(size int) {
	q := s.mint("system", "runtime")
	var parent string
	if q != nil {
		parent = q.id
	}
	p := s.mint("retrieved", pick(s.rng, sources), parent)
	result := obj("value", document(s.rng, size), "source_id", "doc-"+fmt.Sprint(s.rng.IntN(90)), "score", 0.87, "provenance", p)
	e := s.add(acs.MethodKnowledgeRetrieval, obj("query", obj("value", sentence(s.rng, 30), "provenance", q),
		"source", obj("name", "handbook", "type", "knowledge_base"), "results", []object{result}), q, p)
	s.see(p)
	if s.rich {
		s.decide(e, "allow")
	}
}

func (s *session) memoryRead() {
	p, q := s.mint("retrieved", stores[0]), s.mint("retrieved", stores[0])
	s.add(acs.MethodMemoryContextRetrieval, obj("query", obj("value", "earlier cases"), "memory_store", obj("name", stores[0], "scope", "user"),
		"results", []object{
			obj("memory_id", "m-1", "value", sentence(s.rng, 90), "stored_at", instant(s.now-86_400_000), "provenance", p),
			obj("memory_id", "m-2", "value", sentence(s.rng, 60), "provenance", q),
		}), p, q)
	s.see(p)
	s.see(q)
}

func (s *session) memoryWrite(store string) *event {
	p := s.mint("agent_generated", "atlas-large", s.recent(2)...)
	e := s.add(acs.MethodMemoryStore, obj("content", obj("value", sentence(s.rng, 120), "provenance", p), "memory_id", "m-"+s.uuid()[:8],
		"memory_store", obj("name", store, "scope", "user"), "operation", "create", "metadata", obj("ttl_days", 30)), p)
	s.decide(e, "allow")
	return e
}

func (s *session) skills() {
	s.add(acs.MethodSkillLoad, obj("skill_id", skillID, "digest", digest(skillID), "load_trigger", "agent_decision",
		"load_path", []object{obj("skill_id", skillID)}, "parent_step_id", s.events[len(s.events)-1].id, "digest_verified", true))
}

// compact condenses what the model has before it into one summary (ACS §5.11,
// §5.12). declare.go fills lists, lineage and depth in.
func (s *session) compact(by string) {
	var listed []*event
	for _, e := range s.events {
		if !e.uncounted && e.method != acs.MethodSessionStart && (s.turn == nil || e.turn != s.turn.id) {
			listed = append(listed, e)
		}
	}
	for i := len(listed) - 1; i >= 0; i-- { // only what came since the last compaction
		if listed[i].method == acs.MethodPostCompact {
			listed = listed[i:]
			break
		}
	}
	pre := s.add(acs.MethodPreCompact, obj("entries_to_compact", []string{}, "triggered_by", by, "estimated_input_tokens", 9000,
		"target_summary_tokens", 700))
	pre.compacts = listed
	p := s.mint("agent_generated", "compactor")
	post := s.add(acs.MethodPostCompact, obj("summary", obj("value", sentence(s.rng, 300), "provenance", p), "entries_compacted", []string{},
		"pre_compact_chain_hash", placeholderHash, "post_compact_chain_hash", placeholderHash), p)
	post.compacts = listed
	s.context = append(s.context[:0], p.id)
}

// placeholderHash stands for a chain head in sessions that publish none.
const placeholderHash = "4f1d6a0c2b9e8d7f4f1d6a0c2b9e8d7f4f1d6a0c2b9e8d7f4f1d6a0c2b9e8d7f"
