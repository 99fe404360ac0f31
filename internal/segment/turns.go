package segment

import "provstream/internal/acs"

// Turns are the turns of a segment by the Sym of their turn_id: which step is
// the turnStart, which the turnEnd, and which turn encloses it. Only counted
// steps make turns.
type Turns struct {
	// Start is the turn's turnStart: its first one in run order. Earlier when
	// it stands in an earlier segment, Nowhere when there is none.
	Start []int32
	// End is the last turnEnd of the segment, Nowhere when there is none here.
	End []int32
	// Parent is the turn_id of the enclosing turn: that of the turnStart's
	// payload, else the metadata of the first step that has one.
	Parent []Sym
	// List holds the turns that have a counted step, each once.
	List []Sym

	listed []bool
}

// TurnMemory is what rules need of a turn's part in sealed segments.
type TurnMemory struct {
	Started       bool
	PayloadParent string // of its turnStart
	FirstParent   string // of its first step whose metadata have one
}

// Parent is the turn_id of the enclosing turn as the sealed segments know it.
func (t TurnMemory) Parent() string {
	if t.PayloadParent != "" {
		return t.PayloadParent
	}
	return t.FirstParent
}

// Turn returns what is remembered of a turn.
func (m *Memory) Turn(id []byte) TurnMemory {
	if m == nil {
		return TurnMemory{}
	}
	return m.turns[string(id)]
}

func (t *Turns) reset(n int) {
	t.Start, t.End, t.Parent = Resize(t.Start, n), Resize(t.End, n), Resize(t.Parent, n)
	t.List, t.listed = t.List[:0], Resize(t.listed, n)
	for i := range t.Start {
		t.Start[i], t.End[i] = Nowhere, Nowhere
	}
}

// findTurns fills in o.Turns. It may intern the turn_id of a parent that only
// earlier segments name.
func (o *Order) findTurns() {
	g := o.Seg
	o.Turns.reset(g.Syms.Len())
	t := &o.Turns
	for _, r := range o.Refs {
		if !r.IsStep() || o.Standing[r.Step()] != Counted {
			continue
		}
		i := r.Step()
		s := &g.Steps[i]
		turn := s.Turn
		if turn == None {
			continue
		}
		if !t.listed[turn] {
			t.listed[turn] = true
			t.List = append(t.List, turn)
		}
		switch s.Hook {
		case acs.HookTurnStart:
			if t.Start[turn] == Nowhere {
				t.Start[turn] = i
			}
		case acs.HookTurnEnd:
			t.End[turn] = i
		}
		if t.Parent[turn] == None {
			t.Parent[turn] = g.More(s).ParentTurn
		}
	}
	for _, turn := range t.List {
		if o.Mem != nil {
			o.recallTurn(turn)
		} else if start := t.Start[turn]; start >= 0 {
			if p := g.Boundary(&g.Steps[start]).PayloadParent; p != None {
				t.Parent[turn] = p
			}
		}
	}
	o.winner = extend(o.winner, g.Syms.Len())
	o.rejected = extend(o.rejected, g.Syms.Len())
	for len(t.Start) < g.Syms.Len() {
		t.Start, t.End, t.Parent = append(t.Start, Nowhere), append(t.End, Nowhere), append(t.Parent, None)
	}
}

// recallTurn adds what earlier segments know of a turn: its turnStart is the
// first of the run, and their steps come first.
func (o *Order) recallTurn(turn Sym) {
	g, t := o.Seg, &o.Turns
	m := o.Mem.Turn(g.Syms.Bytes(turn))
	payload := None
	if start := t.Start[turn]; m.Started {
		payload = g.Syms.optional(m.PayloadParent)
	} else if start >= 0 {
		payload = g.Boundary(&g.Steps[start]).PayloadParent
	}
	if m.Started {
		t.Start[turn] = Earlier
	}
	switch first := g.Syms.optional(m.FirstParent); {
	case payload != None:
		t.Parent[turn] = payload
	case first != None:
		t.Parent[turn] = first
	}
}

// TurnStart returns the turnStart of a turn: a step, Earlier or Nowhere.
func (o *Order) TurnStart(turn Sym) int32 {
	if s := o.Turns.Start[turn]; s != Nowhere || o.Mem == nil {
		return s
	}
	if o.Mem.Turn(o.Seg.Syms.Bytes(turn)).Started {
		return Earlier
	}
	return Nowhere
}

// rememberTurns keeps what later segments need of the segment's turns.
func (m *Memory) rememberTurns(o *Order) {
	g := o.Seg
	for _, r := range o.Refs {
		if !r.IsStep() || o.Standing[r.Step()] != Counted {
			continue
		}
		i := r.Step()
		s := &g.Steps[i]
		parent := g.More(s).ParentTurn
		if s.Turn == None || (parent == None && s.Hook != acs.HookTurnStart) {
			continue
		}
		id := g.Syms.String(s.Turn)
		t := m.turns[id]
		if t.FirstParent == "" && parent != None {
			t.FirstParent = g.Syms.String(parent)
		}
		if s.Hook == acs.HookTurnStart && !t.Started {
			t.Started = true
			t.PayloadParent = g.Syms.String(g.Boundary(s).PayloadParent)
		}
		if m.turns == nil {
			m.turns = make(map[string]TurnMemory)
		}
		m.turns[id] = t
	}
}
