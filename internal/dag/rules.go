package dag

import (
	"slices"

	"provstream/internal/acs"
	"provstream/internal/segment"
)

// builder is what stood last before the step at hand, in run order.
type builder struct {
	passing
	tracksCalls   bool                             // calls is kept: some result names no call
	mcpRequest    segment.Dict[mcpKey, int32]      // rule 2
	calls         segment.Dict[callKey, []int32]   // rule 2: calls without a result, oldest first
	preCompact    segment.Dict[string, int32]      // rule 4: by the set it lists
	subagent      segment.Dict[segment.Sym, int32] // rule 5: last start so far
	firstSubagent segment.Dict[segment.Sym, int32]
	skill         segment.Dict[skillKey, int32] // rule 7: last registration so far
	firstSkill    segment.Dict[skillKey, int32]
	set           []segment.Sym
}

// passing are the steps that were last of their kind.
type passing struct {
	sessionStart, firstSessionStart int32
	agentTrigger                    int32
	lastFlow                        int32 // rule 8: the nearest counted step of a flowing kind
}

func (b *builder) reset(tracksCalls bool) {
	b.passing = passing{sessionStart: none, firstSessionStart: none, agentTrigger: none, lastFlow: none}
	b.tracksCalls = tracksCalls
	b.mcpRequest.Reset()
	b.calls.Reset()
	b.preCompact.Reset()
	b.subagent.Reset()
	b.firstSubagent.Reset()
	b.skill.Reset()
	b.firstSkill.Reset()
}

func (b *builder) keep() {
	b.mcpRequest.Keep()
	b.calls.Keep()
	b.preCompact.Keep()
	b.subagent.Keep()
	b.firstSubagent.Keep()
	b.skill.Keep()
	b.firstSkill.Keep()
}

func (b *builder) rewind() {
	b.mcpRequest.Rewind()
	b.calls.Rewind()
	b.preCompact.Rewind()
	b.subagent.Rewind()
	b.firstSubagent.Rewind()
	b.skill.Rewind()
	b.firstSkill.Rewind()
}

type (
	mcpKey   struct{ method, id segment.Sym }
	callKey  struct{ turn, tool segment.Sym }
	skillKey struct{ id, digest segment.Sym }
)

const none int32 = -1

// link adds the edges of rules 1 to 8.
func (g *Graph) link() {
	g.findFirsts()
	g.pairCalls()
	o := g.Order
	for _, r := range o.Refs[o.From:] {
		if !r.IsStep() {
			g.rule1Lineage(r)
			g.rule6Step(r.Decision())
			g.rule6Decision(r.Decision())
			continue
		}
		i := r.Step()
		s := &o.Seg.Steps[i]
		if s.IsHandshake() {
			continue
		}
		if o.Standing[i] != segment.Counted {
			g.rule3Turn(i, s)
			continue
		}
		g.passed(i, s)
		g.rule1Lineage(r)
		g.rule3Turn(i, s)
		g.rule4Compaction(i, s)
		g.rule5Subagent(i, s)
		g.rule7Skill(i, s)
		g.rule8Undeclared(i, s)
	}
}

// findFirsts notes, for references to what stands later, the first of each.
func (g *Graph) findFirsts() {
	b, o := &g.b, g.Order
	for _, r := range o.Refs[o.From:] {
		if !r.IsStep() || o.Standing[r.Step()] != segment.Counted {
			continue
		}
		i := r.Step()
		s := &o.Seg.Steps[i]
		switch s.Hook {
		case acs.HookSessionStart:
			if b.firstSessionStart == none {
				o.Cross(segment.CrossedSession)
				b.firstSessionStart = i
			}
		case acs.HookSubagentStart:
			m := o.Seg.More(s)
			o.Found(m.Subagent)
			b.firstSubagent.PutFirst(m.Subagent, i)
		case acs.HookSkillRegister:
			m := o.Seg.More(s)
			o.Found(m.Skill)
			b.firstSkill.PutFirst(skillKey{m.Skill, m.Digest}, i)
		}
	}
}

// passed notes a counted step as the last of its kind, before its own edges:
// a sessionStart stands at itself.
func (g *Graph) passed(i int32, s *segment.Step) {
	switch s.Hook {
	case acs.HookSessionStart:
		g.b.sessionStart = i
	case acs.HookAgentTrigger:
		g.b.agentTrigger = i
	}
}

// add adds an edge between two nodes; self edges are dropped.
func (g *Graph) add(from, to int32, kind EdgeKind) {
	if from >= 0 && to >= 0 && from != to {
		g.edges = append(g.edges, makeEdge(from, to, kind))
	}
}

// causeOf returns the node of a resolved step: its own, the segment node for a
// step of an earlier DAG, noNode otherwise.
func (g *Graph) causeOf(id segment.Sym) int32 {
	switch s := g.Order.Resolve(id); s {
	case segment.Nowhere:
		return noNode
	case segment.Earlier:
		if m := g.Order.Recall(id); m != nil && m.InDAG {
			return g.segmentNode
		}
		return noNode
	default:
		return g.node(segment.StepRef(s))
	}
}

