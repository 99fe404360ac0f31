package codec

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"

	"provstream/internal/acs"
	"provstream/internal/acs/schema"
	"provstream/internal/jcs"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// fastPath is the compiled trees and the working memory of the fast way. A
// tree that is nil is of schemas with a keyword that the walk does not know:
// what it would judge is left to jsonschema/v5.
type fastPath struct {
	walker
	request  *node
	decision *node // a response with a decision
	failure  *node // a response with an error
	hello    *node // a response with a ServerHello
	payloads map[string]*payloadTree
	opaque   payloadTree // of methods outside the inventory
	wrapped  payloadTree // of protocols/* and wrapped:*

	current *payloadTree
}

// payloadTree is what is known of the payload of a method.
type payloadTree struct {
	hook  acs.Hook
	node  *node // nil where nothing is to be checked or noted
	known bool  // false: jsonschema/v5 decides
}

// nothing is a tree that accepts no value.
var nothing = &node{maxLen: -1, maxItems: -1}

func newFastPath(set *schema.Set, provenanceRequired bool) *fastPath {
	f := &fastPath{payloads: make(map[string]*payloadTree)}
	requests := treeCompiler{}
	f.request, _ = requests.compile([]*jsonschema.Schema{set.Request}, requestNotes(), 0)
	for _, answer := range []struct {
		tree    **node
		present map[string]bool
		notes   *notes
	}{
		{&f.decision, map[string]bool{"result": true}, decisionNotes()},
		{&f.failure, nil, failureNotes()},
		{&f.hello, map[string]bool{"result": true, "negotiated_version": true}, helloNotes()},
	} {
		answers := treeCompiler{present: answer.present}
		*answer.tree, _ = answers.compile([]*jsonschema.Schema{set.Response}, answer.notes, 0)
	}
	for _, method := range set.Methods() {
		schemas := []*jsonschema.Schema{set.Payload(method)}
		if sch := set.Strict(method); sch != nil && provenanceRequired {
			schemas = append(schemas, sch)
		}
		hook := acs.HookOf(method)
		n, err := requests.compile(schemas, payloadNotes(hook), 0)
		f.payloads[method] = &payloadTree{hook: hook, node: n, known: err == nil}
	}
	n, err := requests.compile(nil, payloadNotes(acs.HookWrapped), 0)
	f.wrapped = payloadTree{hook: acs.HookWrapped, node: n, known: err == nil}
	f.opaque = payloadTree{hook: acs.HookUnknown, known: true}
	f.payloadNode = f.choose
	return f
}

// choose returns the node of the payload of the envelope that is being walked.
func (f *fastPath) choose() *node {
	method := f.inside(slotMethod)
	f.current = f.payloads[string(method)]
	if f.current == nil {
		f.current = &f.opaque
		if bytes.HasPrefix(method, []byte("protocols/")) || bytes.HasPrefix(method, []byte("wrapped:")) {
			f.current = &f.wrapped
		}
	}
	if !f.current.known {
		return nothing
	}
	return f.current.node
}

// of returns the canonical text that was noted in a slot, nil where there is
// none.
func (w *walker) of(s slot) []byte {
	at := w.spans[s]
	return w.text[at.start:at.end]
}

// inside returns the text of a string without its quotes.
func (w *walker) inside(s slot) []byte {
	text := w.of(s)
	if len(text) < 2 {
		return nil
	}
	return text[1 : len(text)-1]
}

// ourVersion tells whether the version that was noted, which matches the
// pattern of the schema, has the major 0.
func (w *walker) ourVersion() bool {
	version := bytes.TrimLeft(w.inside(slotVersion), "0")
	return len(version) > 0 && version[0] == '.'
}

// tryFast reads an element on the fast way and reports whether it was
// accepted. Where it was not, nothing was emitted or counted.
func (r *Reader) tryFast(canonical []byte, index int) bool {
	if r.decisions() {
		return r.fastDecision(canonical, index) || r.fastFailure(canonical, index) || r.fastHello(canonical)
	}
	return r.fastRequest(canonical, index)
}

