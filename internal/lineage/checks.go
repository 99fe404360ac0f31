package lineage

import (
	"encoding/hex"
	"strconv"

	"provstream/internal/acs"
	"provstream/internal/dag"
	"provstream/internal/jcs"
	"provstream/internal/segment"
)

// prepare notes what checks ask of the whole pass, wherever it stands.
func (f *Facts) prepare() {
	g, refs := f.order.Seg, f.order.Refs[f.order.From:]
	n := g.Syms.Len()
	f.stamps = append(f.stamps, make([]int32, n-len(f.stamps))...)
	f.heads.Grow(n)
	f.agents.Grow(n)
	f.denied = segment.Resize(f.denied, len(g.Steps))
	f.stopped = nil
	for _, r := range refs {
		if r.IsStep() {
			f.prepareStep(r.Step())
		} else {
			f.prepareDecision(r.Decision())
		}
	}
}

func (f *Facts) prepareDecision(i int32) {
	o, g := f.order, f.order.Seg
	d := &g.Decisions[i]
	if d.ChainHash != segment.None {
		o.Found(d.ChainHash)
		if !f.passing.publishes && f.passing.claims {
			o.Cross(segment.CrossedPromise)
		}
		f.heads.Set(d.ChainHash, true)
		f.passing.publishes = true
	}
	if s := o.StepOf[i]; s >= 0 && string(g.Syms.Bytes(d.Decision)) == "deny" {
		f.denied[s] = true
	}
}

func (f *Facts) prepareStep(i int32) {
	o, g := f.order, f.order.Seg
	s := &g.Steps[i]
	m := g.More(s)
	switch {
	case o.Standing[i] == segment.Handshake:
		if string(g.Syms.Bytes(m.Producer)) == "deterministic" && !f.passing.promised {
			if f.passing.missing {
				o.Cross(segment.CrossedPromise)
			}
			f.passing.promised = true
		}
	case o.Standing[i] != segment.Counted:
	case s.Hook == acs.HookSubagentStart:
		o.Found(m.Subagent)
		f.started.Put(m.Subagent, true)
	case s.Hook == acs.HookSubagentStop:
		if f.stopped == nil {
			f.stopped = make(map[segment.Sym]bool)
		}
		f.stopped[m.Subagent] = true
	case s.Hook == acs.HookSkillRegister:
		o.Found(m.Skill)
		f.skills.Put([2]segment.Sym{m.Skill, m.Digest}, true)
	}
}

// step makes the checks of one step.
func (f *Facts) step(r segment.Ref) {
	o, g := f.order, f.order.Seg
	i := r.Step()
	s := &g.Steps[i]
	if g.AfterEnd {
		f.add(r, StepAfterSeal, "")
	}
	switch o.Standing[i] {
	case segment.Rejected:
		f.add(r, StepRejected, f.text(g.More(s).RejectedKind))
		return
	case segment.Loser:
		f.add(r, StepConflict, hex.EncodeToString(s.RequestHash[:]))
		f.agent(r, s)
		return
	}
	f.agent(r, s)
	if s.Skewed {
		f.add(r, ClockSkew, strconv.FormatInt((s.EventTime-s.RecordedAt)/1000, 10))
	}
	f.chain(r, g.More(s).ChainHash)
	if o.Standing[i] == segment.Handshake {
		return
	}
	f.provenance(r, g.Provs(s), g.ProvStart(s), s.Hook == acs.HookSubagentStop)
	if n := g.More(s).ProvenanceMissing; n > 0 && f.passing.promised {
		f.add(r, ProvenanceMissing, strconv.Itoa(int(n)))
	} else if n > 0 {
		f.passing.missing = true
	}
	f.hook(r, s)
}

