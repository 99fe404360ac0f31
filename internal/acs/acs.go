// Package acs holds the words of the Agent Control Standard (ACS v0.1.0) that
// every part of provstream shares: origins, methods with their rank in the
// canonical order, and the [Step], which is what ingest keeps of one hook
// envelope. It has no I/O and depends on nothing.
//
// A step never carries payload content: no value, no prompt, no reasoning.
// Strings in a Step are already clamped (see [Clamp]); an empty string means
// absent everywhere but in a provenance_id and in an item of a list.
package acs

import "strings"

// Origin is a Provenance origin of ACS §7 (provenance.json). Origins outside
// the list are legal on the wire, are carried as they are, and count nowhere.
type Origin uint8

// The origins in the order of the ACS enum, which is also the order in which
// they are printed.
const (
	OriginUnknown Origin = iota
	OriginUserInput
	OriginSystem
	OriginToolOutput
	OriginRetrieved
	OriginAgentGenerated
	OriginA2AInbound
	OriginExternal

	// OriginCount is the number of Origin values, OriginUnknown included.
	OriginCount
)

var originNames = [OriginCount]string{
	"", "user_input", "system", "tool_output", "retrieved", "agent_generated", "a2a_inbound", "external",
}

// String returns the name as the ACS enum spells it, "" for OriginUnknown.
func (o Origin) String() string {
	if o >= OriginCount {
		return ""
	}
	return originNames[o]
}

// ParseOrigin returns the Origin spelt s, or OriginUnknown.
func ParseOrigin(s string) Origin {
	for o := OriginUserInput; o < OriginCount; o++ {
		if originNames[o] == s {
			return o
		}
	}
	return OriginUnknown
}

// MaxString is the longest string, in bytes, that is taken over from an
// envelope as it is.
const MaxString = 256

// Method names of ACS v0.1.0.
const (
	MethodHandshakeHello         = "handshake/hello"
	MethodSessionStart           = "steps/sessionStart"
	MethodAgBOMSnapshot          = "agbom/snapshot"
	MethodAgentTrigger           = "steps/agentTrigger"
	MethodTurnStart              = "steps/turnStart"
	MethodUserMessage            = "steps/userMessage"
	MethodSkillRegister          = "steps/skillRegister"
	MethodSkillLoad              = "steps/skillLoad"
	MethodMemoryContextRetrieval = "steps/memoryContextRetrieval"
	MethodKnowledgeRetrieval     = "steps/knowledgeRetrieval"
	MethodSubagentStart          = "steps/subagentStart"
	MethodSubagentStop           = "steps/subagentStop"
	MethodToolCallRequest        = "steps/toolCallRequest"
	MethodToolCallResult         = "steps/toolCallResult"
	MethodMemoryStore            = "steps/memoryStore"
	MethodAgBOMChanged           = "agbom/changed"
	MethodPreCompact             = "steps/preCompact"
	MethodPostCompact            = "steps/postCompact"
	MethodSkillUnload            = "steps/skillUnload"
	MethodAgentResponse          = "steps/agentResponse"
	MethodTurnEnd                = "steps/turnEnd"
	MethodSessionEnd             = "steps/sessionEnd"
	MethodSystemPing             = "system/ping"
)

// Hook is a method of the inventory as a small number. Methods that are
// unknown, and wrapped protocol messages, have Hooks of their own.
type Hook uint8

// The hooks. The order of the constants is not the canonical rank: see Rank.
const (
	HookUnknown Hook = iota
	HookHandshake
	HookSessionStart
	HookAgBOMSnapshot
	HookAgentTrigger
	HookTurnStart
	HookUserMessage
	HookSkillRegister
	HookSkillLoad
	HookMemoryContextRetrieval
	HookKnowledgeRetrieval
	HookSubagentStart
	HookSubagentStop
	HookToolCallRequest
	HookToolCallResult
	HookMemoryStore
	HookAgBOMChanged
	HookPreCompact
	HookPostCompact
	HookSkillUnload
	HookAgentResponse
	HookTurnEnd
	HookSessionEnd
	HookPing
	// HookWrapped is protocols/* and wrapped:*, a JSON-RPC message of another
	// protocol. Step.Answer tells a request from an answer.
	HookWrapped

	// HookCount is the number of hooks.
	HookCount
)

var hookByMethod = map[string]Hook{
	MethodHandshakeHello: HookHandshake, MethodSessionStart: HookSessionStart, MethodAgBOMSnapshot: HookAgBOMSnapshot,
	MethodAgentTrigger: HookAgentTrigger, MethodTurnStart: HookTurnStart, MethodUserMessage: HookUserMessage,
	MethodSkillRegister: HookSkillRegister, MethodSkillLoad: HookSkillLoad,
	MethodMemoryContextRetrieval: HookMemoryContextRetrieval, MethodKnowledgeRetrieval: HookKnowledgeRetrieval,
	MethodSubagentStart: HookSubagentStart, MethodSubagentStop: HookSubagentStop,
	MethodToolCallRequest: HookToolCallRequest, MethodToolCallResult: HookToolCallResult,
	MethodMemoryStore: HookMemoryStore, MethodAgBOMChanged: HookAgBOMChanged, MethodPreCompact: HookPreCompact,
	MethodPostCompact: HookPostCompact, MethodSkillUnload: HookSkillUnload, MethodAgentResponse: HookAgentResponse,
	MethodTurnEnd: HookTurnEnd, MethodSessionEnd: HookSessionEnd, MethodSystemPing: HookPing,
}

// HookOf returns the Hook of a method. Names are compared byte by byte.
func HookOf(method string) Hook {
	if h, ok := hookByMethod[method]; ok {
		return h
	}
	if strings.HasPrefix(method, "protocols/") || strings.HasPrefix(method, "wrapped:") {
		return HookWrapped
	}
	return HookUnknown
}

// MCPMethod returns the MCP method inside protocols/MCP/<m> or
// wrapped:mcp-<version>/<m> (ACS §5.22), "" for any other method.
func MCPMethod(method string) string {
	if m, ok := strings.CutPrefix(method, "protocols/MCP/"); ok {
		return m
	}
	if m, ok := strings.CutPrefix(method, "wrapped:mcp-"); ok {
		if _, inner, ok := strings.Cut(m, "/"); ok {
			return inner
		}
	}
	return ""
}
