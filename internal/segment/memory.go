package segment

import (
	"crypto/sha256"
	"encoding/binary"

	"provstream/internal/acs"
)

// Hash16 is the first 16 bytes of a SHA-256: what is kept of a string or of a
// tuple of strings once its segment is sealed (rules.md §0).
type Hash16 [16]byte

// hash16 hashes parts with their lengths, so that no two tuples agree.
func hash16(kind byte, parts ...[]byte) Hash16 {
	var buf [512]byte
	b := append(buf[:0], kind)
	for _, p := range parts {
		b = append(b, byte(len(p)>>24), byte(len(p)>>16), byte(len(p)>>8), byte(len(p)))
		b = append(b, p...)
	}
	sum := sha256.Sum256(b)
	return Hash16(sum[:16])
}

// Kinds of hashes, so that equal texts of different kinds stay apart.
const (
	kindStep byte = iota
	kindStepID
	kindDecision
	kindErrorAnswer
	kindProvenanceID
	kindSkill
	kindSubagent
	kindMCP
)

// StepInfo is what is remembered of the steps with one step_id.
type StepInfo struct {
	Accepted  bool // an accepted step has the id
	Rejected  bool // a rejected step has it
	InDAG     bool // the accepted step stands in a segment that gave a DAG
	Counted   bool
	Hook      acs.Hook
	Turn      int32  // index of its turn in the run, -1
	Decisions uint32 // answers so far, which number policyDecisionIds
	Seq       uint32 // place in run order
	ids       span   // into Memory.carried
	counts    span   // into Memory.counts, one per origin
}

// IDInfo is what is remembered of a provenance id.
type IDInfo struct {
	Depth     int32
	Retrieval bool // its mint is a retrieval or memory-read
}

// Memory is what is kept of a run's sealed segments (rules.md §4, After a
// seal). A nil Memory remembers nothing.
type Memory struct {
	// The last DAG of the run; Segments is the number of DAGs so far.
	Segments      int
	DAGID         string
	DAGHash       acs.Hash // SHA-256 of JCS of [nodes, edges]
	DAGRecordedAt int64    // largest recorded_at of its segment's records
	Nodes         int      // nodes so far, over all segments

	SessionStart, AgentTrigger bool
	Deterministic              bool // a handshake said provenance_producer deterministic
	Agents                     []string
	Heads                      []string // the last 16 published chain heads, oldest first
	LastDecisionAsk            bool

	// Limited is true once a record did not fit into MaxIDs hashes.
	Limited bool
	MaxIDs  int
	used    int
	seq     uint32

	table   hashTable
	lastID  []byte // see findStep
	last    int32
	steps   []StepInfo
	ids     []IDInfo
	carried []uint32 // indexes into ids: what a compaction lists may carry very many
	counts  []uint32

	turns     map[string]TurnMemory
	skills    map[Hash16]struct{} // registered (id, digest)
	subagents map[Hash16]struct{} // started sessions
	mcp       map[Hash16][]Hash16 // unanswered (method, inner id): the step_ids
	// What size seals left open and no seal has told: calls by step_id,
	// subagents by session with the number of their starts.
	untoldCalls     map[Hash16]struct{}
	untoldSubagents map[Hash16]int
}

// maxAgents and maxHeads bound what is kept of agents and chain heads.
const (
	maxAgents = 100
	maxHeads  = 16
)

// NoteDAG keeps the DAG that a segment gave: the next segment refers to it.
func (m *Memory) NoteDAG(id string, hash acs.Hash) {
	m.Segments++
	m.DAGID, m.DAGHash = id, hash
}

// Used is the number of hashes held.
func (m *Memory) Used() int {
	if m == nil {
		return 0
	}
	return m.used
}

func copyKey(s *acs.Step) Hash16 {
	switch {
	case s.Type == acs.TypeStep:
		return hash16(kindStep, []byte(s.StepID), []byte(s.Method), s.RequestHash[:])
	case s.StepID == "":
		return hash16(kindErrorAnswer, []byte(s.ID), s.RequestHash[:])
	}
	return hash16(kindDecision, []byte(s.StepID), s.RequestHash[:])
}

// MemoryLimited reports whether something of the run was not remembered: then
// a reference that leads nowhere proves nothing.
func (m *Memory) MemoryLimited() bool { return m != nil && m.Limited }

// ID returns what is remembered of a provenance id by its number.
func (m *Memory) ID(number uint32) IDInfo { return m.ids[number] }