// hook makes the checks of one kind of step.
func (f *Facts) hook(r segment.Ref, s *segment.Step) {
	g, mem := f.order.Seg, f.order.Mem
	switch s.Hook {
	case acs.HookUnknown:
		f.add(r, UnknownMethod, f.text(s.Method))
	case acs.HookTurnStart:
		f.turnID(r, s)
	case acs.HookTurnEnd:
		f.turnID(r, s)
		f.turnEnd(r, s)
	case acs.HookToolCallResult:
		f.result(r, s.RequestIDRef, s.RequestIDRef != segment.None && f.order.Resolve(s.RequestIDRef) == segment.Nowhere)
	case acs.HookWrapped:
		if s.Answer && dag.IsToolsCall(g, s) {
			f.result(r, segment.None, g.More(s).InnerID != segment.None)
		}
	case acs.HookPreCompact:
		f.preCompact(r, s)
	case acs.HookPostCompact:
		f.chain(r, g.Compaction(s).ChainHash)
		f.postCompact(r, s)
	case acs.HookSubagentStop:
		session := g.More(s).Subagent
		if _, ok := f.started.Get(session); !ok && !mem.HasSubagent(g.Syms.Bytes(session)) && !mem.MemoryLimited() {
			f.order.Miss(session)
			f.add(r, SubagentUnstarted, f.text(session))
		}
	case acs.HookSkillLoad:
		m := g.More(s)
		if _, ok := f.skills.Get([2]segment.Sym{m.Skill, m.Digest}); !ok && !mem.HasSkill(g.Syms.Bytes(m.Skill), g.Syms.Bytes(m.Digest)) && !mem.MemoryLimited() {
			f.order.Miss(m.Skill)
			f.add(r, SkillUnregistered, f.text(m.Skill))
		}
	}
}

// decision makes the checks of one decision.
func (f *Facts) decision(r segment.Ref) {
	o, g := f.order, f.order.Seg
	d := &g.Decisions[r.Decision()]
	if g.AfterEnd {
		f.add(r, DecisionAfterSeal, "")
	}
	if d.RejectedKind != segment.None { // kept the same way as a rejected step
		f.add(r, StepRejected, f.text(d.RejectedKind))
	}
	if o.StepOf[r.Decision()] == segment.Nowhere && !o.Mem.MemoryLimited() {
		f.add(r, DecisionWithoutStep, "")
	}
	f.provenance(r, g.DecisionProvs(d), g.DecisionProvStart(d), false)
	f.passing.lastAsk = string(g.Syms.Bytes(d.Decision)) == "ask"
}

// agent: agent_changed, on the first accepted record of each further agent_id.
func (f *Facts) agent(r segment.Ref, s *segment.Step) {
	id := s.AgentID
	if id == segment.None || f.agents.At(id) {
		return
	}
	f.agents.Set(id, true)
	if f.order.Mem.HasAgent(f.order.Seg.Syms.Bytes(id)) {
		return
	}
	if f.passing.anyAgent {
		f.add(r, AgentChanged, f.text(id))
	}
	f.passing.anyAgent = true
}

// chain: chain_gap, where a claimed head is none that a decision of the run
// published. An ask may move the head without a hook of its own (ACS §8.3).
func (f *Facts) chain(r segment.Ref, hash segment.Sym) {
	switch {
	case hash == segment.None:
		return
	case !f.passing.publishes:
		f.passing.claims = true
		return
	case f.passing.lastAsk || f.heads.At(hash):
		return
	}
	if m := f.order.Mem; m != nil {
		for _, h := range m.Heads {
			if h == string(f.order.Seg.Syms.Bytes(hash)) {
				return
			}
		}
	}
	f.order.Miss(hash)
	f.add(r, ChainGap, f.text(hash))
}

