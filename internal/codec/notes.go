package codec

import (
	"fmt"
	"strings"

	"provstream/internal/acs"
)

// note says what the walk does with the value at a position, besides checking
// it.
type note struct {
	slot  slot
	role  role
	group uint8 // of a Provenance object: the order of its list among those of the step
}

// role is what a position is to a step.
type role uint8

const (
	roleNone       role = iota
	rolePayload         // params.payload: goes on with the node of the method
	roleData            // a data-bearing field
	roleProvenance      // a Provenance object
)

// slot is where the place of a value is noted. The text of a textSlot is a
// string, of a listSlot an array of strings, of a numberSlot a number.
type slot uint8

const (
	slotNone slot = iota

	slotAgentID // the first textSlot
	slotAgentName
	slotCapability
	slotChainHash
	slotDecision
	slotDecisionChainHash
	slotDigestAlgorithm
	slotDigestValue
	slotEnvironment
	slotEvaluator
	slotExitStatus
	slotMethod
	slotOutcome
	slotParentStepID
	slotParentTurnID
	slotPayloadParentTurnID
	slotPayloadTurnID
	slotPlatform
	slotPlatformVersion
	slotPreCompactChainHash
	slotProvenanceProducer
	slotRequestIDRef
	slotSession
	slotSignatureAlgorithm
	slotSignatureKeyID
	slotSkillID
	slotStepID
	slotSubagentSessionID
	slotTenant
	slotTimestamp
	slotTool
	slotTriggerStepID
	slotTriggeredBy
	slotTurnID
	slotUserID
	slotVersion
	slotProvenanceID // of the Provenance object that is being walked
	slotProvenanceOrigin
	slotProvenanceSource

	slotProvenanceDerived // the first listSlot
	slotCited
	slotEntriesCompacted
	slotEntriesToCompact
	slotReasonCodes

	slotLineageDepthAfter // the first numberSlot
	slotErrorCode
	slotStepCount
	slotToolCallCount

	slotAnswerError // the first of any type
	slotAnswerMethod
	slotAnswerResult
	slotDeclaredSummary
	slotError
	slotHelloVersion
	slotID
	slotInnerID
	slotParams
	slotPayload
	slotResult
	slotStatus
	slotSummary

	slotCount

	firstListSlot   = slotProvenanceDerived
	firstNumberSlot = slotLineageDepthAfter
	firstAnySlot    = slotAnswerError
)

// checkNote makes sure that what is noted can only have the type that is read:
// schemas that allow another one cannot be walked.
func (n *node) checkNote() error {
	s := n.note.slot
	ok := true
	switch {
	case s == slotNone || s >= firstAnySlot:
	case s >= firstNumberSlot:
		ok = n.types&^typeNumber == 0
	case s >= firstListSlot:
		ok = n.types == typeArray && n.items != nil && n.items.types == typeString
	default:
		ok = n.types == typeString
	}
	switch n.note.role {
	case roleProvenance, rolePayload:
		ok = ok && n.types == typeObject
	}
	if !ok {
		return fmt.Errorf("the type of what is noted is not certain")
	}
	return nil
}

// notes are the notes of a position and of those below it: member names, "*"
// for the items of an array, "?" for the members that no schema names.
type notes struct {
	note    note
	members map[string]*notes
}

func (n *notes) below(name string) *notes {
	if n == nil {
		return nil
	}
	return n.members[name]
}

func (n *notes) names() (list []string) {
	if n == nil {
		return nil
	}
	for name := range n.members {
		if name != "*" && name != "?" {
			list = append(list, name)
		}
	}
	return list
}

// at adds a note at a path of names.
func (n *notes) at(path string, what note) {
	for name := range strings.SplitSeq(path, "/") {
		next := n.members[name]
		if next == nil {
			next = new(notes)
			if n.members == nil {
				n.members = make(map[string]*notes)
			}
			n.members[name] = next
		}
		n = next
	}
	n.note = what
}

// slots adds notes of values that are only kept.
func (n *notes) slots(places map[string]slot) {
	for path, s := range places {
		n.at(path, note{slot: s})
	}
}

// provenance adds the note of a Provenance object.
func (n *notes) provenance(path string, group uint8) {
	n.at(path, note{role: roleProvenance, group: group})
	n.slots(map[string]slot{
		path + "/provenance_id": slotProvenanceID, path + "/origin": slotProvenanceOrigin,
		path + "/source_id": slotProvenanceSource, path + "/derived_from": slotProvenanceDerived,
	})
}

// data adds the note of a data-bearing field.
func (n *notes) data(path string) {
	n.provenance(path+"/provenance", 0)
	n.at(path, note{role: roleData})
}

// requestNotes are what is kept of a request envelope around its payload.
func requestNotes() *notes {
	n := new(notes)
	n.slots(map[string]slot{
		"id": slotID, "method": slotMethod, "params": slotParams, "params/acs_version": slotVersion,
		"params/request_id": slotStepID, "params/timestamp": slotTimestamp, "params/tenant_id": slotTenant,
		"params/metadata/agent_id": slotAgentID, "params/metadata/agent_name": slotAgentName,
		"params/metadata/session_id": slotSession, "params/metadata/turn_id": slotTurnID,
		"params/metadata/parent_turn_id": slotParentTurnID, "params/metadata/environment": slotEnvironment,
		"params/metadata/platform": slotPlatform, "params/metadata/platform_version": slotPlatformVersion,
		"params/metadata/user_context/user_id":     slotUserID,
		"params/metadata/session_state/chain_hash": slotChainHash,
		"params/signature/key_id":                  slotSignatureKeyID, "params/signature/algorithm": slotSignatureAlgorithm,
	})
	n.at("params/payload", note{slot: slotPayload, role: rolePayload})
	return n
}