func (r *Reader) fastRequest(canonical []byte, index int) bool {
	f := r.fast
	if f.request == nil || !f.walk(f.request, canonical) || !f.ourVersion() {
		return false
	}
	switch f.current.hook {
	case acs.HookPing:
		r.result.Dropped++
		return true
	case acs.HookUnknown:
		if r.cfg.UnknownHooksReject && bytes.HasPrefix(f.inside(slotMethod), []byte("steps/")) {
			return false
		}
	}
	if !r.fastTenant(f.inside(slotTenant)) {
		return false
	}
	event := clampInstant(f.event)
	w := stepWriter{walker: &f.walker, encoder: encoder{dst: append(r.value[:0], '{')}}
	w.request(r, f.current.hook, event, index)
	r.value = w.dst
	r.key = appendRunKey(r.key[:0], r.tenant, f.inside(slotSession))
	r.emit(r.key, r.value)
	r.result.Steps++
	return true
}

// fastTenant sets r.tenant to the tenant of a hook envelope, and tells whether
// the topic may carry it. named is the inside of params.tenant_id.
func (r *Reader) fastTenant(named []byte) bool {
	if bytes.IndexByte(named, '\\') >= 0 {
		named, _ = jcs.AppendUnescaped(nil, named)
	}
	if len(named) > acs.MaxString {
		named = []byte(acs.Clamp(string(named)))
	}
	mapped, isMapped := r.cfg.TenantTopics[r.rec.Topic]
	switch {
	case isMapped && len(named) > 0 && string(named) != mapped:
		return false
	case len(named) > 0:
		r.tenant = append(r.tenant[:0], named...)
	case isMapped:
		r.tenant = append(r.tenant[:0], mapped...)
	default:
		r.tenant = append(r.tenant[:0], r.cfg.DefaultTenant...)
	}
	return true
}

func (r *Reader) fastDecision(canonical []byte, index int) bool {
	f := r.fast
	if f.decision == nil || !f.walk(f.decision, canonical) || !f.ourVersion() {
		return false
	}
	// A non-empty string.
	if status := f.of(slotStatus); len(status) > 2 && status[0] == '"' && string(f.of(slotDecision)) == `"allow"` {
		r.result.Dropped++
		return true
	}
	return r.fastAnswer(slotResult, index)
}

// fastFailure reads an error response.
func (r *Reader) fastFailure(canonical []byte, index int) bool {
	f := r.fast
	if f.failure == nil || !bytes.HasPrefix(canonical, []byte(`{"error":`)) || !f.walk(f.failure, canonical) {
		return false
	}
	return r.fastAnswer(slotError, index)
}

// fastHello drops a ServerHello result. Its own acs_version, if it has one, is
// judged on the plain way.
func (r *Reader) fastHello(canonical []byte) bool {
	f := r.fast
	if f.hello == nil || !f.walk(f.hello, canonical) || f.spans[slotHelloVersion].end > 0 {
		return false
	}
	r.result.Dropped++
	return true
}

// fastAnswer writes the decision that was walked. hashed is what its hashes
// are of.
func (r *Reader) fastAnswer(hashed slot, index int) bool {
	tenant, session, kind := r.decisionRoute()
	if kind != "" {
		return false
	}
	f := r.fast
	r.tenant = append(r.tenant[:0], tenant...)
	w := stepWriter{walker: &f.walker, encoder: encoder{dst: append(r.value[:0], '{')}}
	w.decision(r, session, sha256.Sum256(f.of(hashed)), index)
	r.value = w.dst
	r.key = appendRunKey(r.key[:0], r.tenant, session)
	r.emit(r.key, r.value)
	r.result.Steps++
	return true
}