// provenance: unknown_origin, unresolved_parent and provenance_conflict.
func (f *Facts) provenance(r segment.Ref, provs []segment.Prov, start int32, subagentStop bool) {
	g := f.order.Seg
	limited := f.order.Mem.MemoryLimited()
	for i := range provs {
		p := &provs[i]
		if p.Origin == acs.OriginUnknown {
			f.add(r, UnknownOrigin, f.text(p.OriginName))
		}
		mint, _ := f.index.Mint(p.ID)
		if mint.Remembered {
			continue
		}
		object := start + int32(i)
		if object != mint.Object {
			m := g.ProvAt(mint.Object)
			if m.OriginName != p.OriginName || m.SourceID != p.SourceID || !f.index.SameParents(object, mint.Object) {
				f.add(r, ProvenanceConflict, f.text(p.ID))
			}
		}
		if mint.Record != r || subagentStop || limited {
			continue
		}
		for _, q := range g.Parents(p) {
			if !f.index.Resolves(q) {
				f.add(r, UnresolvedParent, f.text(q))
			}
		}
	}
}

// result: result_without_call. A reference that leads nowhere (dangling)
// proves nothing once the run's memory is limited.
func (f *Facts) result(r segment.Ref, reference segment.Sym, dangling bool) {
	if f.graph.FoundCall(r.Step()) || dangling && f.order.Mem.MemoryLimited() {
		return
	}
	f.add(r, ResultWithoutCall, f.text(reference))
}

// turnID: turn_id_mismatch.
func (f *Facts) turnID(r segment.Ref, s *segment.Step) {
	b := f.order.Seg.Boundary(s)
	if b.MetadataTurn != segment.None && b.PayloadTurn != segment.None && b.MetadataTurn != b.PayloadTurn {
		f.add(r, TurnIDMismatch, f.text(b.MetadataTurn))
	}
}

// absence makes the checks marked °.
func (f *Facts) absence() {
	o, g := f.order, f.order.Seg
	sessionStart := o.Mem != nil // the run's first record stands in an earlier segment
	for i := range g.Steps {
		s := &g.Steps[i]
		if o.Standing[i] != segment.Counted {
			continue
		}
		r := segment.StepRef(int32(i))
		switch s.Hook {
		case acs.HookSessionStart:
			sessionStart = true
		case acs.HookTurnStart:
			if s.Turn != segment.None && o.Turns.Start(s.Turn) == int32(i) && o.Turns.End(s.Turn) < 0 && !f.turns.HasSealedEnd(f.turns.Index(s.Turn)) {
				f.add(r, MissingTurnEnd, f.text(s.Turn))
			}
		case acs.HookSubagentStart:
			if f.OpenSubagent(int32(i)) {
				f.add(r, SubagentUnfinished, f.text(g.More(s).Subagent))
			}
		case acs.HookToolCallRequest, acs.HookWrapped:
			if f.OpenCall(int32(i)) {
				f.add(r, CallWithoutResult, "")
			}
		}
	}
	if !sessionStart && len(o.Refs) > 0 {
		f.add(o.Refs[0], MissingSessionStart, "")
	}
}

// OpenCall reports whether a step is a tool call with neither result nor deny.
func (f *Facts) OpenCall(i int32) bool {
	g := f.order.Seg
	s := &g.Steps[i]
	if s.Hook != acs.HookToolCallRequest && (s.Answer || !dag.IsToolsCall(g, s)) {
		return false
	}
	return !f.graph.HasResult(i) && !f.denied[i]
}

// Unanswered reports whether a step is an MCP request without an answer.
func (f *Facts) Unanswered(i int32) bool {
	g := f.order.Seg
	s := &g.Steps[i]
	m := g.More(s)
	return s.Hook == acs.HookWrapped && !s.Answer && m.MCPMethod != segment.None && m.InnerID != segment.None && !f.graph.HasResult(i)
}

// OpenSubagent reports whether a subagentStart's session has not stopped.
func (f *Facts) OpenSubagent(i int32) bool {
	g := f.order.Seg
	return !f.stopped[g.More(&g.Steps[i]).Subagent]
}

// number prints a declared number as JCS does.
func number(v float64) string { return string(jcs.AppendNumber(nil, v)) }
