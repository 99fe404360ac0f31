// Package segment holds the records of one segment of a run in memory, compact
// and deduplicated, and puts them in order: the canonical order of steps and
// decisions, which of several conflicting steps wins, and which step a
// decision answers. It also holds what stays of a run's earlier segments
// ([Memory]).
//
// A segment is a set: [Segment.Add] gives the same segment whatever the order
// and however often its records come. Strings are interned ([Sym]) so that a
// record costs about 250 bytes and the rules work on small numbers.
//
// The package is pure: no Kafka, clock, logger or goroutine.
package segment

import (
	"strings"

	"provstream/internal/acs"
)

// span is a range of one of the segment's shared slices.
type span struct{ start, n uint32 }

// Prov is one Provenance object.
type Prov struct {
	ID         Sym
	OriginName Sym // as written
	Origin     acs.Origin
	SourceID   Sym
	parents    span
}

// Step is one distinct step of a segment.
type Step struct {
	EventTime, RecordedAt, Offset int64
	RequestHash, ContentHash      acs.Hash
	Topic                         Sym
	Partition, Index              int32

	StepID, Method, AgentID, Turn Sym
	Tool, Capability, ExitStatus  Sym
	RequestIDRef                  Sym
	jsonID                        Sym

	prov   span
	detail int32 // index into boundaries or compactions, by hook; -1
	more   int32 // index into mores; -1

	Hook       acs.Hook
	Rank       uint8
	Skewed     bool
	Rejected   bool
	Answer     bool
	HasSummary bool
}

// Boundary is what only a turnStart or a turnEnd has.
type Boundary struct {
	MetadataTurn  Sym // metadata.turn_id
	PayloadTurn   Sym
	PayloadParent Sym
	TriggeredBy   Sym
	Outcome       Sym
	StepCount     acs.Number
	ToolCallCount acs.Number
	// At is the time of the record for the timers: the owner of the segment
	// sets it, and it is no part of the record.
	At int64
}

// Compaction is what only a preCompact or a postCompact has.
type Compaction struct {
	entries    span
	Declared   *acs.DeclaredSummary
	ChainHash  Sym // pre_compact_chain_hash
	DepthAfter acs.Number
}

// More holds what few steps have.
type More struct {
	AgentName, ParentTurn, UserID, ChainHash, SignatureKeyID  Sym
	Subagent, ParentStep, Skill, Digest, TriggerStep, Outcome Sym
	InnerID, MCPMethod, Producer, RejectedKind                Sym
	ProvenanceMissing                                         int32
}

// Decision is one distinct answer.
type Decision struct {
	RecordedAt, Offset int64
	Hash               acs.Hash
	ErrorCode          float64
	Topic              Sym
	Partition, Index   int32
	requestID, jsonID  Sym // requestID is None of an error response
	Decision           Sym
	Evaluator          Sym
	ChainHash          Sym
	RejectedKind       Sym
	reasonCodes, cited span
	prov               span
	IsError            bool
	HasErrorCode       bool
}

// Segment is the set of records of one segment of a run.
type Segment struct {
	Syms      Symbols
	Steps     []Step
	Decisions []Decision

	// AfterEnd is true in a segment of a run that session_end or late has
	// sealed before: its records come after the seal.
	AfterEnd bool
	// Weight bounds the size of the segment's DAG (see weight.go).
	Weight int64
	// Version grows with each change.
	Version uint64
	// Disturbed grows with each change other than a new record without conflict.
	Disturbed uint64
	// Unnamed is true when a toolCallResult does not name its call.
	Unnamed bool

	provs       []Prov
	lists       []Sym
	boundaries  []Boundary
	compactions []Compaction
	mores       []More
	dedupe      []int32 // open addressing: i+1 of a step, -(i+1) of a decision
	best        []int32 // by Sym of a step_id: i+1 of the accepted step that wins it
	rejected    []int32 // by Sym of a step_id: i+1 of the first rejected step
	recall      recall

	lastAgent, lastTurn Sym // of the step added last
}

// Len is the number of records.
func (g *Segment) Len() int { return len(g.Steps) + len(g.Decisions) }

// Provs returns the Provenance objects of a step.
func (g *Segment) Provs(s *Step) []Prov { return g.provs[s.prov.start : s.prov.start+s.prov.n] }

