package lineage

import (
	"fmt"
	"strconv"
	"strings"

	"provstream/internal/acs"
	"provstream/internal/provenance"
	"provstream/internal/segment"
)

// listed is what a compaction lists, resolved: each known step once.
type listed struct {
	steps   []int32             // of this segment, counted
	earlier []*segment.StepInfo // of earlier segments, counted
	texts   []segment.Sym       // step_ids of earlier, in the same order
	lost    bool                // a step is no longer remembered
}

// resolve resolves the entries of a compaction and tells which are unknown.
func (f *Facts) resolve(r segment.Ref, c *segment.Compaction) (l listed) {
	o, g := f.order, f.order.Seg
	l = listed{steps: f.listed.steps[:0], earlier: f.listed.earlier[:0], texts: f.listed.texts[:0]}
	f.newSet()
	for _, id := range g.Entries(c) {
		if !f.mark(id) {
			continue
		}
		switch s := o.Resolve(id); {
		case s == segment.Nowhere && o.Mem.MemoryLimited():
			l.lost = true
		case s == segment.Nowhere:
			f.add(r, CompactionUnknownStep, f.text(id))
		case s == segment.Earlier:
			if info := o.Recall(id); info != nil && info.Counted {
				l.earlier, l.texts = append(l.earlier, info), append(l.texts, id)
			}
		case o.Standing[s] == segment.Counted:
			l.steps = append(l.steps, s)
		}
	}
	if l.lost {
		f.add(r, CompactionUnverifiable, "")
	}
	f.listed = l
	return l
}

// preCompact: compaction_summary, a member of the summary that the agent sent
// differs from ours over the known listed steps. A zero equals none.
func (f *Facts) preCompact(r segment.Ref, s *segment.Step) {
	c := f.order.Seg.Compaction(s)
	l := f.resolve(r, c)
	if c.Declared == nil || l.lost {
		return
	}
	ours := f.summarize(&l)
	if names := differences(c.Declared, &ours); len(names) > 0 {
		f.add(r, CompactionSummary, strings.Join(names, ","))
	}
}

// summarize folds the listed steps in run order: earlier segments first.
func (f *Facts) summarize(l *listed) (sum provenance.Summary) {
	o, g := f.order, f.order.Seg
	var first [acs.OriginCount]int64 // place of the earliest step by origin
	count := func(origin acs.Origin, n int, place int64, id segment.Sym) {
		if n > 0 && (sum.ByOrigin[origin] == 0 || place < first[origin]) {
			first[origin], sum.Earliest[origin] = place, g.Syms.Bytes(id)
		}
		sum.ByOrigin[origin] += n
	}
	for k, info := range l.earlier {
		sum.EntryCount++
		counts := o.Mem.OriginCounts(info)
		for origin := acs.OriginUserInput; origin < acs.OriginCount; origin++ {
			count(origin, counts[origin], int64(info.Seq)-1<<40, l.texts[k])
		}
		for _, n := range o.Mem.CarriedIDs(info) {
			sum.MaxDepth = max(sum.MaxDepth, o.Mem.ID(n).Depth)
		}
	}
	for _, i := range l.steps {
		sum.EntryCount++
		s := &g.Steps[i]
		for k := range g.Provs(s) {
			p := &g.Provs(s)[k]
			sum.MaxDepth = max(sum.MaxDepth, f.index.Depth(p.ID))
			if p.Origin != acs.OriginUnknown {
				count(p.Origin, 1, int64(o.StepPos[i]), s.StepID)
			}
		}
	}
	return sum
}

// differences names the members that a declared summary sent and that differ
// from ours, sorted.
func differences(d *acs.DeclaredSummary, ours *provenance.Summary) (names []string) {
	if d.HasEarliestStepIDByOrigin && !sameEarliest(d.EarliestStepIDByOrigin, ours) {
		names = append(names, "earliest_step_id_by_origin")
	}
	if d.HasEntryCount && d.EntryCount != float64(ours.EntryCount) {
		names = append(names, "entry_count")
	}
	if d.HasEntryCountByOrigin && !sameCounts(d.EntryCountByOrigin, ours) {
		names = append(names, "entry_count_by_origin")
	}
	if d.HasMaxLineageDepth && d.MaxLineageDepth != float64(ours.MaxDepth) {
		names = append(names, "max_lineage_depth")
	}
	if d.HasOriginsSeen && !sameOrigins(d.OriginsSeen, ours) {
		names = append(names, "origins_seen")
	}
	return names
}

