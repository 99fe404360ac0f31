package dag

import (
	"provstream/internal/acs"
	"provstream/internal/segment"
)

// NodeKind is a node kind of the Kindgi Provenance DAG, schema 1.0.0.
type NodeKind uint8

// The kinds that ACS records map to.
const (
	Input NodeKind = iota
	Prompt
	Retrieval
	ToolCall
	ToolResult
	ModelOutput
	Artifact
	Event
	PolicyDecision
	MemoryRead
	MemoryWrite
)

var nodeKindNames = [...]string{
	Input: "input", Prompt: "prompt", Retrieval: "retrieval", ToolCall: "tool-call", ToolResult: "tool-result",
	ModelOutput: "model-output", Artifact: "artifact", Event: "event", PolicyDecision: "policy-decision",
	MemoryRead: "memory-read", MemoryWrite: "memory-write",
}

func (k NodeKind) String() string { return nodeKindNames[k] }

// MCP methods that have kinds of their own.
const (
	mcpToolsCall     = "tools/call"
	mcpResourcesRead = "resources/read"
	mcpPromptsGet    = "prompts/get"
)

// KindOf returns the kind of a step's node. A rejected step is an event,
// whatever its method says.
func KindOf(g *segment.Segment, s *segment.Step) NodeKind {
	if s.Rejected {
		return Event
	}
	switch s.Hook {
	case acs.HookUserMessage:
		return Input
	case acs.HookAgentResponse:
		return ModelOutput
	case acs.HookKnowledgeRetrieval:
		return Retrieval
	case acs.HookToolCallRequest:
		return ToolCall
	case acs.HookToolCallResult:
		return ToolResult
	case acs.HookMemoryContextRetrieval:
		return MemoryRead
	case acs.HookMemoryStore:
		return MemoryWrite
	case acs.HookPostCompact, acs.HookAgBOMSnapshot:
		return Artifact
	case acs.HookWrapped:
		return mcpKind(string(g.Syms.Bytes(g.More(s).MCPMethod)), s.Answer)
	}
	return Event
}

func mcpKind(method string, answer bool) NodeKind {
	switch method {
	case mcpToolsCall:
		if answer {
			return ToolResult
		}
		return ToolCall
	case mcpResourcesRead:
		return Retrieval
	case mcpPromptsGet:
		return Prompt
	}
	return Event
}

// IsToolsCall reports whether s is a message of MCP tools/call.
func IsToolsCall(g *segment.Segment, s *segment.Step) bool {
	return s.Hook == acs.HookWrapped && string(g.Syms.Bytes(g.More(s).MCPMethod)) == mcpToolsCall
}

// flows reports whether data flows through nodes of a kind: rule 8 links them
// where their lineage is undeclared.
func (k NodeKind) flows() bool {
	switch k {
	case Input, Prompt, Retrieval, MemoryRead, ToolCall, ToolResult, ModelOutput, MemoryWrite:
		return true
	}
	return false
}

// EdgeKind is an edge kind, in the order of the names' bytes.
type EdgeKind uint8

// The edge kinds that the rules give.
const (
	CausedBy EdgeKind = iota
	CheckedAgainst
	InfluencedBy
	Invoked
	Produced
	RetrievedFrom
)

var edgeKindNames = [...]string{
	CausedBy: "caused-by", CheckedAgainst: "checked-against", InfluencedBy: "influenced-by", Invoked: "invoked",
	Produced: "produced", RetrievedFrom: "retrieved-from",
}

func (k EdgeKind) String() string { return edgeKindNames[k] }
