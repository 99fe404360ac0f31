package acs

// ranks is the method rank of the canonical order: what happens at the same
// instant is ordered as it happens in a session.
var ranks = [HookCount]uint8{
	HookHandshake: 0, HookSessionStart: 1, HookAgBOMSnapshot: 2, HookAgentTrigger: 3, HookTurnStart: 4,
	HookUserMessage: 5, HookSkillRegister: 6, HookSkillLoad: 7, HookMemoryContextRetrieval: 8,
	HookKnowledgeRetrieval: 9, HookSubagentStart: 10, HookSubagentStop: 11, HookToolCallRequest: 12,
	HookToolCallResult: 13, HookUnknown: rankUnknown, HookPing: rankUnknown, HookMemoryStore: 15, HookAgBOMChanged: 16,
	HookPreCompact: 17, HookPostCompact: 18, HookSkillUnload: 19, HookAgentResponse: 20, HookTurnEnd: 21,
	HookSessionEnd: 22,
}

const rankUnknown = 14

// Rank returns the rank of a step in the canonical order. A rejected step
// ranks with the unknown methods whatever its method says; an answer of a
// wrapped protocol ranks as a tool result, any other message as a tool call.
func Rank(h Hook, rejected, answer bool) uint8 {
	switch {
	case rejected:
		return rankUnknown
	case h == HookWrapped && answer:
		return ranks[HookToolCallResult]
	case h == HookWrapped:
		return ranks[HookToolCallRequest]
	}
	return ranks[h]
}