// mintNode returns the node of an id's mint and the kind of an edge to it:
// lineage(x) of rules.md §7.
func (g *Graph) mintNode(id segment.Sym) (node int32, kind EdgeKind) {
	m, ok := g.Index.Mint(id)
	switch {
	case !ok:
		return noNode, InfluencedBy
	case m.Remembered && m.Retrieval:
		return g.segmentNode, RetrievedFrom
	case m.Remembered:
		return g.segmentNode, InfluencedBy
	}
	node = g.node(m.Record)
	switch g.kind(node) {
	case Retrieval, MemoryRead:
		return node, RetrievedFrom
	}
	return node, InfluencedBy
}

// Rule 1: for each object of id p on step s, s → the mint of each parent when
// s mints p; else s → mint(p), and s → mint(q) for each parent q that s states
// and the mint does not. subagentStop's derived_from names ids of the child
// session and gives no edges.
func (g *Graph) rule1Lineage(r segment.Ref) {
	seg := g.Order.Seg
	var provs []segment.Prov
	ownParents := true
	if r.IsStep() {
		s := &seg.Steps[r.Step()]
		provs, ownParents = seg.Provs(s), s.Hook != acs.HookSubagentStop
	} else {
		provs = seg.DecisionProvs(&seg.Decisions[r.Decision()])
	}
	if len(provs) == 0 {
		return
	}
	from := g.node(r)
	for i := range provs {
		p := &provs[i]
		mint, _ := g.Index.Mint(p.ID)
		minted := g.Index.MintedBy(p.ID, r)
		if !minted {
			to, kind := g.mintNode(p.ID)
			g.add(from, to, kind)
		}
		if !ownParents || mint.Remembered {
			continue
		}
		for _, q := range seg.Parents(p) {
			if minted || !g.Index.States(mint.Object, q) {
				to, kind := g.mintNode(q)
				g.add(from, to, kind)
			}
		}
	}
}

// Rule 3: a step hangs on the turnStart of its turn, a turnStart on that of
// the enclosing turn, else on the last agentTrigger before it, and what has no
// turn on the sessionStart. Losers and rejected steps have this rule alone.
func (g *Graph) rule3Turn(i int32, s *segment.Step) {
	o := g.Order
	from := g.node(segment.StepRef(i))
	start := segment.Nowhere
	if s.Turn != segment.None {
		start = o.TurnStart(s.Turn)
	}
	switch {
	case start == i:
		g.add(from, g.enclosing(s.Turn), CausedBy)
	case start == segment.Nowhere:
		g.add(from, g.sessionStartNode(), CausedBy)
	default:
		kind := CausedBy
		if g.kind(from) == ToolCall {
			kind = Invoked
		}
		g.add(from, g.turnStartNode(start), kind)
	}
}

func (g *Graph) turnStartNode(start int32) int32 {
	if start == segment.Earlier {
		return g.segmentNode
	}
	return g.node(segment.StepRef(start))
}

// enclosing is the cause of a turn's own turnStart.
func (g *Graph) enclosing(turn segment.Sym) int32 {
	o := g.Order
	if parent := o.Turns.Parent(turn); parent != segment.None && parent != turn {
		if start := o.TurnStart(parent); start != segment.Nowhere {
			return g.turnStartNode(start)
		}
	}
	if g.b.agentTrigger != none {
		return g.node(segment.StepRef(g.b.agentTrigger))
	}
	if o.Mem != nil && o.Mem.AgentTrigger {
		return g.segmentNode
	}
	return g.sessionStartNode()
}

// sessionStartNode is the last sessionStart at or before the step, else the
// first one.
func (g *Graph) sessionStartNode() int32 {
	switch {
	case g.b.sessionStart != none:
		return g.node(segment.StepRef(g.b.sessionStart))
	case g.Order.Mem != nil && g.Order.Mem.SessionStart:
		return g.segmentNode
	case g.b.firstSessionStart != none:
		return g.node(segment.StepRef(g.b.firstSessionStart))
	}
	return noNode
}

// Rule 4: preCompact → each listed step, postCompact → each compacted step,
// and postCompact → the last preCompact before it that lists the same set.
func (g *Graph) rule4Compaction(i int32, s *segment.Step) {
	if s.Hook != acs.HookPreCompact && s.Hook != acs.HookPostCompact {
		return
	}
	seg := g.Order.Seg
	from := g.node(segment.StepRef(i))
	entries := seg.Entries(seg.Compaction(s))
	for _, id := range entries {
		g.add(from, g.causeOf(id), InfluencedBy)
	}
	key := g.setKey(entries)
	if s.Hook == acs.HookPreCompact {
		g.b.preCompact.Put(key, i)
	} else if pre, ok := g.b.preCompact.Get(key); ok {
		g.add(from, g.node(segment.StepRef(pre)), CausedBy)
	}
}