// stepWriter writes a step out of the places that a walk noted: what
// AppendStep writes of the step that the plain way reads. A string stands as
// it stands in the canonical text.
type stepWriter struct {
	*walker
	encoder
}

// maxText is the longest canonical text of a string that cannot be too long to
// be taken over as it is.
const maxText = acs.MaxString + 2

func (w *stepWriter) textAt(name string, s slot) {
	at := w.spans[s]
	if at.end-at.start > 2 { // not absent, not ""
		w.name(name)
		w.dst = appendText(w.dst, at.of(w.text))
	}
}

// appendText appends the canonical text of a string, clamped.
func appendText(dst, text []byte) []byte {
	if len(text) <= maxText {
		return append(dst, text...)
	}
	s, _ := jcs.AppendUnescaped(nil, text[1:len(text)-1])
	return jcs.AppendString(dst, acs.Clamp(string(s)))
}

// rawAt writes a JSON value as it stands, but for strings (and texts) that are
// too long.
func (w *stepWriter) rawAt(name string, s slot) {
	text := w.of(s)
	if len(text) == 0 {
		return
	}
	w.name(name)
	switch {
	case text[0] == '"':
		w.dst = appendText(w.dst, text)
	case len(text) > acs.MaxString:
		w.dst = jcs.AppendString(w.dst, acs.Clamp(string(text)))
	default:
		w.dst = append(w.dst, text...)
	}
}

func (w *stepWriter) numberAt(name string, s slot) {
	if text := w.of(s); len(text) > 0 {
		w.name(name)
		w.dst = append(w.dst, text...)
	}
}

func (w *stepWriter) listAt(name string, at span) {
	if at.end-at.start > 2 {
		w.name(name)
		w.dst = appendTexts(w.dst, at.of(w.text))
	}
}

// appendTexts appends the canonical text of an array of strings, each clamped.
func appendTexts(dst, text []byte) []byte {
	if len(text) <= maxText {
		return append(dst, text...)
	}
	dst = append(dst, '[')
	for i := 1; text[i] != ']'; {
		if text[i] == ',' {
			dst = append(dst, ',')
			i++
		}
		end := skipString(text, i)
		dst = appendText(dst, text[i:end])
		i = end
	}
	return append(dst, ']')
}

// provenance writes the Provenance objects that were walked.
func (w *stepWriter) provenance() {
	if len(w.objects) == 0 {
		return
	}
	byGroup := func(a, b object) int { return int(a.group) - int(b.group) }
	if !slices.IsSortedFunc(w.objects, byGroup) {
		slices.SortStableFunc(w.objects, byGroup)
	}
	w.name(`"provenance":[`)
	for i := range w.objects {
		o := &w.objects[i]
		if i > 0 {
			w.dst = append(w.dst, ',')
		}
		w.dst = append(w.dst, '{')
		w.listAt(`"derived_from":`, o.derived)
		w.name(`"origin":`)
		w.dst = appendText(w.dst, o.origin.of(w.text))
		w.name(`"provenance_id":`)
		w.dst = appendText(w.dst, o.id.of(w.text))
		if o.source.end-o.source.start > 2 {
			w.name(`"source_id":`)
			w.dst = appendText(w.dst, o.source.of(w.text))
		}
		w.dst = append(w.dst, '}')
	}
	w.dst = append(w.dst, ']')
}

// declaredSummary writes the ProvenanceSummary of a preCompact by way of a
// step: there are few of them.
func (w *stepWriter) declaredSummary() {
	if text := w.of(slotDeclaredSummary); len(text) > 0 {
		w.name(`"declared_summary":`)
		w.dst = appendDeclaredSummary(w.dst, summaryOf(text))
	}
}

