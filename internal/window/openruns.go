package window

import (
	"cmp"
	"slices"
	"strings"
)

// OpenRun is a run with an open segment, for people who look.
type OpenRun struct {
	Run     string `json:"run"`     // its key
	Segment int    `json:"segment"` // number of DAGs before this one
	Steps   int    `json:"steps"`   // records of the open segment, decisions included
	Weight  int64  `json:"weight"`  // of rules.md §4: 4 MiB seal a segment
	Turns   int    `json:"open_turns"`
	// FirstOffset and LastOffset are where its records begin and end in prov.steps.
	FirstOffset int64 `json:"first_offset"`
	LastOffset  int64 `json:"last_offset"`
	// LastMs is when its last record reached Kafka.
	LastMs int64 `json:"last_ms"`
	// Ended says that its sessionEnd is here and only the grace is waited for.
	Ended bool `json:"ended"`
}

// OpenRuns lists the runs with an open segment, the largest first.
func (p *Partition) OpenRuns() []OpenRun {
	all := []OpenRun{}
	for r := p.openRuns.first; r != nil; r = r.open.next {
		o := OpenRun{Run: r.key, Turns: r.openTurns, FirstOffset: r.firstOffset, LastOffset: r.lastOffset, LastMs: r.lastAt, Ended: r.hasEnd}
		if r.seg != nil {
			o.Steps, o.Weight = r.seg.Len(), r.seg.Weight
		}
		if r.mem != nil {
			o.Segment = r.mem.Segments
		}
		all = append(all, o)
	}
	slices.SortFunc(all, func(a, b OpenRun) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), strings.Compare(a.Run, b.Run))
	})
	return all
}
