package codec

import (
	"crypto/sha256"
	"slices"

	"provstream/internal/acs"
	"provstream/internal/acs/schema"
	"provstream/internal/jcs"
)

// at returns the value below v along names, nil where there is none.
func at(v any, names ...string) any {
	for _, name := range names {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// has tells whether the object v has the member name.
func has(v any, name string) bool {
	m, ok := v.(map[string]any)
	if ok {
		_, ok = m[name]
	}
	return ok
}

// text returns the string below v, clamped, "" where there is none.
func text(v any, names ...string) string {
	s, _ := at(v, names...).(string)
	return acs.Clamp(s)
}

// number returns the number below v.
func number(v any, names ...string) acs.Number {
	f, ok := at(v, names...).(float64)
	return acs.Number{Set: ok, Value: f}
}

// texts appends the strings of the array v, clamped.
func texts(dst []string, v any) []string {
	list, _ := v.([]any)
	for _, item := range list {
		if s, ok := item.(string); ok {
			dst = append(dst, acs.Clamp(s))
		}
	}
	return dst
}

// jsonText returns the JCS text of an id. A string is clamped before it is
// written, another value that is too long as its text.
func jsonText(v any, canonical []byte) string {
	if s, ok := v.(string); ok {
		return string(jcs.AppendString(nil, acs.Clamp(s)))
	}
	if len(canonical) > acs.MaxString {
		return string(jcs.AppendString(nil, acs.Clamp(string(canonical))))
	}
	return string(canonical)
}

// part returns the canonical text of the value below the canonical object
// along names, nil where there is none.
func part(canonical []byte, names ...string) []byte {
	i := 0
	for _, name := range names {
		if i = looseMember(canonical, i, name); i < 0 {
			return nil
		}
	}
	return canonical[i:skip(canonical, i)]
}

// requestStep reads a valid request envelope.
func requestStep(s *acs.Step, tree any, canonical []byte) {
	params := at(tree, "params")
	metadata, payload := at(params, "metadata"), at(params, "payload")
	s.RequestHash = sha256.Sum256(part(canonical, "params"))
	s.ContentHash = sha256.Sum256(part(canonical, "params", "payload"))
	s.StepID = text(params, "request_id")
	s.ID = jsonText(at(tree, "id"), part(canonical, "id"))
	event, _ := schema.ParseInstant(at(params, "timestamp").(string))
	s.EventTime = clampInstant(event)
	s.Method = text(tree, "method")
	s.Session = text(metadata, "session_id")
	s.AgentID = text(metadata, "agent_id")
	s.AgentName = text(metadata, "agent_name")
	s.TurnID = text(metadata, "turn_id")
	s.ParentTurnID = text(metadata, "parent_turn_id")
	s.Environment = text(metadata, "environment")
	s.Platform = text(metadata, "platform")
	s.PlatformVersion = text(metadata, "platform_version")
	s.UserID = text(metadata, "user_context", "user_id")
	s.ChainHash = text(metadata, "session_state", "chain_hash")
	s.SignatureKeyID = text(params, "signature", "key_id")
	s.SignatureAlgorithm = text(params, "signature", "algorithm")
	payloadStep(s, text(tree, "method"), payload, canonical)
}

// The instants that RFC 3339 can print with a year of four digits. An offset
// can lead a little beyond them.
const (
	minInstant = -62167219200000 // 0000-01-01T00:00:00.000Z
	maxInstant = 253402300799999 // 9999-12-31T23:59:59.999Z
)

func clampInstant(ms int64) int64 { return min(max(ms, minInstant), maxInstant) }

// payloadStep reads the members that a step keeps of the payload of each hook,
// and the Provenance objects at their positions (and nowhere else: what looks
// like one inside a value was written by a user or a tool).
func payloadStep(s *acs.Step, method string, payload any, canonical []byte) {
	switch acs.HookOf(method) {
	case acs.HookHandshake:
		s.ProvenanceProducer = text(payload, "provenance_producer")
	case acs.HookSessionStart, acs.HookAgentTrigger:
		provenanceAt(s, at(payload, "intent", "parser_provenance"))
	case acs.HookTurnStart:
		s.PayloadTurnID = text(payload, "turn_id")
		s.PayloadParentTurnID = text(payload, "parent_turn_id")
		s.TriggeredBy = text(payload, "triggered_by")
	case acs.HookUserMessage, acs.HookAgentResponse:
		dataEach(s, at(payload, "content"))
	case acs.HookKnowledgeRetrieval:
		data(s, at(payload, "query"))
		dataEach(s, at(payload, "results"))
	case acs.HookMemoryContextRetrieval:
		provenanceAt(s, at(payload, "query", "provenance"))
		dataEach(s, at(payload, "results"))
	case acs.HookMemoryStore:
		data(s, at(payload, "content"))
	case acs.HookToolCallRequest:
		s.Tool = text(payload, "tool", "name")
		s.Capability = text(payload, "capability")
		arguments, _ := at(payload, "arguments").(map[string]any)
		for _, name := range sortedNames(arguments) {
			data(s, arguments[name])
		}
	case acs.HookToolCallResult:
		s.Tool = text(payload, "tool", "name")
		s.ExitStatus = text(payload, "exit_status")
		s.RequestIDRef = text(payload, "request_id_ref")
		dataEach(s, at(payload, "outputs"))
	case acs.HookPreCompact:
		s.EntriesToCompact = texts(s.EntriesToCompact, at(payload, "entries_to_compact"))
		s.TriggeredBy = text(payload, "triggered_by")
		if summary, ok := at(payload, "pre_compact_provenance_summary").(map[string]any); ok {
			s.DeclaredSummary = declaredSummary(summary)
		}
	case acs.HookPostCompact:
		s.EntriesCompacted = texts(s.EntriesCompacted, at(payload, "entries_compacted"))
		s.PreCompactChainHash = text(payload, "pre_compact_chain_hash")
		s.LineageDepthAfter = number(payload, "lineage_depth_after")
		provenanceAt(s, at(payload, "summary", "provenance"))
	case acs.HookTurnEnd:
		s.PayloadTurnID = text(payload, "turn_id")
		s.Outcome = text(payload, "outcome")
		s.StepCount = number(payload, "step_count")
		s.ToolCallCount = number(payload, "tool_call_count")
		s.HasSummary = has(payload, "summary")
		provenanceAt(s, at(payload, "summary", "provenance"))
	case acs.HookWrapped:
		s.Answer = (has(payload, "result") || has(payload, "error")) && !has(payload, "method")
		if id := at(payload, "id"); id != nil {
			s.InnerID = jsonText(id, part(canonical, "params", "payload", "id"))
		}
	default:
		partsStep(s, method, payload)
	}
}

// partsStep reads the payloads that speak of other parts: subagents, skills
// and the bill of materials.
func partsStep(s *acs.Step, method string, payload any) {
	switch acs.HookOf(method) {
	case acs.HookSubagentStart:
		s.SubagentSessionID = text(payload, "subagent_session_id")
		s.ParentStepID = text(payload, "parent_step_id")
		provenanceAt(s, at(payload, "subagent_intent", "parser_provenance"))
	case acs.HookSubagentStop:
		s.SubagentSessionID = text(payload, "subagent_session_id")
		s.Outcome = text(payload, "outcome")
		s.HasSummary = has(payload, "summary")
		provenanceAt(s, at(payload, "summary", "provenance"))
	case acs.HookSkillRegister:
		s.SkillID = text(payload, "skill_id")
		s.DigestAlgorithm = text(payload, "definition", "digest", "algorithm")
		s.DigestValue = text(payload, "definition", "digest", "value")
		provenanceAt(s, at(payload, "registration_provenance"))
	case acs.HookSkillLoad:
		s.SkillID = text(payload, "skill_id")
		s.DigestAlgorithm = text(payload, "digest", "algorithm")
		s.DigestValue = text(payload, "digest", "value")
		s.ParentStepID = text(payload, "parent_step_id")
	case acs.HookSkillUnload:
		s.SkillID = text(payload, "skill_id")
	case acs.HookAgBOMSnapshot:
		registered(s, at(payload, "components"), at(payload, "agbom", "components"))
	case acs.HookAgBOMChanged:
		s.TriggerStepID = text(payload, "trigger_step_id")
		registered(s, at(payload, "components"), at(payload, "agbom", "components"), at(payload, "added"), at(payload, "changed"))
	}
}

// registered takes in the Provenance of the components of each list.
func registered(s *acs.Step, lists ...any) {
	for _, list := range lists {
		components, _ := list.([]any)
		for _, component := range components {
			provenanceAt(s, at(component, "registration_provenance"))
		}
	}
}

// dataEach takes in the data-bearing fields of an array.
func dataEach(s *acs.Step, list any) {
	items, _ := list.([]any)
	for _, item := range items {
		data(s, item)
	}
}

// data takes in one data-bearing field.
func data(s *acs.Step, field any) {
	if !has(field, "provenance") {
		s.ProvenanceMissing++
		return
	}
	provenanceAt(s, at(field, "provenance"))
}

// provenanceAt takes in a Provenance object, if there is one.
func provenanceAt(s *acs.Step, v any) {
	if _, ok := v.(map[string]any); !ok {
		return
	}
	p := s.AddProvenance()
	p.ID = text(v, "provenance_id")
	p.Origin = text(v, "origin")
	p.SourceID = text(v, "source_id")
	p.DerivedFrom = texts(p.DerivedFrom, at(v, "derived_from"))
}

func declaredSummary(summary map[string]any) *acs.DeclaredSummary {
	d := &acs.DeclaredSummary{
		HasOriginsSeen: has(summary, "origins_seen"), HasEntryCount: has(summary, "entry_count"),
		HasEntryCountByOrigin:     has(summary, "entry_count_by_origin"),
		HasEarliestStepIDByOrigin: has(summary, "earliest_step_id_by_origin"),
		HasMaxLineageDepth:        has(summary, "max_lineage_depth"),
		OriginsSeen:               texts(nil, at(summary, "origins_seen")),
		EntryCount:                number(summary, "entry_count").Value,
		MaxLineageDepth:           number(summary, "max_lineage_depth").Value,
	}
	counts, _ := at(summary, "entry_count_by_origin").(map[string]any)
	for name := range counts {
		if len(counts) > maxOrigins && counts[name] == 0.0 {
			continue
		}
		d.EntryCountByOrigin = append(d.EntryCountByOrigin, acs.OriginValue{Origin: acs.Clamp(name), Count: number(counts, name).Value})
	}
	steps, _ := at(summary, "earliest_step_id_by_origin").(map[string]any)
	for name := range steps {
		d.EarliestStepIDByOrigin = append(d.EarliestStepIDByOrigin, acs.OriginValue{Origin: acs.Clamp(name), StepID: text(steps, name)})
	}
	d.EntryCountByOrigin = firstByOrigin(d.EntryCountByOrigin)
	d.EarliestStepIDByOrigin = firstByOrigin(d.EarliestStepIDByOrigin)
	return d
}

// maxOrigins bounds the maps of a declared summary. There are seven origins, so
// a map with more members than that differs from ours anyhow (but for zeros,
// which equal none and go first); and a record of small numbers like 1e20
// would otherwise become a step of several times its size.
const maxOrigins = 1000

// firstByOrigin sorts by the names as they will stand, that is, after
// clamping, and keeps the first.
func firstByOrigin(list []acs.OriginValue) []acs.OriginValue {
	slices.SortFunc(list, func(a, b acs.OriginValue) int { return jcs.CompareNames(a.Origin, b.Origin) })
	return list[:min(len(list), maxOrigins)]
}

// sortedNames returns the names of an object in JCS order.
func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.SortFunc(names, jcs.CompareNames)
	return names
}

// decisionStep reads a valid response envelope.
func decisionStep(s *acs.Step, tree any, canonical []byte) {
	s.ID = jsonText(at(tree, "id"), part(canonical, "id"))
	if has(tree, "error") {
		s.ErrorResponse = true
		s.ErrorCode = number(tree, "error", "code")
		s.RequestHash = sha256.Sum256(part(canonical, "error"))
		s.ContentHash = s.RequestHash
		return
	}
	result := at(tree, "result")
	s.RequestHash = sha256.Sum256(part(canonical, "result"))
	s.ContentHash = s.RequestHash
	s.StepID = text(result, "request_id")
	s.Decision = text(result, "decision")
	s.ReasonCodes = texts(s.ReasonCodes, at(result, "reason_codes"))
	s.Cited = texts(s.Cited, at(result, "cited_provenance_ids"))
	s.Evaluator = text(result, "metadata", "evaluator")
	s.DecisionChainHash = text(result, "chain_hash")
	provenanceAt(s, at(result, "ask_details", "intent_extension", "provenance"))
}