// summaryOf reads a valid ProvenanceSummary from its canonical text.
func summaryOf(text []byte) *acs.DeclaredSummary {
	d := new(acs.DeclaredSummary)
	eachMember(text, func(name, value []byte) {
		switch string(name) {
		case `"earliest_step_id_by_origin"`:
			d.HasEarliestStepIDByOrigin = true
			d.EarliestStepIDByOrigin = originsOf(value, func(v *acs.OriginValue, text []byte) {
				v.StepID = clampedText(text)
			})
		case `"entry_count"`:
			d.HasEntryCount, d.EntryCount = true, numberOf(value)
		case `"entry_count_by_origin"`:
			d.HasEntryCountByOrigin = true
			d.EntryCountByOrigin = originsOf(value, func(v *acs.OriginValue, text []byte) { v.Count = numberOf(text) })
		case `"max_lineage_depth"`:
			d.HasMaxLineageDepth, d.MaxLineageDepth = true, numberOf(value)
		case `"origins_seen"`:
			d.HasOriginsSeen = true
			for i := 1; value[i] != ']'; {
				if value[i] == ',' {
					i++
				}
				end := skipString(value, i)
				d.OriginsSeen = append(d.OriginsSeen, clampedText(value[i:end]))
				i = end
			}
		}
	})
	return d
}

// originsOf reads an object that is keyed by origin. Of one with more than
// maxOrigins members it leaves out the zeros, and keeps the first in the order
// of the clamped names.
func originsOf(text []byte, read func(*acs.OriginValue, []byte)) (list []acs.OriginValue) {
	count := 0
	eachMember(text, func(_, _ []byte) { count++ })
	eachMember(text, func(name, value []byte) {
		if count > maxOrigins && string(value) == "0" {
			return
		}
		v := acs.OriginValue{Origin: clampedText(name)}
		read(&v, value)
		list = append(list, v)
	})
	return firstByOrigin(list)
}

// eachMember calls visit with the text of the name, quotes included, and of the
// value of each member of a canonical object.
func eachMember(text []byte, visit func(name, value []byte)) {
	for i := 1; text[i] != '}'; {
		if text[i] == ',' {
			i++
		}
		colon := skipString(text, i)
		end := skip(text, colon+1)
		visit(text[i:colon], text[colon+1:end])
		i = end
	}
}

func clampedText(text []byte) string {
	s, _ := jcs.AppendUnescaped(nil, text[1:len(text)-1])
	return acs.Clamp(string(s))
}

func numberOf(text []byte) float64 {
	f, _ := strconv.ParseFloat(string(text), 64)
	return f
}

