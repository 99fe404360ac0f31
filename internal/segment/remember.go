package segment

import "provstream/internal/acs"

// Sealed is what Remember needs to know of a sealed segment beside its order.
type Sealed struct {
	Order *Order
	// Size is true for a size seal, which tells nothing of what is open.
	Size bool
	// InDAG is true when the segment gave a DAG.
	InDAG bool
	// IDOf gives depth and kind of an id that the segment mints.
	IDOf func(Sym) IDInfo
	// TurnOf gives the index of a step's turn in the run, -1 without.
	TurnOf func(*Step) int32
	// OpenCall reports whether a call has neither a result nor a deny.
	OpenCall func(step int32) bool
	// Unanswered reports whether an MCP request has no answer.
	Unanswered func(step int32) bool
	// OpenSubagent reports whether a subagentStart has no stop.
	OpenSubagent func(step int32) bool
}

// Remember keeps what later segments need of a sealed one, record by record in
// run order, each with all its hashes or not at all. It returns the first
// record of the run that did not fit in MaxIDs hashes, once (rules.md §4).
func (m *Memory) Remember(sealed Sealed) (unfit Ref) {
	o := sealed.Order
	w := remembering{Memory: m, Sealed: &sealed, g: o.Seg, of: make([]place, o.Seg.Syms.Len())}
	m.lastID, m.last = nil, 0
	m.table.reserve(min(m.MaxIDs-m.used, 2*len(o.Refs)+len(o.Seg.provs)), m.MaxIDs)
	if len(m.steps) == 0 { // most runs end with their first seal
		m.steps = make([]StepInfo, 0, min(m.MaxIDs, len(o.Seg.Steps)))
		m.ids = make([]IDInfo, 0, min(m.MaxIDs, len(o.Seg.provs)))
		m.carried = make([]uint32, 0, min(m.MaxIDs, len(o.Seg.provs)))
	}
	unfit = NoRef
	for _, r := range o.Refs {
		ok := false
		if r.IsStep() {
			ok = w.step(r.Step())
		} else {
			ok = w.decision(r.Decision())
		}
		if !ok && unfit == NoRef {
			unfit = r
		}
	}
	if m.Limited {
		unfit = NoRef // told already
	} else if unfit != NoRef {
		m.Limited = true
	}
	m.rememberFacts(o)
	m.rememberTurns(o)
	return unfit
}

// remembering is one Remember under way.
type remembering struct {
	*Memory
	*Sealed
	g      *Segment
	of     []place // by Sym
	newIDs []Sym
}

// place is where the memory keeps what a Sym names: 1 + index, 0 when it does
// not, or when that was not looked up yet.
type place struct{ step, id uint32 }

// placeOfStep returns 1 + the index of a step_id, 0 when it is not remembered.
func (w *remembering) placeOfStep(id Sym) *uint32 {
	at := &w.of[id].step
	if *at == 0 && w.Order.Mem != nil {
		if w.Order.Recall(id) != nil {
			*at = uint32(w.g.recall.steps[id])
		}
	}
	return at
}

// placeOfID is the same for a provenance id.
func (w *remembering) placeOfID(id Sym) *uint32 {
	at := &w.of[id].id
	if *at == 0 && w.Order.Mem != nil {
		if n, ok := w.Order.RecallID(id); ok {
			*at = n + 1
		}
	}
	return at
}

// room reports whether n more hashes fit, and takes them.
func (m *Memory) room(n int) bool {
	if m.used+n > m.MaxIDs {
		return false
	}
	m.used += n
	return true
}

func (w *remembering) step(i int32) bool {
	g, o := w.g, w.Order
	s := &g.Steps[i]
	standing := o.Standing[i]
	w.newIDs = w.newIDs[:0]
	at := w.placeOfStep(s.StepID)
	n := 1
	if *at == 0 {
		n++
	}
	if standing == Counted {
		w.findNewIDs(g.Provs(s))
		n += len(w.newIDs) + int(s.prov.n) + w.openHashes(i)
	}
	if !w.room(n) {
		return false
	}
	w.putNewIDs()
	w.table.put(hash16(kindStep, g.Syms.Bytes(s.StepID), g.Syms.Bytes(s.Method), s.RequestHash[:]), 0)
	w.newStep(s.StepID, at)
	w.seq++
	info := &w.steps[*at-1]
	switch standing {
	case Rejected:
		info.Rejected = true
		info.InDAG = info.InDAG || !info.Accepted && w.InDAG
	case Loser: // its winner may not have fitted
		if !info.Accepted {
			info.Accepted, info.InDAG = true, w.InDAG
		}
	default:
		w.describe(info, s, standing)
	}
	if standing == Counted {
		w.putOpen(i)
	}
	return true
}

