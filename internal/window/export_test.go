package window

import "provstream/internal/segment"

// AnalyseOnBases makes a partition keep the analysis of every segment of so
// many records, with so many behind the base, and try again soon where that
// failed: tests have short segments.
func (p *Partition) AnalyseOnBases(own, margin int) {
	p.views.own, p.views.margin, p.views.skips = own, margin, 1
}

// Paths tells how a partition's segments were analysed: in one pass, on a base,
// how often a base was made or moved on, and why there was none.
func (p *Partition) Paths() (whole, based, kept, unruly int, crossed [segment.Crossings]int) {
	w := &p.views.paths
	return w.whole, w.based, w.kept, w.unruly, w.crossed
}

// KeptAnalyses tells how many analyses a partition keeps, and their size in
// records.
func (p *Partition) KeptAnalyses() (n, size int) {
	for v := p.views.list.first; v != nil; v = v.links.next {
		n++
	}
	return n, p.views.size
}
