package provenance

import (
	"bytes"

	"provstream/internal/acs"
)

// Packed is a Summary in little room: what is kept of a turn while its run goes
// on, and a run may have a great many turns.
type Packed struct {
	entries uint32
	depth   int32
	origins []packedOrigin // those that were seen
}

type packedOrigin struct {
	earliest []byte
	count    uint32
	origin   acs.Origin
}

// Pack returns the summary in little room, with step_ids of its own.
func (s *Summary) Pack() Packed {
	p := Packed{entries: uint32(s.EntryCount), depth: s.MaxDepth}
	seen := 0
	for _, n := range s.ByOrigin {
		if n > 0 {
			seen++
		}
	}
	if seen > 0 {
		p.origins = make([]packedOrigin, 0, seen)
	}
	for o, n := range s.ByOrigin {
		if n > 0 {
			p.origins = append(p.origins, packedOrigin{bytes.Clone(s.Earliest[o]), uint32(n), acs.Origin(o)})
		}
	}
	return p
}

// Summary returns what was packed.
func (p *Packed) Summary() (s Summary) {
	s.EntryCount, s.MaxDepth = int(p.entries), p.depth
	for i := range p.origins {
		o := &p.origins[i]
		s.ByOrigin[o.origin], s.Earliest[o.origin] = int(o.count), o.earliest
	}
	return s
}