// ProvAt returns the object at an index of the segment's objects.
func (g *Segment) ProvAt(i int32) *Prov { return &g.provs[i] }

// ProvStart is the index of a step's first object in the segment's objects.
func (g *Segment) ProvStart(s *Step) int32 { return int32(s.prov.start) }

// DecisionProvs returns the object of a decision's intent extension, if any.
func (g *Segment) DecisionProvs(d *Decision) []Prov {
	return g.provs[d.prov.start : d.prov.start+d.prov.n]
}

// DecisionProvStart is the index of a decision's first object.
func (g *Segment) DecisionProvStart(d *Decision) int32 { return int32(d.prov.start) }

// Parents returns derived_from of an object, as written.
func (g *Segment) Parents(p *Prov) []Sym { return g.list(p.parents) }

// Boundary returns what a turnStart or turnEnd has beside the other steps.
func (g *Segment) Boundary(s *Step) *Boundary { return &g.boundaries[s.detail] }

// Compaction returns what a preCompact or postCompact has.
func (g *Segment) Compaction(s *Step) *Compaction { return &g.compactions[s.detail] }

// Entries returns the step_ids that a compaction lists, as written.
func (g *Segment) Entries(c *Compaction) []Sym { return g.list(c.entries) }

// ReasonCodes and Cited return a decision's lists, as written.
func (g *Segment) ReasonCodes(d *Decision) []Sym { return g.list(d.reasonCodes) }

// Cited returns cited_provenance_ids of a decision.
func (g *Segment) Cited(d *Decision) []Sym { return g.list(d.cited) }

var noMore More

// More returns what few steps have.
func (g *Segment) More(s *Step) *More {
	if s.more < 0 {
		return &noMore
	}
	return &g.mores[s.more]
}

// IsTurnBoundary reports whether s is an accepted turnStart or turnEnd.
func (s *Step) IsTurnBoundary() bool {
	return !s.Rejected && (s.Hook == acs.HookTurnStart || s.Hook == acs.HookTurnEnd)
}

// IsHandshake reports whether s is an accepted handshake, winner or loser: it
// has no node and belongs to no turn.
func (s *Step) IsHandshake() bool { return s.Hook == acs.HookHandshake && !s.Rejected }

func (g *Segment) list(s span) []Sym { return g.lists[s.start : s.start+s.n] }

// Added says what adding a record did.
type Added uint8

const (
	// New is a record that was not here.
	New Added = iota
	// AddedConflict is a new step whose step_id another accepted step has.
	AddedConflict
	// Copy is a copy that changed nothing.
	Copy
	// CopyReplaced is a copy that stands before the one that was here.
	CopyReplaced
)

// Add adds one record, or recognises it as a copy. Of several copies the one
// with the smallest (recorded_at, topic, partition, offset, index) stays
// (rules.md §1).
func (g *Segment) Add(s *acs.Step) Added {
	if s.Type == acs.TypeDecision {
		return g.addDecision(s)
	}
	return g.addStep(s)
}

func (g *Segment) addStep(s *acs.Step) Added {
	id, method := g.Syms.Intern(s.StepID), g.Syms.optional(s.Method)
	slot, at := g.findStep(id, method, &s.RequestHash)
	if at >= 0 {
		old := &g.Steps[at]
		if g.earlier(s, old.RecordedAt, old.Topic, old.Partition, old.Offset, old.Index) {
			old.EventTime, old.RecordedAt, old.Offset, old.Skewed = s.EventTime, s.RecordedAt, s.Coordinates.Offset, s.Skewed
			old.Topic, old.Partition, old.Index = g.Syms.Intern(s.Coordinates.Topic), s.Coordinates.Partition, s.Coordinates.Index
			old.jsonID = g.jsonID(s.ID, s.StepID, id)
			g.disturb()
			return CopyReplaced
		}
		return Copy
	}
	st := Step{
		EventTime: s.EventTime, RecordedAt: s.RecordedAt, Offset: s.Coordinates.Offset,
		RequestHash: s.RequestHash, ContentHash: s.ContentHash,
		Topic: g.Syms.Intern(s.Coordinates.Topic), Partition: s.Coordinates.Partition, Index: s.Coordinates.Index,
		StepID: id, Method: method, AgentID: g.again(&g.lastAgent, s.AgentID), Turn: g.again(&g.lastTurn, s.EffectiveTurnID()),
		Tool: g.Syms.optional(s.Tool), Capability: g.Syms.optional(s.Capability), ExitStatus: g.Syms.optional(s.ExitStatus),
		RequestIDRef: g.Syms.optional(s.RequestIDRef), jsonID: g.jsonID(s.ID, s.StepID, id),
		detail: -1, more: -1,
		Hook: acs.HookOf(s.Method), Skewed: s.Skewed, Rejected: s.Rejected != "", Answer: s.Answer, HasSummary: s.HasSummary,
	}
	st.Rank = acs.Rank(st.Hook, st.Rejected, st.Answer)
	st.prov = g.addProvs(s.Provenance)
	g.addDetail(&st, s)
	g.addMore(&st, s)

	i := int32(len(g.Steps))
	store := g.Syms.store.orNone()
	g.Steps = append(store.steps.room(store, g.Steps, 1), st)
	g.dedupe[slot] = i + 1
	g.added(s)
	g.Unnamed = g.Unnamed || st.Hook == acs.HookToolCallResult && !st.Rejected && st.RequestIDRef == None
	return g.contend(i)
}

