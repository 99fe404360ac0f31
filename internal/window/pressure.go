package window

import (
	"cmp"
	"container/heap"
)

// silence is a heap of runs with open records by (at of the last record, run
// key). Entries are early, never late: a run's last record only moves on.
type silence struct {
	kept    bool
	entries silentRuns
}

type silentRun struct {
	lastAt int64
	run    *run
}

type silentRuns []silentRun

func (h silentRuns) Len() int { return len(h) }

func (h silentRuns) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].lastAt, h[j].lastAt), cmp.Compare(h[i].run.key, h[j].run.key)) < 0
}

func (h silentRuns) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push and Pop serve container/heap.
func (h *silentRuns) Push(x any) { *h = append(*h, x.(silentRun)) }

func (h *silentRuns) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = silentRun{}
	*h = old[:len(old)-1]
	return x
}

// relieve seals, while the partition holds too many open records, the run that
// has been silent for longest.
func (p *Partition) relieve(now int64, emit func(Emission)) {
	if p.replaying {
		p.replayPressure(now, emit)
		return
	}
	for p.open > p.cfg.MaxOpenSteps {
		r := p.silentForLongest()
		if r == nil {
			return
		}
		p.pressures = append(p.pressures, Pressure{Offset: p.offset, Key: r.key})
		p.seal(r, byPressure, now, emit)
	}
}

func (p *Partition) silentForLongest() *run {
	h := &p.silent
	if !h.kept {
		h.kept = true
		for r := p.openRuns.first; r != nil; r = r.open.next {
			h.entries = append(h.entries, silentRun{r.lastAt, r})
		}
		heap.Init(&h.entries)
	}
	for len(h.entries) > 0 {
		e := &h.entries[0]
		switch r := e.run; {
		case r.seg == nil || r.seg.Len() == 0 || p.runs[r.key] != r:
			heap.Pop(&h.entries)
		case e.lastAt < r.lastAt:
			e.lastAt = r.lastAt
			heap.Fix(&h.entries, 0)
		default:
			return r
		}
	}
	return nil
}

// noteOpen keeps the heap complete while there is pressure; a heap of stale
// entries is dropped and made anew when it is asked for.
func (p *Partition) noteOpen(r *run) {
	h := &p.silent
	switch {
	case !h.kept:
	case len(h.entries) > 64+4*len(p.runs):
		*h = silence{}
	default:
		heap.Push(&h.entries, silentRun{r.lastAt, r})
	}
}
