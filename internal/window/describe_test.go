package window_test

import (
	"fmt"
	"strings"

	"provstream/internal/acs"
	"provstream/internal/reference/steptest"
)

func (c referenceCore) Apply(s *acs.Step) []steptest.Output { return outputs(c.p.Apply(s)) }

// describe prints an event in a line, what is not set left out.
func describe(e steptest.Event) string {
	if e.Step == nil {
		return fmt.Sprintf("tick %d", e.Tick)
	}
	s := *e.Step
	kind := strings.TrimPrefix(s.Method, "steps/")
	if s.Type == acs.TypeDecision {
		kind = "decision " + s.Decision
		if s.ErrorResponse {
			kind = "error " + s.ID
		}
	}
	line := fmt.Sprintf("%d/%d %s:%s %s [%s/%d/%d] %x", s.EventTime, s.RecordedAt, s.Session, s.StepID, kind,
		s.Coordinates.Topic, s.Coordinates.Offset, s.Coordinates.Index, s.RequestHash[:2])
	add := func(name string, v any) {
		if text := fmt.Sprint(v); text != "" && text != "[]" && text != "0" && text != "false" && text != "{false 0}" {
			line += fmt.Sprintf(" %s=%s", name, text)
		}
	}
	add("rejected", s.Rejected)
	add("skewed", s.Skewed)
	add("agent", s.AgentID)
	add("turn", s.TurnID)
	add("parent", s.ParentTurnID)
	add("payloadturn", s.PayloadTurnID)
	add("payloadparent", s.PayloadParentTurnID)
	add("prov", s.Provenance)
	add("missing", s.ProvenanceMissing)
	add("producer", s.ProvenanceProducer)
	add("outcome", s.Outcome)
	add("steps", s.StepCount)
	add("calls", s.ToolCallCount)
	add("tool", s.Tool)
	add("ref", s.RequestIDRef)
	add("entries", append(append([]string{}, s.EntriesToCompact...), s.EntriesCompacted...))
	add("depth", s.LineageDepthAfter)
	add("chain", s.ChainHash)
	add("pre", s.PreCompactChainHash)
	add("head", s.DecisionChainHash)
	add("sub", s.SubagentSessionID)
	add("parentstep", s.ParentStepID)
	add("skill", s.SkillID+s.DigestValue)
	add("trigger", s.TriggerStepID)
	add("answer", s.Answer)
	add("inner", s.InnerID)
	add("cites", s.Cited)
	add("id", s.ID)
	return line
}