// IDHash is the hash16 of a provenance id as the memory holds it.
func IDHash(id []byte) Hash16 { return hash16(kindProvenanceID, id) }

// CarriedIDs returns the ids that a remembered step carries, as numbers of
// remembered ids.
func (m *Memory) CarriedIDs(s *StepInfo) []uint32 {
	return m.carried[s.ids.start : s.ids.start+s.ids.n]
}

// IDs is the number of remembered ids.
func (m *Memory) IDs() int { return len(m.ids) }

// OriginCounts returns the Provenance objects of a remembered step by origin.
func (m *Memory) OriginCounts(s *StepInfo) (counts [acs.OriginCount]int) {
	for i, n := range m.counts[s.counts.start : s.counts.start+s.counts.n] {
		counts[i] = int(n)
	}
	return counts
}

// HasSkill reports whether a skillRegister of (id, digest) is remembered.
func (m *Memory) HasSkill(id, digest []byte) bool {
	if m == nil {
		return false
	}
	_, ok := m.skills[hash16(kindSkill, id, digest)]
	return ok
}

// HasSubagent reports whether a subagentStart of a session is remembered.
func (m *Memory) HasSubagent(session []byte) bool {
	if m == nil {
		return false
	}
	_, ok := m.subagents[hash16(kindSubagent, session)]
	return ok
}

// HasOpenMCP reports whether an MCP request with this method and inner id is
// remembered as unanswered.
func (m *Memory) HasOpenMCP(method, innerID []byte) bool {
	if m == nil {
		return false
	}
	_, ok := m.mcp[hash16(kindMCP, method, innerID)]
	return ok
}

// hashTable maps Hash16 to small numbers by open addressing: a hash is
// uniform already, so its first bytes are the slot. A slot holds further bytes
// of its hash above the number of the entry: a look-up of what is not there, the
// common case, touches no entry, and with many entries each is a cache miss.
type hashTable struct {
	keys  []Hash16
	vals  []uint32
	slots []uint64 // tag<<32 | 1 + index into keys
}

func (t *hashTable) get(h Hash16) (uint32, bool) {
	if len(t.slots) == 0 {
		return 0, false
	}
	mask, tag := uint64(len(t.slots)-1), h.tag()
	for i := h.slot() & mask; t.slots[i] != 0; i = (i + 1) & mask {
		if uint32(t.slots[i]>>32) != tag {
			continue
		}
		if k := uint32(t.slots[i]) - 1; t.keys[k] == h {
			return t.vals[k], true
		}
	}
	return 0, false
}

// reserve makes room for n more, and in a table that grows for some beyond, but
// not for more than most.
func (t *hashTable) reserve(n, most int) {
	if n <= cap(t.keys)-len(t.keys) {
		return
	}
	n = max(len(t.keys)+n, min(most, len(t.keys)+n+len(t.keys)/4))
	t.keys = append(make([]Hash16, 0, n), t.keys...)
	t.vals = append(make([]uint32, 0, n), t.vals...)
	slots := max(16, len(t.slots))
	for n*4 > slots*3 {
		slots *= 2
	}
	t.resize(slots)
}

func (t *hashTable) resize(slots int) {
	if slots == len(t.slots) {
		return
	}
	t.slots = make([]uint64, slots)
	for k := range t.keys {
		t.place(t.keys[k], uint32(k)+1)
	}
}

// put adds h, which must not be in the table.
func (t *hashTable) put(h Hash16, val uint32) {
	if (len(t.keys)+1)*4 > len(t.slots)*3 {
		t.resize(max(16, 2*len(t.slots)))
	}
	t.keys, t.vals = append(t.keys, h), append(t.vals, val)
	t.place(h, uint32(len(t.keys)))
}

func (t *hashTable) place(h Hash16, v uint32) {
	mask := uint64(len(t.slots) - 1)
	i := h.slot() & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = uint64(h.tag())<<32 | uint64(v)
}

func (h *Hash16) slot() uint64 { return binary.LittleEndian.Uint64(h[:]) }

func (h *Hash16) tag() uint32 { return binary.LittleEndian.Uint32(h[8:]) }

// StepsByTurn groups the remembered counted steps by the index of their turn.
func (m *Memory) StepsByTurn() map[int32][]*StepInfo {
	by := make(map[int32][]*StepInfo)
	if m == nil {
		return by
	}
	for i := range m.steps {
		if s := &m.steps[i]; s.Counted && s.Turn >= 0 {
			by[s.Turn] = append(by[s.Turn], s)
		}
	}
	return by
}
