package segment

import "provstream/internal/acs"

// recall keeps, by Sym of an open segment, what was looked up in the run's
// memory: a look-up costs a SHA-256, several rules ask for the same id, and the
// memory does not change while a segment is open. Nothing is kept in a run's
// first segment, which has no memory to ask.
type recall struct {
	steps []int32 // 1 + index into Memory.steps, unknown, or 0: not looked up
	ids   []int32 // the same for provenance ids
}

const unknown int32 = -1

// Recall returns what the sealed segments know of the steps with a step_id,
// nil when they know nothing.
func (g *Segment) Recall(m *Memory, id Sym) *StepInfo {
	if m == nil {
		return nil
	}
	if int(id) >= len(g.recall.steps) {
		g.recall.steps = extend(g.recall.steps, g.Syms.Len())
	}
	at := &g.recall.steps[id]
	if *at == 0 {
		*at = m.findStep(g.Syms.Bytes(id))
	}
	if *at == unknown {
		return nil
	}
	return &m.steps[*at-1]
}

// Accepted reports whether an accepted step of a sealed segment has the id.
func (g *Segment) Accepted(m *Memory, id Sym) bool {
	s := g.Recall(m, id)
	return s != nil && s.Accepted
}

// RecallID returns the number of a provenance id that sealed segments carry.
func (g *Segment) RecallID(m *Memory, id Sym) (number uint32, ok bool) {
	if m == nil {
		return 0, false
	}
	if int(id) >= len(g.recall.ids) {
		g.recall.ids = extend(g.recall.ids, g.Syms.Len())
	}
	at := &g.recall.ids[id]
	if *at == 0 {
		*at = unknown
		if n, ok := m.table.get(IDHash(g.Syms.Bytes(id))); ok {
			*at = int32(n) + 1
		}
	}
	return uint32(*at - 1), *at != unknown
}

// SawCopy reports whether an equal record stands in a sealed segment. Most
// records are no copies, and their step_id alone tells. g is the open segment,
// nil without: a copy must leave no trace in it.
func (m *Memory) SawCopy(g *Segment, s *acs.Step) bool {
	if m == nil {
		return false
	}
	if s.StepID != "" && !m.knows(g, s.StepID) {
		return false
	}
	_, ok := m.table.get(copyKey(s))
	return ok
}

// knows reports whether a sealed segment has a record of this step_id.
func (m *Memory) knows(g *Segment, id string) bool {
	if g != nil {
		if sym := g.Syms.Lookup(id); sym != None {
			return g.Recall(m, sym) != nil
		}
	}
	m.lastID = append(m.lastID[:0], id...)
	m.last = 0
	return m.findStep(m.lastID) != unknown
}

// findStep looks a step_id up: 1 + its index, or unknown. The last one asked
// for by its text, which is the record at hand, is asked for again by its Sym.
func (m *Memory) findStep(id []byte) int32 {
	last := len(id) > 0 && string(id) == string(m.lastID)
	if last && m.last != 0 {
		return m.last
	}
	at := unknown
	if i, ok := m.table.get(hash16(kindStepID, id)); ok {
		at = int32(i) + 1
	}
	if last {
		m.last = at
	}
	return at
}

// Recall and RecallID ask for the ordered segment.
func (o *Order) Recall(id Sym) *StepInfo { return o.Seg.Recall(o.Mem, id) }

// RecallID returns the number of a provenance id that sealed segments carry.
func (o *Order) RecallID(id Sym) (number uint32, ok bool) { return o.Seg.RecallID(o.Mem, id) }
