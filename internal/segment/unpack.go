package segment

import (
	"strings"

	"provstream/internal/acs"
)

// Unpack gives back a record as far as the segment keeps it: adding it to
// another segment gives the same record there.
func (g *Segment) Unpack(tenant, session string, r Ref) *acs.Step {
	if r.IsStep() {
		return g.unpackStep(tenant, session, &g.Steps[r.Step()])
	}
	return g.unpackDecision(tenant, session, &g.Decisions[r.Decision()])
}

func (g *Segment) unpackStep(tenant, session string, s *Step) *acs.Step {
	y := &g.Syms
	m := g.More(s)
	out := &acs.Step{
		Type: acs.TypeStep, Tenant: tenant, Session: session, StepID: y.String(s.StepID),
		EventTime: s.EventTime, RecordedAt: s.RecordedAt, Skewed: s.Skewed,
		Coordinates: acs.Coordinates{Topic: y.String(s.Topic), Partition: s.Partition, Offset: s.Offset, Index: s.Index},
		RequestHash: s.RequestHash, ContentHash: s.ContentHash, Rejected: y.String(m.RejectedKind),
		Method: y.String(s.Method), AgentID: y.String(s.AgentID), AgentName: y.String(m.AgentName),
		TurnID: y.String(s.Turn), ParentTurnID: y.String(m.ParentTurn), UserID: y.String(m.UserID),
		ChainHash: y.String(m.ChainHash), SignatureKeyID: y.String(m.SignatureKeyID),
		Provenance: g.unpackProvs(g.Provs(s)), ProvenanceMissing: int(m.ProvenanceMissing), ProvenanceProducer: y.String(m.Producer),
		Outcome: y.String(m.Outcome), HasSummary: s.HasSummary, Tool: y.String(s.Tool), Capability: y.String(s.Capability),
		ExitStatus: y.String(s.ExitStatus), RequestIDRef: y.String(s.RequestIDRef), SubagentSessionID: y.String(m.Subagent),
		ParentStepID: y.String(m.ParentStep), SkillID: y.String(m.Skill), TriggerStepID: y.String(m.TriggerStep),
		Answer: s.Answer, InnerID: y.String(m.InnerID),
	}
	if s.jsonID != None {
		out.ID = g.JSONIDText(s.jsonID)
	}
	out.DigestAlgorithm, out.DigestValue, _ = strings.Cut(y.String(m.Digest), "\x00")
	if s.detail < 0 {
		return out
	}
	switch s.Hook {
	case acs.HookTurnStart, acs.HookTurnEnd:
		b := g.Boundary(s)
		out.TurnID, out.PayloadTurnID, out.PayloadParentTurnID = y.String(b.MetadataTurn), y.String(b.PayloadTurn), y.String(b.PayloadParent)
		out.TriggeredBy, out.StepCount, out.ToolCallCount = y.String(b.TriggeredBy), b.StepCount, b.ToolCallCount
		out.Outcome = y.String(b.Outcome)
	case acs.HookPreCompact:
		c := g.Compaction(s)
		out.EntriesToCompact, out.DeclaredSummary = g.texts(c.entries), c.Declared
	case acs.HookPostCompact:
		c := g.Compaction(s)
		out.EntriesCompacted, out.PreCompactChainHash, out.LineageDepthAfter = g.texts(c.entries), y.String(c.ChainHash), c.DepthAfter
	}
	return out
}

func (g *Segment) unpackDecision(tenant, session string, d *Decision) *acs.Step {
	y := &g.Syms
	out := &acs.Step{
		Type: acs.TypeDecision, Tenant: tenant, Session: session, StepID: y.String(d.requestID),
		EventTime: d.RecordedAt, RecordedAt: d.RecordedAt,
		Coordinates: acs.Coordinates{Topic: y.String(d.Topic), Partition: d.Partition, Offset: d.Offset, Index: d.Index},
		RequestHash: d.Hash, ContentHash: d.Hash, Rejected: y.String(d.RejectedKind),
		Provenance: g.unpackProvs(g.DecisionProvs(d)), Decision: y.String(d.Decision), ErrorResponse: d.IsError,
		ErrorCode: acs.Number{Set: d.HasErrorCode, Value: d.ErrorCode}, ReasonCodes: g.texts(d.reasonCodes),
		Cited: g.texts(d.cited), Evaluator: y.String(d.Evaluator), DecisionChainHash: y.String(d.ChainHash),
	}
	if d.jsonID != None {
		out.ID = g.JSONIDText(d.jsonID)
	}
	return out
}

func (g *Segment) unpackProvs(provs []Prov) (out []acs.Provenance) {
	for i := range provs {
		p := &provs[i]
		out = append(out, acs.Provenance{
			ID: g.Syms.String(p.ID), Origin: g.Syms.String(p.OriginName), SourceID: g.Syms.String(p.SourceID), DerivedFrom: g.texts(p.parents),
		})
	}
	return out
}

func (g *Segment) texts(s span) (out []string) {
	for _, sym := range g.list(s) {
		out = append(out, g.Syms.String(sym))
	}
	return out
}

// Split divides a segment: the records with recorded_at up to limit, and the
// others. moved holds, for each step that is in rest, its index before.
func (g *Segment) Split(limit int64) (upTo, rest *Segment, moved []int32) {
	upTo, rest = &Segment{AfterEnd: g.AfterEnd}, &Segment{AfterEnd: g.AfterEnd}
	for i := range g.Steps {
		s := &g.Steps[i]
		to := upTo
		if s.RecordedAt > limit {
			to = rest
			moved = append(moved, int32(i))
		}
		to.Add(g.Unpack("", "", StepRef(int32(i))))
		if s.IsTurnBoundary() {
			to.Boundary(&to.Steps[len(to.Steps)-1]).At = g.Boundary(s).At
		}
	}
	for i := range g.Decisions {
		to := upTo
		if g.Decisions[i].RecordedAt > limit {
			to = rest
		}
		to.Add(g.Unpack("", "", DecisionRef(int32(i))))
	}
	return upTo, rest, moved
}