// newStep makes the place of a step_id that has none.
func (w *remembering) newStep(id Sym, at *uint32) {
	if *at == 0 {
		w.table.put(hash16(kindStepID, w.g.Syms.Bytes(id)), uint32(len(w.steps)))
		w.steps = append(w.steps, StepInfo{Turn: -1})
		*at = uint32(len(w.steps))
	}
}

// describe fills in what is remembered of an accepted step that won its id.
func (w *remembering) describe(info *StepInfo, s *Step, standing Standing) {
	info.Accepted, info.Counted = true, standing == Counted
	info.InDAG = w.InDAG
	info.Hook, info.Seq, info.Turn = s.Hook, w.seq, w.TurnOf(s)
	if standing != Counted || s.prov.n == 0 {
		return
	}
	var counts [acs.OriginCount]uint32
	info.ids = span{uint32(len(w.carried)), s.prov.n}
	provs := w.g.Provs(s)
	for i := range provs {
		w.carried = append(w.carried, *w.placeOfID(provs[i].ID)-1)
		counts[provs[i].Origin]++
	}
	info.counts = span{uint32(len(w.counts)), uint32(len(counts))}
	w.counts = append(w.counts, counts[:]...)
}

func (w *remembering) decision(i int32) bool {
	g, o := w.g, w.Order
	d := &g.Decisions[i]
	at := w.placeOfStep(o.RequestID[i])
	w.findNewIDs(g.DecisionProvs(d))
	n := 1 + len(w.newIDs)
	if *at == 0 {
		n++
	}
	if !w.room(n) {
		return false
	}
	if d.requestID != None {
		w.table.put(hash16(kindDecision, g.Syms.Bytes(d.requestID), d.Hash[:]), 0)
	} else {
		w.table.put(hash16(kindErrorAnswer, []byte(g.errorIDText(d)), d.Hash[:]), 0)
	}
	w.newStep(o.RequestID[i], at)
	w.steps[*at-1].Decisions++
	w.putNewIDs()
	return true
}

func (g *Segment) errorIDText(d *Decision) string {
	if d.jsonID == None {
		return ""
	}
	return g.JSONIDText(d.jsonID)
}

// found marks an id of the record at hand that is not remembered yet, so that
// the record counts it once.
const found = 1<<32 - 1

// findNewIDs sets newIDs to the ids of objects that are not remembered yet.
func (w *remembering) findNewIDs(provs []Prov) {
	w.newIDs = w.newIDs[:0]
	for i := range provs {
		if at := w.placeOfID(provs[i].ID); *at == 0 {
			*at = found
			w.newIDs = append(w.newIDs, provs[i].ID)
		}
	}
	for _, id := range w.newIDs {
		w.of[id].id = 0
	}
}

func (w *remembering) putNewIDs() {
	for _, id := range w.newIDs {
		w.table.put(IDHash(w.g.Syms.Bytes(id)), uint32(len(w.ids)))
		w.ids = append(w.ids, w.IDOf(id))
		w.of[id].id = uint32(len(w.ids))
	}
}

// openHashes counts the further hashes of a counted step: a registered skill,
// a started subagent, a call or request that is still without its result.
func (w *remembering) openHashes(i int32) (n int) {
	switch w.g.Steps[i].Hook {
	case acs.HookSkillRegister:
		n = 1
	case acs.HookSubagentStart:
		n = 1
		if w.Size && w.OpenSubagent(i) {
			n++
		}
	case acs.HookToolCallRequest, acs.HookWrapped:
		if w.Unanswered(i) {
			n = 2
		}
		if w.Size && w.OpenCall(i) {
			n++
		}
	}
	return n
}

func (w *remembering) putOpen(i int32) {
	s := &w.g.Steps[i]
	more := w.g.More(s)
	text := w.g.Syms.Bytes
	switch s.Hook {
	case acs.HookSkillRegister:
		put(&w.skills, hash16(kindSkill, text(more.Skill), text(more.Digest)), struct{}{})
	case acs.HookSubagentStart:
		h := hash16(kindSubagent, text(more.Subagent))
		put(&w.subagents, h, struct{}{})
		if w.Size && w.OpenSubagent(i) {
			put(&w.untoldSubagents, h, w.untoldSubagents[h]+1)
		}
	case acs.HookToolCallRequest, acs.HookWrapped:
		if w.Size && w.OpenCall(i) {
			put(&w.untoldCalls, hash16(kindStepID, text(s.StepID)), struct{}{})
		}
		if s.Hook == acs.HookWrapped && w.Unanswered(i) {
			h := hash16(kindMCP, text(more.MCPMethod), text(more.InnerID))
			put(&w.mcp, h, append(w.mcp[h], hash16(kindStepID, text(s.StepID))))
		}
	}
}