// setKey is equal for lists that are equal as sets.
func (g *Graph) setKey(list []segment.Sym) string {
	set := append(g.b.set[:0], list...)
	slices.Sort(set)
	set = slices.Compact(set)
	g.b.set = set
	key := make([]byte, 0, 4*len(set))
	for _, s := range set {
		key = append(key, byte(s), byte(s>>8), byte(s>>16), byte(s>>24))
	}
	return string(key)
}

// Rule 5: subagentStart → parent_step_id; subagentStop → the last
// subagentStart of that session before it, else the first.
func (g *Graph) rule5Subagent(i int32, s *segment.Step) {
	o, b := g.Order, &g.b
	from := g.node(segment.StepRef(i))
	switch s.Hook {
	case acs.HookSubagentStart:
		m := o.Seg.More(s)
		if m.ParentStep != segment.None {
			g.add(from, g.causeOf(m.ParentStep), CausedBy)
		}
		b.subagent.Put(m.Subagent, i)
	case acs.HookSubagentStop:
		session := o.Seg.More(s).Subagent
		if start, ok := b.subagent.Get(session); ok {
			g.add(from, g.node(segment.StepRef(start)), CausedBy)
		} else if o.Mem.HasSubagent(o.Seg.Syms.Bytes(session)) {
			g.add(from, g.segmentNode, CausedBy)
		} else if start, ok := b.firstSubagent.Get(session); ok {
			g.add(from, g.node(segment.StepRef(start)), CausedBy)
		} else {
			o.Miss(session)
		}
	}
}

// Rule 6, first half: step → each of its decisions.
func (g *Graph) rule6Step(d int32) {
	o := g.Order
	if step := o.StepOf[d]; step >= 0 && o.Standing[step] == segment.Counted {
		g.add(g.node(segment.StepRef(step)), g.node(segment.DecisionRef(d)), CheckedAgainst)
	}
}

// Rule 6, second half: decision → the mint of each cited id other than its
// step, and → the segment node when its step is in an earlier segment.
func (g *Graph) rule6Decision(d int32) {
	o := g.Order
	from := g.node(segment.DecisionRef(d))
	step := o.StepOf[d]
	for _, id := range o.Seg.Cited(&o.Seg.Decisions[d]) {
		m, ok := g.Index.Mint(id)
		if ok && !m.Remembered && m.Record.IsStep() && m.Record.Step() == step {
			continue
		}
		to, _ := g.mintNode(id)
		g.add(from, to, InfluencedBy)
	}
	if step == segment.Earlier || step == segment.EarlierRejected {
		if m := o.Recall(o.RequestID[d]); m != nil && m.InDAG {
			g.add(from, g.segmentNode, CausedBy)
		}
	}
}

// Rule 7: skillLoad → the last skillRegister before it, else the first, with
// the same id and digest; skillLoad.parent_step_id and
// agbom/changed.trigger_step_id.
func (g *Graph) rule7Skill(i int32, s *segment.Step) {
	o, b := g.Order, &g.b
	from := g.node(segment.StepRef(i))
	m := o.Seg.More(s)
	key := skillKey{m.Skill, m.Digest}
	switch s.Hook {
	case acs.HookSkillRegister:
		b.skill.Put(key, i)
	case acs.HookSkillLoad:
		if reg, ok := b.skill.Get(key); ok {
			g.add(from, g.node(segment.StepRef(reg)), CausedBy)
		} else if o.Mem.HasSkill(o.Seg.Syms.Bytes(m.Skill), o.Seg.Syms.Bytes(m.Digest)) {
			g.add(from, g.segmentNode, CausedBy)
		} else if reg, ok := b.firstSkill.Get(key); ok {
			g.add(from, g.node(segment.StepRef(reg)), CausedBy)
		} else {
			o.Miss(m.Skill)
		}
		if m.ParentStep != segment.None {
			g.add(from, g.causeOf(m.ParentStep), CausedBy)
		}
	case acs.HookAgBOMChanged:
		if m.TriggerStep != segment.None {
			g.add(from, g.causeOf(m.TriggerStep), CausedBy)
		}
	}
}

// Rule 8: a step through which data flows and that carries no provenance id →
// the nearest earlier counted step of these kinds, so that every output
// reaches what the model may have seen, declared or not.
func (g *Graph) rule8Undeclared(i int32, s *segment.Step) {
	from := g.node(segment.StepRef(i))
	if !g.kind(from).flows() {
		return
	}
	if len(g.Order.Seg.Provs(s)) == 0 && g.b.lastFlow != none {
		g.add(from, g.node(segment.StepRef(g.b.lastFlow)), InfluencedBy)
		g.inferredLineage[i] = true
	}
	g.b.lastFlow = i
}