// payloadNotes are what is kept of the payload of a hook; the same as
// payloadStep reads from a tree of values.
func payloadNotes(hook acs.Hook) *notes {
	n := new(notes)
	switch hook {
	case acs.HookHandshake:
		n.slots(map[string]slot{"provenance_producer": slotProvenanceProducer})
	case acs.HookSessionStart, acs.HookAgentTrigger:
		n.provenance("intent/parser_provenance", 0)
	case acs.HookTurnStart:
		n.slots(map[string]slot{"turn_id": slotPayloadTurnID, "parent_turn_id": slotPayloadParentTurnID, "triggered_by": slotTriggeredBy})
	case acs.HookUserMessage, acs.HookAgentResponse:
		n.data("content/*")
	case acs.HookKnowledgeRetrieval:
		n.data("query")
		n.data("results/*")
	case acs.HookMemoryContextRetrieval:
		n.provenance("query/provenance", 0)
		n.data("results/*")
	case acs.HookMemoryStore:
		n.data("content")
	case acs.HookToolCallRequest:
		n.slots(map[string]slot{"tool/name": slotTool, "capability": slotCapability})
		n.data("arguments/?")
	case acs.HookToolCallResult:
		n.slots(map[string]slot{"tool/name": slotTool, "exit_status": slotExitStatus, "request_id_ref": slotRequestIDRef})
		n.data("outputs/*")
	case acs.HookPreCompact:
		n.slots(map[string]slot{
			"entries_to_compact": slotEntriesToCompact, "triggered_by": slotTriggeredBy,
			"pre_compact_provenance_summary": slotDeclaredSummary,
		})
	case acs.HookPostCompact:
		n.slots(map[string]slot{
			"entries_compacted": slotEntriesCompacted, "pre_compact_chain_hash": slotPreCompactChainHash,
			"lineage_depth_after": slotLineageDepthAfter,
		})
		n.provenance("summary/provenance", 0)
	case acs.HookTurnEnd:
		n.slots(map[string]slot{
			"turn_id": slotPayloadTurnID, "outcome": slotOutcome, "step_count": slotStepCount,
			"tool_call_count": slotToolCallCount, "summary": slotSummary,
		})
		n.provenance("summary/provenance", 0)
	case acs.HookSubagentStart:
		n.slots(map[string]slot{"subagent_session_id": slotSubagentSessionID, "parent_step_id": slotParentStepID})
		n.provenance("subagent_intent/parser_provenance", 0)
	case acs.HookSubagentStop:
		n.slots(map[string]slot{"subagent_session_id": slotSubagentSessionID, "outcome": slotOutcome, "summary": slotSummary})
		n.provenance("summary/provenance", 0)
	case acs.HookSkillRegister:
		n.slots(map[string]slot{
			"skill_id": slotSkillID, "definition/digest/algorithm": slotDigestAlgorithm, "definition/digest/value": slotDigestValue,
		})
		n.provenance("registration_provenance", 0)
	case acs.HookSkillLoad:
		n.slots(map[string]slot{
			"skill_id": slotSkillID, "digest/algorithm": slotDigestAlgorithm, "digest/value": slotDigestValue,
			"parent_step_id": slotParentStepID,
		})
	case acs.HookSkillUnload:
		n.slots(map[string]slot{"skill_id": slotSkillID})
	case acs.HookAgBOMSnapshot, acs.HookAgBOMChanged:
		n.provenance("components/*/registration_provenance", 1)
		n.provenance("agbom/components/*/registration_provenance", 2)
		if hook == acs.HookAgBOMChanged {
			n.slots(map[string]slot{"trigger_step_id": slotTriggerStepID})
			n.provenance("added/*/registration_provenance", 3)
			n.provenance("changed/*/registration_provenance", 4)
		}
	case acs.HookWrapped:
		n.slots(map[string]slot{
			"id": slotInnerID, "result": slotAnswerResult, "error": slotAnswerError, "method": slotAnswerMethod,
		})
	default:
		return nil
	}
	return n
}

// decisionNotes are what is kept of a response envelope with a decision.
func decisionNotes() *notes {
	n := new(notes)
	n.slots(map[string]slot{
		"id": slotID, "result": slotResult, "result/acs_version": slotVersion, "result/request_id": slotStepID,
		"result/decision": slotDecision, "result/reason_codes": slotReasonCodes, "result/cited_provenance_ids": slotCited,
		"result/metadata/evaluator": slotEvaluator, "result/chain_hash": slotDecisionChainHash,
		"result/payload/status": slotStatus,
	})
	n.provenance("result/ask_details/intent_extension/provenance", 0)
	return n
}

// failureNotes are what is kept of an error response.
func failureNotes() *notes {
	n := new(notes)
	n.slots(map[string]slot{"id": slotID, "error": slotError, "error/code": slotErrorCode})
	return n
}

// helloNotes are what is looked at in a response with a ServerHello.
func helloNotes() *notes {
	n := new(notes)
	n.slots(map[string]slot{"result": slotResult, "result/acs_version": slotHelloVersion})
	return n
}