func put[V any](m *map[Hash16]V, h Hash16, v V) {
	if *m == nil {
		*m = make(map[Hash16]V)
	}
	(*m)[h] = v
}

// Settle takes what the records of a segment settle out of what size seals
// left open: a result or a deny of a call, an answer of an MCP request, the
// stop of a subagent.
func (m *Memory) Settle(o *Order) {
	g := o.Seg
	for i := range g.Steps {
		s := &g.Steps[i]
		if o.Standing[i] != Counted {
			continue
		}
		more := g.More(s)
		switch {
		case s.Hook == acs.HookToolCallResult && s.RequestIDRef != None && len(m.untoldCalls) > 0:
			delete(m.untoldCalls, hash16(kindStepID, g.Syms.Bytes(s.RequestIDRef)))
		case s.Hook == acs.HookSubagentStop && len(m.untoldSubagents) > 0:
			delete(m.untoldSubagents, hash16(kindSubagent, g.Syms.Bytes(more.Subagent)))
		}
	}
	m.settleMCP(o)
	for i := range g.Decisions {
		if d := &g.Decisions[i]; string(g.Syms.Bytes(d.Decision)) == "deny" && d.RejectedKind == None && len(m.untoldCalls) > 0 {
			delete(m.untoldCalls, hash16(kindStepID, g.Syms.Bytes(o.RequestID[i])))
		}
	}
}

// settleMCP strikes of each (method, inner id) the last remembered request, if an
// answer of the segment has no request before it there: all such answers are
// that request's.
func (m *Memory) settleMCP(o *Order) {
	if len(m.mcp) == 0 {
		return
	}
	g := o.Seg
	over := make(map[Hash16]struct{}) // requested in the segment so far, or settled
	for _, ref := range o.Refs {
		if !ref.IsStep() || o.Standing[ref.Step()] != Counted {
			continue
		}
		s := &g.Steps[ref.Step()]
		more := g.More(s)
		if s.Hook != acs.HookWrapped || more.MCPMethod == None || more.InnerID == None {
			continue
		}
		h := hash16(kindMCP, g.Syms.Bytes(more.MCPMethod), g.Syms.Bytes(more.InnerID))
		if _, ok := over[h]; ok {
			continue
		}
		over[h] = struct{}{}
		steps := m.mcp[h]
		if !s.Answer || len(steps) == 0 {
			continue
		}
		last := len(steps) - 1
		delete(m.untoldCalls, steps[last])
		if m.mcp[h] = steps[:last]; last == 0 {
			delete(m.mcp, h)
		}
	}
}

// Untold returns the numbers of calls and subagents that size seals left open
// and no seal has told, and forgets them.
func (m *Memory) Untold() (calls, subagents int) {
	if m == nil {
		return 0, 0
	}
	calls = len(m.untoldCalls)
	for _, n := range m.untoldSubagents {
		subagents += n
	}
	m.untoldCalls, m.untoldSubagents = nil, nil
	return calls, subagents
}

// rememberFacts keeps what is bounded by itself: boundaries seen, agents,
// chain heads, and whether the last decision was an ask.
func (m *Memory) rememberFacts(o *Order) {
	g := o.Seg
	for _, r := range o.Refs {
		if !r.IsStep() {
			d := &g.Decisions[r.Decision()]
			if d.ChainHash != None {
				m.Heads = append(m.Heads, g.Syms.String(d.ChainHash))
			}
			m.LastDecisionAsk = string(g.Syms.Bytes(d.Decision)) == "ask"
			continue
		}
		i := r.Step()
		s := &g.Steps[i]
		switch o.Standing[i] {
		case Rejected:
			continue
		case Handshake:
			m.Deterministic = m.Deterministic || string(g.Syms.Bytes(g.More(s).Producer)) == "deterministic"
		case Counted:
			m.SessionStart = m.SessionStart || s.Hook == acs.HookSessionStart
			m.AgentTrigger = m.AgentTrigger || s.Hook == acs.HookAgentTrigger
		}
		if s.AgentID != None && len(m.Agents) < maxAgents && !m.HasAgent(g.Syms.Bytes(s.AgentID)) {
			m.Agents = append(m.Agents, g.Syms.String(s.AgentID))
		}
	}
	if n := len(m.Heads) - maxHeads; n > 0 {
		m.Heads = append([]string(nil), m.Heads[n:]...)
	}
}

// HasAgent reports whether an agent id was seen in a sealed segment.
func (m *Memory) HasAgent(id []byte) bool {
	if m == nil {
		return false
	}
	for _, a := range m.Agents {
		if a == string(id) {
			return true
		}
	}
	return false
}