// contend notes which step a step_id names now that step i has it, too.
func (g *Segment) contend(i int32) Added {
	st := &g.Steps[i]
	id := st.StepID
	if st.Rejected {
		g.rejected = extend(g.rejected, g.Syms.Len())
		if r := g.rejected[id]; r == 0 || g.CompareSteps(i, r-1) < 0 {
			g.rejected[id] = i + 1
		}
		return New
	}
	if n := g.Syms.Len(); len(g.best) < n {
		store := g.Syms.store.orNone()
		g.best = extend(store.numbers.room(store, g.best, n-len(g.best)), n)
	}
	w := g.best[id]
	switch {
	case w == 0:
		g.best[id] = i + 1
		return New
	case g.Steps[w-1].Skewed != st.Skewed:
		if !st.Skewed {
			g.best[id] = i + 1
		}
	case g.CompareSteps(i, w-1) < 0:
		g.best[id] = i + 1
	}
	g.disturb()
	return AddedConflict
}

func (g *Segment) disturb() {
	g.Version++
	g.Disturbed++
}

// Best returns the accepted step that a step_id names as far as the segment
// knows while records still come, Nowhere when there is none.
func (g *Segment) Best(id Sym) int32 {
	if int(id) >= len(g.best) {
		return Nowhere
	}
	return g.best[id] - 1
}

// StepOfLastDecision returns the step of this segment that the decision added
// last answers as far as the segment knows: of an error response the first
// accepted step with its JSON-RPC id that wins its step_id, in mem too.
func (g *Segment) StepOfLastDecision(mem *Memory) int32 {
	d := &g.Decisions[len(g.Decisions)-1]
	if d.requestID != None {
		if s := g.Best(d.requestID); s != Nowhere {
			return s
		}
		if int(d.requestID) < len(g.rejected) {
			return g.rejected[d.requestID] - 1
		}
		return Nowhere
	}
	first := Nowhere
	if d.jsonID == None || string(g.Syms.Bytes(d.jsonID)) == nullID {
		return Nowhere // null joins nothing
	}
	for i := range g.Steps {
		s := &g.Steps[i]
		if s.jsonID != d.jsonID || s.Rejected || g.Best(s.StepID) != int32(i) {
			continue
		}
		if (first == Nowhere || g.CompareSteps(int32(i), first) < 0) && !g.Accepted(mem, s.StepID) {
			first = int32(i)
		}
	}
	return first
}

// again interns a text that is mostly that of the step before.
func (g *Segment) again(last *Sym, text string) Sym {
	if *last == None || string(g.Syms.Bytes(*last)) != text {
		*last = g.Syms.optional(text)
	}
	return *last
}