func (w *stepWriter) request(r *Reader, hook acs.Hook, event int64, index int) {
	request, content := acs.Hash(sha256.Sum256(w.of(slotParams))), acs.Hash(sha256.Sum256(w.of(slotPayload)))
	w.textAt(`"agent_id":`, slotAgentID)
	w.textAt(`"agent_name":`, slotAgentName)
	if hook == acs.HookWrapped {
		answer := w.spans[slotAnswerResult].end > 0 || w.spans[slotAnswerError].end > 0
		w.flag(`"answer":true`, answer && w.spans[slotAnswerMethod].end == 0)
	}
	w.textAt(`"capability":`, slotCapability)
	w.textAt(`"chain_hash":`, slotChainHash)
	w.hash(`"content_hash":"`, &content)
	w.declaredSummary()
	w.textAt(`"digest_algorithm":`, slotDigestAlgorithm)
	w.textAt(`"digest_value":`, slotDigestValue)
	w.listAt(`"entries_compacted":`, w.spans[slotEntriesCompacted])
	w.listAt(`"entries_to_compact":`, w.spans[slotEntriesToCompact])
	w.textAt(`"environment":`, slotEnvironment)
	w.integer(`"event_time":`, event)
	w.textAt(`"exit_status":`, slotExitStatus)
	w.flag(`"has_summary":true`, w.spans[slotSummary].end > 0)
	w.rawAt(`"id":`, slotID)
	if index >= 0 {
		w.integer(`"index":`, int64(index))
	}
	if string(w.of(slotInnerID)) != "null" {
		w.rawAt(`"inner_id":`, slotInnerID)
	}
	w.numberAt(`"lineage_depth_after":`, slotLineageDepthAfter)
	w.textAt(`"method":`, slotMethod)
	w.integer(`"offset":`, r.rec.Offset)
	w.textAt(`"outcome":`, slotOutcome)
	w.textAt(`"parent_step_id":`, slotParentStepID)
	w.textAt(`"parent_turn_id":`, slotParentTurnID)
	w.integer(`"partition":`, int64(r.rec.Partition))
	w.textAt(`"payload_parent_turn_id":`, slotPayloadParentTurnID)
	w.textAt(`"payload_turn_id":`, slotPayloadTurnID)
	w.textAt(`"platform":`, slotPlatform)
	w.textAt(`"platform_version":`, slotPlatformVersion)
	w.textAt(`"pre_compact_chain_hash":`, slotPreCompactChainHash)
	w.provenance()
	if w.missing > 0 {
		w.integer(`"provenance_missing":`, int64(w.missing))
	}
	w.textAt(`"provenance_producer":`, slotProvenanceProducer)
	w.integer(`"recorded_at":`, r.recorded)
	w.hash(`"request_hash":"`, &request)
	w.textAt(`"request_id_ref":`, slotRequestIDRef)
	w.textAt(`"session":`, slotSession)
	w.textAt(`"signature_algorithm":`, slotSignatureAlgorithm)
	w.textAt(`"signature_key_id":`, slotSignatureKeyID)
	w.flag(`"skewed":true`, r.skewed(event))
	w.textAt(`"skill_id":`, slotSkillID)
	w.numberAt(`"step_count":`, slotStepCount)
	w.textAt(`"step_id":`, slotStepID)
	w.textAt(`"subagent_session_id":`, slotSubagentSessionID)
	w.name(`"tenant":`)
	w.dst = jcs.AppendStringBytes(w.dst, r.tenant)
	w.textAt(`"tool":`, slotTool)
	w.numberAt(`"tool_call_count":`, slotToolCallCount)
	w.str(`"topic":`, r.rec.Topic)
	w.textAt(`"trigger_step_id":`, slotTriggerStepID)
	w.textAt(`"triggered_by":`, slotTriggeredBy)
	w.textAt(`"turn_id":`, slotTurnID)
	w.name(`"type":"step"`)
	w.textAt(`"user_id":`, slotUserID)
	w.dst = append(w.dst, '}')
}

func (w *stepWriter) decision(r *Reader, session []byte, hash acs.Hash, index int) {
	w.listAt(`"cited":`, w.spans[slotCited])
	w.hash(`"content_hash":"`, &hash)
	w.textAt(`"decision":`, slotDecision)
	w.textAt(`"decision_chain_hash":`, slotDecisionChainHash)
	w.numberAt(`"error_code":`, slotErrorCode)
	w.flag(`"error_response":true`, w.spans[slotError].end > 0)
	w.textAt(`"evaluator":`, slotEvaluator)
	w.integer(`"event_time":`, r.recorded)
	w.rawAt(`"id":`, slotID)
	if index >= 0 {
		w.integer(`"index":`, int64(index))
	}
	w.integer(`"offset":`, r.rec.Offset)
	w.integer(`"partition":`, int64(r.rec.Partition))
	w.provenance()
	w.listAt(`"reason_codes":`, w.spans[slotReasonCodes])
	w.integer(`"recorded_at":`, r.recorded)
	w.hash(`"request_hash":"`, &hash)
	w.name(`"session":`)
	w.dst = jcs.AppendStringBytes(w.dst, session)
	w.textAt(`"step_id":`, slotStepID)
	w.name(`"tenant":`)
	w.dst = jcs.AppendStringBytes(w.dst, r.tenant)
	w.str(`"topic":`, r.rec.Topic)
	w.name(`"type":"decision"`)
	w.dst = append(w.dst, '}')
}
