// Package window turns the records of one partition of prov.steps into closed
// windows: turn summaries, session summaries and sealed runs.
//
// A [Partition] is a state machine: records and ticks in, emissions out. The
// log is its clock: time is the largest tick so far, and every emission is a
// function of the log alone, so a restart, another instance or an auditor with
// the same log gets the same bytes (rules.md §4, D2).
//
//	record ─▶ run ─▶ open segment ─▶ turns with timers ─▶ turn and session summaries
//	                      │
//	                      └─ seal (session_end, idle, size, pressure, late) ─▶ DAG, final summary
//	                              what later segments need stays in segment.Memory
//
// The package is pure: no Kafka, wall clock, logger or goroutine. A Partition
// belongs to one goroutine.
package window

import (
	"time"

	"provstream/internal/acs"
	"provstream/internal/lineage"
	"provstream/internal/segment"
	"provstream/internal/topics"
)

// Kind says which topic an emission belongs to.
type Kind uint8

// The kinds of emissions: prov.turns, prov.sessions, prov.runs.
const (
	Turn Kind = iota
	Session
	Run
)

// Emission is one output record.
type Emission struct {
	Kind  Kind
	Key   string // run key
	Value []byte // JCS
	ID    string // CloudEvents id
	Time  int64  // CloudEvents time, milliseconds
}

// Stats describes a partition for metrics and people.
type Stats struct {
	Runs          int // runs held, the remembered ones included
	OpenRuns      int // runs with an open segment
	OpenSteps     int // records of open segments
	Copies        uint64
	Late          uint64 // records that came after a run's session_end
	Seals         [reasonCount]uint64
	Anomalies     map[string]uint64 // told by final session summaries and turns, by code
	OldestOpen    int64             // recorded_at of the oldest open run's last record; 0 without
	RememberedIDs int
}

// Partition is the state of one partition.
type Partition struct {
	cfg      Config
	clock    int64
	hasClock bool

	runs   map[string]*run
	timers timers
	ripe   []*timer // storage of fire
	due    []dueTimer
	fired  []firing
	order  []int32 // of fired
	open   int     // records in open segments
	// storage of the segments, see segment.Storage.
	storage segment.Storage
	// Runs with an open segment in the order of their last records.
	openRuns list[run]
	silent   silence // the same, silent for longest first; kept once there is pressure
	dirty    []*run
	nested   []*run
	heavy    []*run // runs whose weight asks for a size seal

	// The record or tick at hand, and the clock before it.
	offset      int64
	clockBefore int64
	hadClock    bool
	// What a replay needs, see low.go.
	unsaved    list[run]
	gone       []goneRun
	tombstones []string
	pressures  []Pressure
	replaying  bool
	replayed   int
	skip       map[string]int64 // by run key: records up to here belong to a run that is gone

	view   view  // of the run that was analysed last, among those with a short segment
	views  views // of the others
	nests  nesting
	words  words
	text   []byte // storage for summaries
	alloc  func(n int) []byte
	key    []byte // storage for the run key of the record at hand
	copies uint64
	late   uint64
	seals  [reasonCount]uint64
	facts  [256]uint64
}

// NewPartition returns an empty partition.
func NewPartition(cfg Config) *Partition {
	return &Partition{
		alloc: makeBytes,
		cfg:   cfg, runs: make(map[string]*run), views: newViews(), words: make(words),
		openRuns: list[run]{of: func(r *run) *links[run] { return &r.open }},
		unsaved:  list[run]{of: func(r *run) *links[run] { return &r.unsaved }},
	}
}

// SetAlloc sets where the storage of emissions' values comes from: alloc returns
// n bytes, which are the receiver's. Without it they are made.
func (p *Partition) SetAlloc(alloc func(n int) []byte) { p.alloc = alloc }

// SetConfig changes the configuration from the next record on, also for what is
// open already.
func (p *Partition) SetConfig(cfg Config) {
	if p.cfg == cfg {
		return
	}
	p.cfg = cfg
	for _, r := range p.runs {
		p.arm(r)
	}
}

// Clock returns the largest tick so far.
func (p *Partition) Clock() (ms int64, ok bool) { return p.clock, p.hasClock }

// RestoreClock sets the clock before a replay.
func (p *Partition) RestoreClock(ms int64) { p.clock, p.hasClock = ms, true }

