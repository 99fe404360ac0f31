package provenance

import (
	"provstream/internal/acs"
	"provstream/internal/segment"
)

// parents returns the derived_from of the mint's first object for an id: none
// for an id minted by subagentStop, whose parents belong to the child session.
func (x *Index) parents(id segment.Sym) []segment.Sym {
	m := x.mints.At(id)
	g := x.order.Seg
	if m.state != minted {
		return nil
	}
	if m.record.IsStep() && g.Steps[m.record.Step()].Hook == acs.HookSubagentStop {
		return nil
	}
	return g.Parents(g.ProvAt(m.object))
}

// measure sets the depth of every id that the pass mints: 0 without parents outside
// its strongly connected component, else 1 + the largest depth of those.
//
// In most runs each parent is minted before its child, and one pass in mint
// order is enough; the components are searched only where that fails.
func (x *Index) measure() {
	if x.measureInOrder() {
		return
	}
	x.scc.run(x)
}

func (x *Index) measureInOrder() bool {
	for _, id := range x.ids[x.from:] {
		depth := int32(0)
		for _, q := range x.parents(id) {
			if !x.Resolves(q) {
				continue
			}
			d := x.mints.At(q).depth
			if d == unmeasured {
				return false // minted later, or part of a cycle
			}
			depth = max(depth, d+1)
		}
		x.mints.Ref(id).depth = depth
	}
	return true
}

// components finds strongly connected components (Tarjan, without recursion:
// a chain of ids may be as long as a segment) and sets depths as they close,
// which is parents first.
type components struct {
	num   []int32 // by Sym: 0 unvisited, else the visit number
	low   []int32
	stack []segment.Sym
	path  []frame
	next  int32
}

type frame struct {
	id segment.Sym
	at int // next parent to look at
}

func (c *components) run(x *Index) {
	n := x.order.Seg.Syms.Len()
	c.num, c.low = make([]int32, n), make([]int32, n)
	c.stack, c.path, c.next = c.stack[:0], c.path[:0], 0
	for _, id := range x.ids[x.from:] {
		x.mints.Ref(id).depth = unmeasured
	}
	for _, id := range x.ids[x.from:] {
		if c.num[id] == 0 {
			c.visit(x, id)
		}
	}
	*c = components{}
}

func (c *components) visit(x *Index, root segment.Sym) {
	c.enter(root)
	for len(c.path) > 0 {
		f := &c.path[len(c.path)-1]
		parents := x.parents(f.id)
		if f.at < len(parents) {
			q := parents[f.at]
			f.at++
			switch {
			case x.mints.At(q).state != minted || x.mints.At(q).depth != unmeasured: // none, or closed
			case c.num[q] == 0:
				c.enter(q)
			default:
				c.low[f.id] = min(c.low[f.id], c.num[q])
			}
			continue
		}
		id := f.id
		c.path = c.path[:len(c.path)-1]
		if len(c.path) > 0 {
			up := c.path[len(c.path)-1].id
			c.low[up] = min(c.low[up], c.low[id])
		}
		if c.low[id] == c.num[id] {
			c.close(x, id)
		}
	}
}

func (c *components) enter(id segment.Sym) {
	c.next++
	c.num[id], c.low[id] = c.next, c.next
	c.stack = append(c.stack, id)
	c.path = append(c.path, frame{id: id})
}

// close pops the component of root and gives all its ids their depth.
func (c *components) close(x *Index, root segment.Sym) {
	at := len(c.stack)
	for {
		at--
		if c.stack[at] == root {
			break
		}
	}
	members := c.stack[at:]
	depth := int32(0)
	for _, id := range members {
		for _, q := range x.parents(id) {
			if x.Resolves(q) && x.mints.At(q).depth != unmeasured {
				depth = max(depth, x.mints.At(q).depth+1)
			}
		}
	}
	for _, id := range members {
		x.mints.Ref(id).depth = depth
	}
	c.stack = c.stack[:at]
}
