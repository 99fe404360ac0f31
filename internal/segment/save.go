package segment

import (
	"maps"
	"slices"

	"provstream/internal/acs"
	"provstream/internal/state"
)

// Save writes the memory as a snapshot does.
func (m *Memory) Save(w *state.Writer) {
	w.Int(int64(m.Segments))
	w.String(m.DAGID)
	w.Fixed(m.DAGHash[:])
	w.Int(m.DAGRecordedAt)
	w.Int(int64(m.Nodes))
	w.Bool(m.SessionStart)
	w.Bool(m.AgentTrigger)
	w.Bool(m.Deterministic)
	w.Bool(m.LastDecisionAsk)
	w.Bool(m.Limited)
	w.Int(int64(m.MaxIDs))
	w.Int(int64(m.used))
	w.Uint(uint64(m.seq))
	saveList(w, m.Agents, (*state.Writer).String)
	saveList(w, m.Heads, (*state.Writer).String)
	w.Uint(uint64(len(m.table.keys)))
	for i := range m.table.keys {
		w.Fixed(m.table.keys[i][:])
		w.Uint(uint64(m.table.vals[i]))
	}
	w.Uint(uint64(len(m.steps)))
	for i := range m.steps {
		m.steps[i].save(w)
	}
	saveList(w, m.ids, func(w *state.Writer, id IDInfo) { w.Uint(uint64(id.Depth)<<1 | flag(id.Retrieval)) })
	saveList(w, m.carried, func(w *state.Writer, n uint32) { w.Uint(uint64(n)) })
	saveList(w, m.counts, func(w *state.Writer, n uint32) { w.Uint(uint64(n)) })
	w.Uint(uint64(len(m.turns)))
	for _, id := range slices.Sorted(maps.Keys(m.turns)) {
		t := m.turns[id]
		w.String(id)
		w.Bool(t.Started)
		w.String(t.PayloadParent)
		w.String(t.FirstParent)
	}
	saveSet(w, m.skills)
	saveSet(w, m.subagents)
	saveSet(w, m.untoldCalls)
	w.Uint(uint64(len(m.mcp)))
	for _, h := range sortedHashes(m.mcp) {
		w.Fixed(h[:])
		saveList(w, m.mcp[h], saveHash)
	}
	w.Uint(uint64(len(m.untoldSubagents)))
	for _, h := range sortedHashes(m.untoldSubagents) {
		w.Fixed(h[:])
		w.Uint(uint64(m.untoldSubagents[h]))
	}
}

// LoadMemory reads what Save wrote.
func LoadMemory(r *state.Reader) *Memory {
	m := &Memory{Segments: int(r.Int()), DAGID: r.String()}
	copy(m.DAGHash[:], r.Fixed(len(m.DAGHash)))
	m.DAGRecordedAt, m.Nodes = r.Int(), int(r.Int())
	m.SessionStart, m.AgentTrigger, m.Deterministic = r.Bool(), r.Bool(), r.Bool()
	m.LastDecisionAsk, m.Limited = r.Bool(), r.Bool()
	m.MaxIDs, m.used, m.seq = int(r.Int()), int(r.Int()), uint32(r.Uint())
	m.Agents = loadList(r, 1, (*state.Reader).String)
	m.Heads = loadList(r, 1, (*state.Reader).String)
	for range r.Len(17) {
		h := loadHash(r)
		m.table.put(h, uint32(r.Uint()))
	}
	m.steps = loadList(r, 8, loadStepInfo)
	m.ids = loadList(r, 1, func(r *state.Reader) IDInfo {
		v := r.Uint()
		return IDInfo{Depth: int32(v >> 1), Retrieval: v&1 == 1}
	})
	m.carried = loadList(r, 1, func(r *state.Reader) uint32 { return uint32(r.Uint()) })
	m.counts = loadList(r, 1, func(r *state.Reader) uint32 { return uint32(r.Uint()) })
	for range r.Len(4) {
		if m.turns == nil {
			m.turns = make(map[string]TurnMemory)
		}
		id := r.String()
		m.turns[id] = TurnMemory{Started: r.Bool(), PayloadParent: r.String(), FirstParent: r.String()}
	}
	m.skills, m.subagents, m.untoldCalls = loadSet(r), loadSet(r), loadSet(r)
	for range r.Len(17) {
		h := loadHash(r)
		put(&m.mcp, h, loadList(r, 16, loadHash))
	}
	for range r.Len(17) {
		h := loadHash(r)
		put(&m.untoldSubagents, h, int(r.Uint()))
	}
	return m
}