func (g *Segment) addDetail(st *Step, s *acs.Step) {
	if st.Rejected {
		return
	}
	switch st.Hook {
	case acs.HookTurnStart, acs.HookTurnEnd:
		st.detail = int32(len(g.boundaries))
		store := g.Syms.store.orNone()
		g.boundaries = append(store.bounds.room(store, g.boundaries, 1), Boundary{
			MetadataTurn: g.Syms.optional(s.TurnID), PayloadTurn: g.Syms.optional(s.PayloadTurnID),
			PayloadParent: g.Syms.optional(s.PayloadParentTurnID), TriggeredBy: g.Syms.optional(s.TriggeredBy),
			Outcome: g.Syms.optional(s.Outcome), StepCount: s.StepCount, ToolCallCount: s.ToolCallCount,
		})
	case acs.HookPreCompact:
		st.detail = int32(len(g.compactions))
		g.compactions = append(g.compactions, Compaction{entries: g.addList(s.EntriesToCompact), Declared: cloneDeclared(s.DeclaredSummary)})
	case acs.HookPostCompact:
		st.detail = int32(len(g.compactions))
		g.compactions = append(g.compactions, Compaction{
			entries: g.addList(s.EntriesCompacted), ChainHash: g.Syms.optional(s.PreCompactChainHash), DepthAfter: s.LineageDepthAfter,
		})
	}
}

func (g *Segment) addMore(st *Step, s *acs.Step) {
	digest := ""
	if s.DigestAlgorithm != "" || s.DigestValue != "" {
		digest = s.DigestAlgorithm + "\x00" + s.DigestValue
	}
	outcome := s.Outcome
	if st.Hook == acs.HookTurnEnd {
		outcome = ""
	}
	y := &g.Syms
	m := More{
		AgentName: y.optional(s.AgentName), ParentTurn: y.optional(s.ParentTurnID), UserID: y.optional(s.UserID),
		ChainHash: y.optional(s.ChainHash), SignatureKeyID: y.optional(s.SignatureKeyID),
		Subagent: y.optional(s.SubagentSessionID), ParentStep: y.optional(s.ParentStepID), Skill: y.optional(s.SkillID),
		Digest: y.optional(digest), TriggerStep: y.optional(s.TriggerStepID), Outcome: y.optional(outcome),
		InnerID: y.optional(s.InnerID), Producer: y.optional(s.ProvenanceProducer), RejectedKind: y.optional(s.Rejected),
		ProvenanceMissing: int32(s.ProvenanceMissing),
	}
	if st.Hook == acs.HookWrapped {
		m.MCPMethod = y.optional(acs.MCPMethod(s.Method))
	}
	if m != noMore {
		st.more = int32(len(g.mores))
		store := y.store.orNone()
		g.mores = append(store.mores.room(store, g.mores, 1), m)
	}
}

func (g *Segment) addDecision(s *acs.Step) Added {
	requestID := g.Syms.optional(s.StepID)
	id := g.jsonID(s.ID, s.StepID, requestID)
	key := requestID
	if requestID == None {
		key = id
	}
	slot, at := g.findDecision(key, requestID != None, &s.RequestHash)
	if at >= 0 {
		old := &g.Decisions[at]
		if g.earlier(s, old.RecordedAt, old.Topic, old.Partition, old.Offset, old.Index) {
			old.RecordedAt, old.Offset = s.RecordedAt, s.Coordinates.Offset
			old.Topic, old.Partition, old.Index = g.Syms.Intern(s.Coordinates.Topic), s.Coordinates.Partition, s.Coordinates.Index
			g.disturb()
			return CopyReplaced
		}
		return Copy
	}
	y := &g.Syms
	d := Decision{
		RecordedAt: s.RecordedAt, Offset: s.Coordinates.Offset, Hash: s.RequestHash, ErrorCode: s.ErrorCode.Value,
		Topic: y.Intern(s.Coordinates.Topic), Partition: s.Coordinates.Partition, Index: s.Coordinates.Index,
		requestID: requestID, jsonID: id, Decision: y.optional(s.Decision), Evaluator: y.optional(s.Evaluator),
		ChainHash: y.optional(s.DecisionChainHash), RejectedKind: y.optional(s.Rejected),
		reasonCodes: g.addList(s.ReasonCodes), cited: g.addList(s.Cited), prov: g.addProvs(s.Provenance),
		IsError: s.ErrorResponse, HasErrorCode: s.ErrorCode.Set,
	}
	store := y.store.orNone()
	g.Decisions = append(store.decisions.room(store, g.Decisions, 1), d)
	g.dedupe[slot] = -int32(len(g.Decisions))
	g.added(s)
	return New
}

