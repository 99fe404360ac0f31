package lineage

// Code is an anomaly code. Codes are numbered in the order of their names'
// bytes, so sorting codes is sorting names.
type Code uint8

// The anomaly codes (rules.md §6). Those marked ° are checks of absence, which
// a size seal does not make.
const (
	AgentChanged           Code = iota // a further agent_id appears in the run
	CallWithoutResult                  // ° a tool call has neither result nor deny
	ChainGap                           // a claimed chain head is none that a decision published
	ClockSkew                          // event time and recorded_at are far apart
	CompactionDepth                    // lineage_depth_after is not ours
	CompactionLineage                  // derived_from of a postCompact is not the union of what it compacted
	CompactionSummary                  // a preCompact's ProvenanceSummary is not ours
	CompactionUnknownStep              // a compaction lists a step that the run does not have
	CompactionUnverifiable             // a compaction lists a step whose ids are no longer remembered
	DecisionAfterSeal                  // a decision came after session_end
	DecisionWithoutStep                // a decision's step is nowhere
	LineageCycle                       // an edge was removed because it closed a cycle
	MemoryLimit                        // a record did not fit into what is remembered
	MissingSessionStart                // ° the run has no sessionStart
	MissingTurnEnd                     // ° a turnStart without a turnEnd of its turn
	ProvenanceConflict                 // an id is carried with another origin, source or parents than minted
	ProvenanceMissing                  // data without provenance though the producer promised it
	ResultWithoutCall                  // no call is found for a result
	SkillUnregistered                  // a skill was loaded that was never registered
	StepAfterSeal                      // a step came after session_end
	StepConflict                       // a step_id was used for another step
	StepRejected                       // the envelope was rejected
	SubagentUnfinished                 // ° a subagent was started and did not stop
	SubagentUnstarted                  // a subagent stopped that was not started
	ToolCallCountMismatch              // a turnEnd declares another number of tool calls
	TurnIDMismatch                     // payload.turn_id and metadata.turn_id differ
	TurnStepsMismatch                  // a turnEnd declares another number of steps
	TurnSummaryLineage                 // a turn summary's derived_from is not what the turn carried
	UnknownMethod                      // the method is outside the inventory
	UnknownOrigin                      // the origin is outside the enum
	UnresolvedParent                   // a parent id is carried nowhere in the run

	codeCount
)

var codeNames = [codeCount]string{
	AgentChanged: "agent_changed", CallWithoutResult: "call_without_result", ChainGap: "chain_gap",
	ClockSkew: "clock_skew", CompactionDepth: "compaction_depth", CompactionLineage: "compaction_lineage",
	CompactionSummary: "compaction_summary", CompactionUnknownStep: "compaction_unknown_step",
	CompactionUnverifiable: "compaction_unverifiable", DecisionAfterSeal: "decision_after_seal",
	DecisionWithoutStep: "decision_without_step", LineageCycle: "lineage_cycle", MemoryLimit: "memory_limit",
	MissingSessionStart: "missing_session_start", MissingTurnEnd: "missing_turn_end",
	ProvenanceConflict: "provenance_conflict", ProvenanceMissing: "provenance_missing",
	ResultWithoutCall: "result_without_call", SkillUnregistered: "skill_unregistered",
	StepAfterSeal: "step_after_seal", StepConflict: "step_conflict", StepRejected: "step_rejected",
	SubagentUnfinished: "subagent_unfinished", SubagentUnstarted: "subagent_unstarted",
	ToolCallCountMismatch: "tool_call_count_mismatch", TurnIDMismatch: "turn_id_mismatch",
	TurnStepsMismatch: "turn_steps_mismatch", TurnSummaryLineage: "turn_summary_lineage",
	UnknownMethod: "unknown_method", UnknownOrigin: "unknown_origin", UnresolvedParent: "unresolved_parent",
}

func (c Code) String() string { return codeNames[c] }

// Codes returns every code in the order of their names.
func Codes() []Code {
	all := make([]Code, codeCount)
	for i := range all {
		all[i] = Code(i)
	}
	return all
}