// Apply takes one step or decision. It copies what it keeps of s.
func (p *Partition) Apply(offset int64, s *acs.Step, emit func(Emission)) {
	p.begin(offset)
	p.key = topics.AppendRunKey(p.key[:0], s.Tenant, s.Session)
	r := p.runs[string(p.key)]
	if p.replaying && p.heldAlready(r, string(p.key)) {
		p.replayPressure(p.sealTime(s.RecordedAt), emit)
		return
	}
	if r != nil && r.mem.SawCopy(r.seg, s) {
		p.copies++
		r.lastOffset = offset
		return
	}
	if r == nil {
		r = p.newRun(string(p.key), s, offset)
	}
	r.lastOffset = offset
	if r.seg == nil {
		p.openSegment(r)
	}
	switch r.seg.Add(s) {
	case segment.Copy:
		p.copies++
		return
	case segment.CopyReplaced:
		p.copies++
		p.changed(r)
		r.noteReplaced(s)
		r.replaced = true
		p.markDirty(r)
		return
	case segment.AddedConflict:
		p.markDirty(r)
	}
	p.added(r, s)
	p.fireImmediate(r, s.RecordedAt, emit)
	p.weigh(r, s, emit)
	p.relieve(p.sealTime(s.RecordedAt), emit)
}

// added tells the run and its turns of a record that is in the open segment.
func (p *Partition) added(r *run, s *acs.Step) {
	if r.ended {
		p.late++
	}
	p.open++
	p.changed(r)
	at := p.at(s.RecordedAt)
	if r.seg.Len() == 1 && !r.afterSize {
		r.lastAt = at
	}
	r.lastAt = max(r.lastAt, at)
	if r.seg.Len() == 1 {
		p.noteOpen(r)
	}
	p.openRuns.renew(r)
	p.arrive(r, s, at)
	p.schedule(r)
}

// weigh seals a segment of twice the weight at once, and notes one of the
// weight for the next tick.
func (p *Partition) weigh(r *run, s *acs.Step, emit func(Emission)) {
	if r.seg == nil || r.seg.Weight < p.cfg.MaxRunWeight {
		return
	}
	if r.seg.Weight >= 2*p.cfg.MaxRunWeight {
		p.seal(r, bySize, p.sealTime(s.RecordedAt), emit)
	} else if n := len(p.heavy); n == 0 || p.heavy[n-1] != r {
		p.heavy = append(p.heavy, r)
	}
}

// Tick moves the clock to t and fires every timer that is due, ordered by
// (due, run key, turn_id); then runs that are too heavy seal.
func (p *Partition) Tick(offset, t int64, emit func(Emission)) {
	p.begin(offset)
	if !p.hasClock {
		p.startClock(t)
	}
	p.clock = max(p.clock, t)
	p.settleDirty()
	p.settleNested()
	p.fire(emit)
	p.sealHeavy(emit)
	p.relieve(p.clock, emit)
}

// begin notes the record or tick at hand.
func (p *Partition) begin(offset int64) {
	p.offset, p.clockBefore, p.hadClock = offset, p.clock, p.hasClock
}

// heldAlready reports, during a replay, whether a snapshot holds the record at
// hand, or whether it belongs to a run that is gone by now.
func (p *Partition) heldAlready(r *run, key string) bool {
	if r != nil && p.offset < r.asOf {
		return true
	}
	last, ok := p.skip[key]
	return ok && p.offset <= last
}

// startClock: records before the partition's first tick happened, for their
// timers, at that tick.
func (p *Partition) startClock(t int64) {
	p.clock, p.hasClock = t, true
	for _, r := range p.runs {
		p.changed(r)
		r.lastAt, r.endAt = max(r.lastAt, t), max(r.endAt, t)
		if r.seg != nil {
			r.seg.Advance(t)
		}
		for i := range r.turns {
			turn := &r.turns[i]
			turn.lastAt, turn.endAt, turn.reopenAt = max(turn.lastAt, t), max(turn.endAt, t), max(turn.reopenAt, t)
		}
	}
}

// at is the time of a record for the timers: max(recorded_at, clock).
func (p *Partition) at(recordedAt int64) int64 {
	if p.hasClock {
		return max(recordedAt, p.clock)
	}
	return recordedAt
}

// sealTime is the time of a seal that a record causes at once.
func (p *Partition) sealTime(recordedAt int64) int64 { return p.at(recordedAt) }

// Stats describes the partition.
func (p *Partition) Stats() Stats {
	st := Stats{Runs: len(p.runs), OpenSteps: p.open, Copies: p.copies, Late: p.late, Seals: p.seals, Anomalies: make(map[string]uint64)}
	for r := p.openRuns.first; r != nil; r = r.open.next {
		st.OpenRuns++
	}
	if r := p.openRuns.first; r != nil {
		st.OldestOpen = r.lastAt
	}
	for _, c := range lineage.Codes() {
		if n := p.facts[c]; n > 0 {
			st.Anomalies[c.String()] = n
		}
	}
	for _, r := range p.runs {
		st.RememberedIDs += r.mem.Used()
	}
	return st
}

// OpenRecords is how many records open segments hold, which MaxOpenSteps bounds.
func (p *Partition) OpenRecords() int { return p.open }

func ms(d time.Duration) int64 { return d.Milliseconds() }

func makeBytes(n int) []byte { return make([]byte, n) }