func (g *Segment) added(s *acs.Step) {
	g.Version++
	g.Weight += Weight(s)
}

// RecordedAt returns the smallest and the largest recorded_at of the records.
// Both are 0 in an empty segment.
func (g *Segment) RecordedAt() (first, last int64) {
	seen := false
	see := func(at int64) {
		if !seen {
			first, last, seen = at, at, true
		}
		first, last = min(first, at), max(last, at)
	}
	for i := range g.Steps {
		see(g.Steps[i].RecordedAt)
	}
	for i := range g.Decisions {
		see(g.Decisions[i].RecordedAt)
	}
	return first, last
}

func (g *Segment) addProvs(ps []acs.Provenance) span {
	at := span{uint32(len(g.provs)), uint32(len(ps))}
	store := g.Syms.store.orNone()
	g.provs = store.provs.room(store, g.provs, len(ps))
	for i := range ps {
		p := &ps[i]
		g.provs = append(g.provs, Prov{
			ID: g.Syms.Intern(p.ID), OriginName: g.Syms.optional(p.Origin), Origin: acs.ParseOrigin(p.Origin),
			SourceID: g.Syms.optional(p.SourceID), parents: g.addList(p.DerivedFrom),
		})
	}
	return at
}

func (g *Segment) addList(items []string) span {
	at := span{uint32(len(g.lists)), uint32(len(items))}
	store := g.Syms.store.orNone()
	g.lists = store.syms.room(store, g.lists, len(items))
	for _, it := range items {
		g.lists = append(g.lists, g.Syms.Intern(it))
	}
	return at
}

// jsonID interns a JSON-RPC id as a value: the text of a string without
// escapes stands without its quotes, which makes it the step_id's own Sym in
// most fleets; every other id keeps a mark that no string can have. same is the
// Sym that the id has if it is the step_id.
func (g *Segment) jsonID(text, stepID string, same Sym) Sym {
	switch {
	case text == "":
		return None
	case stepID != "" && len(text) == len(stepID)+2 && text[0] == '"' && text[1:len(text)-1] == stepID && !strings.Contains(stepID, `\`):
		return same
	case text[0] == '"' && !strings.Contains(text, `\`):
		return g.Syms.Intern(text[1 : len(text)-1])
	}
	return g.Syms.Intern("\xff" + text)
}

// JSONIDText returns the JCS text of a JSON-RPC id.
func (g *Segment) JSONIDText(id Sym) string {
	b := g.Syms.Bytes(id)
	if len(b) > 0 && b[0] == 0xff {
		return string(b[1:])
	}
	return `"` + string(b) + `"`
}

const nullID = "\xffnull"

// earlier reports whether s stands before a record with these coordinates
// among copies: (recorded_at, topic, partition, offset, index).
func (g *Segment) earlier(s *acs.Step, recordedAt int64, topic Sym, partition int32, offset int64, index int32) bool {
	c := &s.Coordinates
	switch {
	case s.RecordedAt != recordedAt:
		return s.RecordedAt < recordedAt
	case c.Topic != string(g.Syms.Bytes(topic)):
		return c.Topic < string(g.Syms.Bytes(topic))
	case c.Partition != partition:
		return c.Partition < partition
	case c.Offset != offset:
		return c.Offset < offset
	}
	return c.Index < index
}

func cloneDeclared(d *acs.DeclaredSummary) *acs.DeclaredSummary {
	if d == nil {
		return nil
	}
	c := *d
	c.OriginsSeen = nil
	for _, s := range d.OriginsSeen {
		c.OriginsSeen = append(c.OriginsSeen, strings.Clone(s))
	}
	clone := func(in []acs.OriginValue) (out []acs.OriginValue) {
		for _, v := range in {
			out = append(out, acs.OriginValue{Origin: strings.Clone(v.Origin), Count: v.Count, StepID: strings.Clone(v.StepID)})
		}
		return out
	}
	c.EntryCountByOrigin, c.EarliestStepIDByOrigin = clone(d.EntryCountByOrigin), clone(d.EarliestStepIDByOrigin)
	return &c
}

// Advance moves the times of turn boundaries that are earlier than t to t.
func (g *Segment) Advance(t int64) {
	for i := range g.boundaries {
		g.boundaries[i].At = max(g.boundaries[i].At, t)
	}
}