func sameEarliest(declared []acs.OriginValue, ours *provenance.Summary) bool {
	n := 0
	for _, v := range declared {
		o := acs.ParseOrigin(v.Origin)
		if o == acs.OriginUnknown || ours.ByOrigin[o] == 0 || string(ours.Earliest[o]) != v.StepID {
			return false
		}
		n++
	}
	return n == originsOf(ours)
}

func sameCounts(declared []acs.OriginValue, ours *provenance.Summary) bool {
	n := 0
	for _, v := range declared {
		if v.Count == 0 {
			if o := acs.ParseOrigin(v.Origin); o != acs.OriginUnknown && ours.ByOrigin[o] > 0 {
				return false
			}
			continue
		}
		o := acs.ParseOrigin(v.Origin)
		if o == acs.OriginUnknown || v.Count != float64(ours.ByOrigin[o]) {
			return false
		}
		n++
	}
	return n == originsOf(ours)
}

func sameOrigins(declared []string, ours *provenance.Summary) bool {
	var seen [acs.OriginCount]bool
	n := 0
	for _, v := range declared {
		o := acs.ParseOrigin(v)
		if o == acs.OriginUnknown || ours.ByOrigin[o] == 0 {
			return false
		}
		if !seen[o] {
			seen[o] = true
			n++
		}
	}
	return n == originsOf(ours)
}

func originsOf(s *provenance.Summary) (n int) {
	for o := acs.OriginUserInput; o < acs.OriginCount; o++ {
		if s.ByOrigin[o] > 0 {
			n++
		}
	}
	return n
}

// postCompact: compaction_lineage and compaction_depth. ACS wants derived_from
// of the summary to be the union of the ids of what was compacted (§5.12).
func (f *Facts) postCompact(r segment.Ref, s *segment.Step) {
	g := f.order.Seg
	c := g.Compaction(s)
	l := f.resolve(r, c)
	if l.lost {
		return
	}
	stated := f.statedParents(s)
	if missing, extra := f.compare(stated, l.steps, l.earlier); missing+extra > 0 {
		f.add(r, CompactionLineage, fmt.Sprintf("missing %d, extra %d", missing, extra))
	}
	if !c.DepthAfter.Set {
		return
	}
	ours := int32(0)
	for _, q := range stated {
		if f.index.Resolves(q) {
			ours = max(ours, 1+f.index.Depth(q))
		}
	}
	if c.DepthAfter.Value != float64(ours) {
		f.add(r, CompactionDepth, number(c.DepthAfter.Value)+"/"+strconv.Itoa(int(ours)))
	}
}

// statedParents returns derived_from of a step's summary, each id once.
func (f *Facts) statedParents(s *segment.Step) (stated []segment.Sym) {
	g := f.order.Seg
	f.newSet()
	stated = f.stated[:0]
	for i := range g.Provs(s) {
		for _, q := range g.Parents(&g.Provs(s)[i]) {
			if f.mark(q) {
				stated = append(stated, q)
			}
		}
	}
	f.stated = stated
	return stated
}

// compare counts, as sets, the ids that steps carry and stated lacks, and the
// other way round.
func (f *Facts) compare(stated []segment.Sym, steps []int32, earlier []*segment.StepInfo) (missing, extra int) {
	g, mem := f.order.Seg, f.order.Mem
	f.newSet()
	if len(earlier) > 0 && f.numbers == nil {
		f.numbers = make([]int32, mem.IDs())
	}
	carried := 0
	for _, info := range earlier {
		for _, n := range mem.CarriedIDs(info) {
			if f.markNumber(n) {
				carried++
			}
		}
	}
	// An id of this segment may be among those by its number.
	known := func(id segment.Sym) (uint32, bool) {
		if len(earlier) == 0 {
			return 0, false
		}
		return f.order.RecallID(id)
	}
	for _, i := range steps {
		for k := range g.Provs(&g.Steps[i]) {
			id := g.Provs(&g.Steps[i])[k].ID
			if !f.mark(id) {
				continue
			}
			if n, ok := known(id); !ok || f.markNumber(n) {
				carried++
			}
		}
	}
	common := 0
	for _, q := range stated {
		if f.marked(q) {
			common++
		} else if n, ok := known(q); ok && f.numbers[n] == f.stamp {
			common++
		}
	}
	return carried - common, len(stated) - common
}

// markNumber is mark for the number of a remembered id.
func (f *Facts) markNumber(n uint32) bool {
	if f.numbers[n] == f.stamp {
		return false
	}
	f.numbers[n] = f.stamp
	return true
}
