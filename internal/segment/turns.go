package segment

import "provstream/internal/acs"

// Turns are the turns of a segment by the Sym of their turn_id: which step is
// the turnStart, which the turnEnd, and which turn encloses it. Only counted
// steps make turns.
type Turns struct {
	start  Table[Sym, int32] // 1 + the step, so that 0 is Nowhere
	end    Table[Sym, int32]
	parent Table[Sym, Sym]
	listed Table[Sym, int32] // 1 + index in list
	list   []Sym             // the turns that have a counted step, each once
	from   int               // those of the pass begin here
}

// Start is the turn's turnStart: its first one in run order. Earlier when it
// stands in an earlier segment, Nowhere when there is none.
func (t *Turns) Start(turn Sym) int32 { return t.start.At(turn) - 1 }

// End is the last turnEnd of the segment, Nowhere when there is none here.
func (t *Turns) End(turn Sym) int32 { return t.end.At(turn) - 1 }

// Parent is the turn_id of the enclosing turn: that of the turnStart's payload,
// else the metadata of the first step that has one.
func (t *Turns) Parent(turn Sym) Sym { return t.parent.At(turn) }

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
	t.start.Reset(n)
	t.end.Reset(n)
	t.parent.Reset(n)
	t.listed.Reset(n)
	t.list, t.from = t.list[:0], 0
}

func (t *Turns) grow(n int) {
	t.start.Grow(n)
	t.end.Grow(n)
	t.parent.Grow(n)
	t.listed.Grow(n)
}

func (t *Turns) keep() {
	t.start.Keep()
	t.end.Keep()
	t.parent.Keep()
	t.listed.Keep()
	t.from = len(t.list)
}

func (t *Turns) rewind() {
	t.start.Rewind()
	t.end.Rewind()
	t.parent.Rewind()
	t.listed.Rewind()
	t.list = t.list[:t.from]
}

// findTurns fills in o.Turns. It may intern the turn_id of a parent that only
// earlier segments name.
func (o *Order) findTurns() {
	g, t := o.Seg, &o.Turns
	for _, r := range o.Refs[o.From:] {
		if !r.IsStep() || o.Standing[r.Step()] != Counted {
			continue
		}
		i := r.Step()
		s := &g.Steps[i]
		turn := s.Turn
		if turn == None {
			continue
		}
		if t.listed.At(turn) == 0 {
			t.list = append(t.list, turn)
			t.listed.Set(turn, int32(len(t.list)))
		}
		switch s.Hook {
		case acs.HookTurnStart:
			if t.start.At(turn) == 0 {
				o.startsLate(turn)
				t.start.Set(turn, i+1)
			} else {
				o.endsBefore(turn) // a second turnStart is a member
				o.Unruly = o.Unruly || g.Boundary(s).PayloadParent != None
			}
		case acs.HookTurnEnd:
			o.endsBefore(turn)
			t.end.Set(turn, i+1)
		default:
			o.endsBefore(turn)
		}
		o.claim(turn, g.More(s).ParentTurn)
	}
	o.nameParents()
	o.growTables()
}

// endsBefore crosses where a turn that ended in the base goes on.
func (o *Order) endsBefore(turn Sym) {
	if end := o.Turns.End(turn); end >= 0 && o.InBase(StepRef(end)) {
		o.Cross(CrossedTurn)
	}
}

// startsLate crosses where steps of a turn, or of one nested in it, stand in the
// base and its turnStart does not.
func (o *Order) startsLate(turn Sym) {
	o.Found(turn)
	if o.listedBefore(turn) {
		o.Cross(CrossedTurn)
	}
}

func (o *Order) listedBefore(turn Sym) bool {
	k := int(o.Turns.listed.At(turn))
	return k > 0 && k <= o.Turns.from
}

// claim notes which turn a record's metadata name as the enclosing one. The
// first claim is the parent, until nameParents prefers the turnStart's payload.
func (o *Order) claim(turn, parent Sym) {
	t := &o.Turns
	switch p := t.parent.At(turn); {
	case parent == None:
	case p == None:
		if o.listedBefore(turn) {
			o.Cross(CrossedTurn)
		}
		t.parent.Set(turn, parent)
	case p != parent:
		o.Unruly = true
	}
}

// nameParents settles which turn encloses each turn that is new in the pass.
func (o *Order) nameParents() {
	t := &o.Turns
	for _, turn := range t.list[t.from:] {
		if o.Mem != nil {
			o.recallTurn(turn)
		} else if start := t.Start(turn); start >= 0 {
			o.setParent(turn, o.Seg.Boundary(&o.Seg.Steps[start]).PayloadParent)
		}
	}
}

func (o *Order) setParent(turn, parent Sym) {
	if parent == None {
		return
	}
	if p := o.Turns.parent.At(turn); p != None && p != parent {
		o.Unruly = true
	}
	o.Turns.parent.Set(turn, parent)
}

// recallTurn adds what earlier segments know of a turn: its turnStart is the
// first of the run, and their steps come first.
func (o *Order) recallTurn(turn Sym) {
	g, t := o.Seg, &o.Turns
	m := o.Mem.Turn(g.Syms.Bytes(turn))
	payload := None
	if start := t.Start(turn); start >= 0 {
		payload = g.Boundary(&g.Steps[start]).PayloadParent
	}
	if m.Started { // the segment's own is a further one
		o.Unruly = o.Unruly || payload != None
		payload = g.Syms.optional(m.PayloadParent)
		t.start.Set(turn, Earlier+1)
	}
	o.setParent(turn, g.Syms.optional(m.FirstParent))
	o.setParent(turn, payload)
}

// TurnStart returns the turnStart of a turn: a step, Earlier or Nowhere.
func (o *Order) TurnStart(turn Sym) int32 {
	if s := o.Turns.Start(turn); s != Nowhere {
		return s
	}
	if o.Mem.Turn(o.Seg.Syms.Bytes(turn)).Started {
		return Earlier
	}
	o.Miss(turn)
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