func (s *StepInfo) save(w *state.Writer) {
	w.Uint(flag(s.Accepted) | flag(s.Rejected)<<1 | flag(s.InDAG)<<2 | flag(s.Counted)<<3)
	w.Uint(uint64(s.Hook))
	w.Int(int64(s.Turn))
	w.Uint(uint64(s.Decisions))
	w.Uint(uint64(s.Seq))
	for _, v := range [...]uint32{s.ids.start, s.ids.n, s.counts.start, s.counts.n} {
		w.Uint(uint64(v))
	}
}

func loadStepInfo(r *state.Reader) (s StepInfo) {
	f := r.Uint()
	s.Accepted, s.Rejected, s.InDAG, s.Counted = f&1 != 0, f&2 != 0, f&4 != 0, f&8 != 0
	s.Hook, s.Turn = acs.Hook(r.Uint()), int32(r.Int())
	s.Decisions, s.Seq = uint32(r.Uint()), uint32(r.Uint())
	for _, v := range [...]*uint32{&s.ids.start, &s.ids.n, &s.counts.start, &s.counts.n} {
		*v = uint32(r.Uint())
	}
	return s
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func saveHash(w *state.Writer, h Hash16) { w.Fixed(h[:]) }

func loadHash(r *state.Reader) (h Hash16) {
	copy(h[:], r.Fixed(len(h)))
	return h
}

func saveList[T any](w *state.Writer, list []T, save func(*state.Writer, T)) {
	w.Uint(uint64(len(list)))
	for _, v := range list {
		save(w, v)
	}
}

func loadList[T any](r *state.Reader, size int, load func(*state.Reader) T) (list []T) {
	n := r.Len(size)
	if n == 0 {
		return nil
	}
	list = make([]T, 0, n)
	for range n {
		list = append(list, load(r))
	}
	return list
}

func saveSet(w *state.Writer, set map[Hash16]struct{}) {
	w.Uint(uint64(len(set)))
	for _, h := range sortedHashes(set) {
		w.Fixed(h[:])
	}
}

func loadSet(r *state.Reader) (set map[Hash16]struct{}) {
	for range r.Len(16) {
		put(&set, loadHash(r), struct{}{})
	}
	return set
}

// sortedHashes makes a snapshot a function of the state.
func sortedHashes[V any](m map[Hash16]V) []Hash16 {
	keys := slices.Collect(maps.Keys(m))
	slices.SortFunc(keys, func(a, b Hash16) int { return slices.Compare(a[:], b[:]) })
	return keys
}

// SaveTimes writes the times of the turn boundaries, which are no part of the
// records.
func (g *Segment) SaveTimes(w *state.Writer) {
	w.Uint(uint64(len(g.boundaries)))
	last := int64(0)
	for i := range g.boundaries {
		w.Int(g.boundaries[i].At - last)
		last = g.boundaries[i].At
	}
}

// LoadTimes reads what SaveTimes wrote, once the records are there.
func (g *Segment) LoadTimes(r *state.Reader) {
	n := r.Len(1)
	at := int64(0)
	for i := range n {
		at += r.Int()
		if i < len(g.boundaries) {
			g.boundaries[i].At = at
		}
	}
}
