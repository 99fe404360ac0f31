package window

import (
	"strings"

	"provstream/internal/acs"
	"provstream/internal/segment"
)

// Reason is why a run's segment was sealed.
type Reason uint8

// The seals of rules.md §4. The zero value is no seal.
const (
	_ Reason = iota
	bySessionEnd
	byIdle
	bySize
	byPressure
	byLate

	reasonCount
)

var reasonNames = [reasonCount]string{
	bySessionEnd: "session_end", byIdle: "idle", bySize: "size", byPressure: "pressure", byLate: "late",
}

func (r Reason) String() string { return reasonNames[r] }

// Reasons are all of them; each is also the index of its count in [Stats].
func Reasons() []Reason { return []Reason{bySessionEnd, byIdle, bySize, byPressure, byLate} }

// run is one ACS session of one tenant: an open segment, and what is kept of
// the sealed ones.
type run struct {
	key, tenant, session string

	seg    *segment.Segment // nil: nothing open
	mem    *segment.Memory  // nil before the first seal
	totals *sessionTotals   // nil before the first seal

	turns     []turn
	turnByID  map[string]int32   // used once there are many turns
	turnBySym []int32            // by Sym of the open segment: 1 + index
	segTurns  []int32            // turns with a step in the open segment
	nesting   bool               // some turn names an enclosing turn
	inside    map[string][]int32 // by turn_id: turns that named it; nil when it must be made anew
	liveTurns int                // turns with a counted step
	openTurns int                // ... that are not closed

	lastAt, endAt int64
	hasEnd        bool
	ended         bool // session_end or late has sealed the run
	afterSize     bool // a size seal left the final summary to be given
	forgetAt      int64
	revision      int // of the session summary
	dirty         bool
	replaced      bool    // ... because a smaller copy replaced a record
	waiting       []int32 // turns that are open and have their turnEnd, see await
	nestedDirty   bool
	// formerParents are turns that lost a turn inside them since the last seal
	// but size: their counts may be met no longer.
	formerParents map[string]struct{}
	turnsTold     bool    // during a seal: the turns have had their last revision
	counts        uint64  // grows when the turns' counts change
	untoldTurns   []int32 // turnStarts that size seals left without turnEnd
	sizeSealed0   bool    // segment 0 was sealed by size without a sessionStart

	timer timer

	firstOffset, lastOffset int64 // of its records

	// What no snapshot holds, see low.go and save.go.
	missing         int64 // offset of the first change that no snapshot holds
	missingClock    int64 // the clock before it
	missingHasClock bool
	asOf            int64
	saved           *savedRun

	unsaved links[run] // among the unsaved runs, in the order of missing
	open    links[run] // among the runs with an open segment, in the order of their last records
	view    *view      // the analysis of the open segment that is kept, see analysis.go
}

// awaitsSeal reports whether a seal is still to come: records are open, or a
// size seal left the final summary to be given.
func (r *run) awaitsSeal() bool { return r.afterSize || (r.seg != nil && r.seg.Len() > 0) }

func (p *Partition) newRun(key string, s *acs.Step, offset int64) *run {
	r := &run{
		key: key, tenant: strings.Clone(s.Tenant), session: strings.Clone(s.Session),
		firstOffset: offset,
	}
	r.timer = timer{run: r, turn: -1, pos: -1}
	p.runs[r.key] = r
	return r
}

func (p *Partition) openSegment(r *run) {
	r.seg = p.storage.Segment(r.ended)
	r.turnBySym, r.segTurns = r.turnBySym[:0], r.segTurns[:0]
}

// forget drops everything about a run: what comes later starts a new one.
func (p *Partition) forget(r *run) {
	p.timers.stop(&r.timer)
	for i := range r.turns {
		p.timers.stop(r.turns[i].timer)
	}
	p.openRuns.remove(r)
	p.views.release(r.view)
	delete(p.runs, r.key)
	p.settled(r)
	p.unsave(r)
	if p.view.run == r {
		p.view.forget()
	}
	p.gone = append(p.gone, goneRun{key: r.key, first: r.firstOffset, last: r.lastOffset})
}

// markDirty notes that standings may have changed: the turns are counted anew
// before the next timer is looked at.
func (p *Partition) markDirty(r *run) {
	if !r.dirty {
		r.dirty = true
		p.dirty = append(p.dirty, r)
	}
}

func (p *Partition) settleDirty() {
	for _, r := range p.dirty {
		if r.dirty && r.seg != nil {
			p.analyze(r)
			p.rescheduleTurns(r)
		}
		r.dirty, r.replaced = false, false
	}
	p.dirty = p.dirty[:0]
}
