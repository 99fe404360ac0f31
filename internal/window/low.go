package window

// What a partition's state at some offset can be rebuilt from: snapshots of
// runs, and a replay of prov.steps from Low with outputs off.
//
// A run's snapshot lacks what happened to the run since: its missing offset is
// that of the first record or tick that changed it after it was saved, or ever.
// Low is the smallest of those. A replay that begins there skips, run by run,
// the records that a snapshot holds (before its as_of), and the records of runs
// that are gone by now and began before Low: those are marked.

// changed notes that the record or tick at hand changes a run.
func (p *Partition) changed(r *run) {
	if r.unsaved.listed {
		return
	}
	r.missing = p.offset
	r.missingClock, r.missingHasClock = p.clockBefore, p.hadClock
	p.unsaved.push(r)
}

// settled takes a run out of those that a replay must rebuild.
func (p *Partition) settled(r *run) { p.unsaved.remove(r) }

// goneRun is a forgotten run whose records a replay may still meet.
type goneRun struct {
	key         string
	first, last int64 // offsets of its first and last record
	marked      bool
}

// Low returns the offset from which a replay, begun with that clock, rebuilds
// the state that the partition has at next: what no snapshot holds begins
// there.
func (p *Partition) Low(next int64) (offset, clock int64, hasClock bool) {
	if r := p.unsaved.first; r != nil {
		return r.missing, r.missingClock, r.missingHasClock
	}
	return next, p.clock, p.hasClock
}

// Pressure is a seal under pressure. Which run was silent for longest depended
// on every run that was open then, so a replay is told instead of asked.
type Pressure struct {
	Offset int64  `json:"offset"`
	Key    string `json:"key"`
}

// Pressures returns the seals under pressure from an offset on, oldest first.
func (p *Partition) Pressures(low int64) []Pressure {
	i := 0
	for i < len(p.pressures) && p.pressures[i].Offset < low {
		i++
	}
	p.pressures = p.pressures[i:]
	return p.pressures
}

// BeginReplay readies the partition for the records from Low to next: seals
// under pressure happen where they happened. RestoreClock and Load come before.
func (p *Partition) BeginReplay(pressures []Pressure) {
	p.replaying, p.pressures = true, append([]Pressure(nil), pressures...)
	p.replayed = 0
}

// EndReplay ends the replay: the partition goes on by itself.
func (p *Partition) EndReplay() { p.replaying, p.skip = false, nil }

// replayPressure seals what was sealed under pressure at this offset.
func (p *Partition) replayPressure(now int64, emit func(Emission)) {
	for p.replayed < len(p.pressures) && p.pressures[p.replayed].Offset <= p.offset {
		at := p.pressures[p.replayed]
		p.replayed++
		if r := p.runs[at.Key]; r != nil && at.Offset == p.offset && r.asOf <= p.offset && r.awaitsSeal() {
			p.seal(r, byPressure, now, emit)
		}
	}
}
