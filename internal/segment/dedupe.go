package segment

import (
	"encoding/binary"

	"provstream/internal/acs"
)

// Find returns the record that a record is a copy of, NoRef when there is none.
func (g *Segment) Find(s *acs.Step) Ref {
	if s.Type == acs.TypeDecision {
		key := g.Syms.Lookup(s.StepID)
		if s.StepID == "" {
			key = g.jsonID(s.ID, "", None)
		}
		if _, at := g.findDecision(key, s.StepID != "", &s.RequestHash); at >= 0 {
			return DecisionRef(int32(at))
		}
		return NoRef
	}
	if _, at := g.findStep(g.Syms.Lookup(s.StepID), g.Syms.Lookup(s.Method), &s.RequestHash); at >= 0 {
		return StepRef(int32(at))
	}
	return NoRef
}

func (g *Segment) findStep(id, method Sym, hash *acs.Hash) (slot, at int) {
	g.growDedupe()
	mask := uint64(len(g.dedupe) - 1)
	for i := mix(id, hash) & mask; ; i = (i + 1) & mask {
		switch v := g.dedupe[i]; {
		case v == 0:
			return int(i), -1
		case v > 0:
			if st := &g.Steps[v-1]; st.StepID == id && st.Method == method && st.RequestHash == *hash {
				return int(i), int(v - 1)
			}
		}
	}
}

func (g *Segment) findDecision(id Sym, named bool, hash *acs.Hash) (slot, at int) {
	g.growDedupe()
	mask := uint64(len(g.dedupe) - 1)
	for i := mix(id, hash) & mask; ; i = (i + 1) & mask {
		switch v := g.dedupe[i]; {
		case v == 0:
			return int(i), -1
		case v < 0:
			if d := &g.Decisions[-v-1]; d.dedupeKey() == id && (d.requestID != None) == named && d.Hash == *hash {
				return int(i), int(-v - 1)
			}
		}
	}
}

func (d *Decision) dedupeKey() Sym {
	if d.requestID != None {
		return d.requestID
	}
	return d.jsonID
}

func (g *Segment) growDedupe() {
	if (g.Len()+1)*4 <= len(g.dedupe)*3 {
		return
	}
	store := g.Syms.store.orNone()
	size := max(16, 2*len(g.dedupe))
	store.numbers.give(store, g.dedupe)
	g.dedupe = store.numbers.table(store, size)
	mask := uint64(len(g.dedupe) - 1)
	put := func(h uint64, v int32) {
		i := h & mask
		for g.dedupe[i] != 0 {
			i = (i + 1) & mask
		}
		g.dedupe[i] = v
	}
	for i := range g.Steps {
		put(mix(g.Steps[i].StepID, &g.Steps[i].RequestHash), int32(i)+1)
	}
	for i := range g.Decisions {
		put(mix(g.Decisions[i].dedupeKey(), &g.Decisions[i].Hash), -int32(i)-1)
	}
}

// mix spreads an id and a hash over 64 bits. SHA-256 makes the hash
// unpredictable; the id keeps equal error objects of many ids apart.
func mix(id Sym, hash *acs.Hash) uint64 {
	x := binary.LittleEndian.Uint64(hash[:]) ^ uint64(id)*0x9e3779b97f4a7c15
	x ^= x >> 29
	return x * 0xbf58476d1ce4e5b9 >> 7
}
