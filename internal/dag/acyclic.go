package dag

import "provstream/internal/segment"

// cutCycles removes, in every strongly connected component, the edges whose
// cause stands later in canonical order; for this test a decision stands just
// before its step. What is left goes from later to earlier inside a component,
// so the graph is acyclic (rules.md §7).
func (g *Graph) cutCycles() {
	place := g.places()
	forward := false
	for _, e := range g.edges {
		if e.to() >= g.from && place[e.to()-g.from] > place[e.from()-g.from] {
			forward = true
			break
		}
	}
	if !forward {
		return // every cause stands before its effect
	}
	component := g.components()
	kept := g.edges[:0]
	for _, e := range g.edges {
		if from, to := e.from()-g.from, e.to()-g.from; to >= 0 && component[from] == component[to] && place[to] > place[from] {
			g.Cuts = append(g.Cuts, Cut{From: g.refs[e.from()], ToNode: e.to()})
			continue
		}
		kept = append(kept, e)
	}
	g.edges = kept
}

// places numbers the nodes of the pass, from its first, in the order that the
// test uses.
func (g *Graph) places() []int32 {
	o := g.Order
	g.place = segment.Resize(g.place, int(g.Nodes-g.from))
	next := int32(0)
	put := func(node int32) {
		if node != noNode {
			g.place[node-g.from] = next
			next++
		}
	}
	for pos := o.From; pos < len(o.Refs); {
		r := o.Refs[pos]
		after := pos + 1
		if r.IsStep() {
			for after < len(o.Refs) && !o.Refs[after].IsStep() && o.StepOf[o.Refs[after].Decision()] == r.Step() {
				put(g.nodeOf[after])
				after++
			}
		}
		put(g.nodeOf[pos])
		pos = after
	}
	return g.place
}

// components numbers the strongly connected components of the pass (Tarjan,
// without recursion). Edges are sorted by their from, so a node's edges are a
// range. Nodes are counted from the first of the pass; a cause in the base is in
// no component of the pass.
func (g *Graph) components() []int32 {
	n := int(g.Nodes - g.from)
	first := make([]int32, n+1)
	for _, e := range g.edges {
		first[e.from()-g.from+1]++
	}
	for i := 0; i < n; i++ {
		first[i+1] += first[i]
	}
	t := tarjan{num: make([]int32, n), low: make([]int32, n), component: make([]int32, n), from: g.from}
	for i := range t.component {
		t.component[i] = -1
	}
	for root := range int32(n) {
		if t.num[root] == 0 {
			t.visit(root, first, g.edges)
		}
	}
	return t.component
}

type tarjan struct {
	num, low, component []int32
	stack               []int32
	path                []struct{ node, at int32 }
	visited, closed     int32
	from                int32 // what is counted from
}

func (t *tarjan) enter(v int32, at int32) {
	t.visited++
	t.num[v], t.low[v] = t.visited, t.visited
	t.stack = append(t.stack, v)
	t.path = append(t.path, struct{ node, at int32 }{v, at})
}

func (t *tarjan) visit(root int32, first []int32, edges []edge) {
	t.enter(root, first[root])
	for len(t.path) > 0 {
		f := &t.path[len(t.path)-1]
		v := f.node
		if f.at < first[v+1] {
			w := edges[f.at].to() - t.from
			f.at++
			switch {
			case w < 0:
			case t.num[w] == 0:
				t.enter(w, first[w])
			case t.component[w] < 0:
				t.low[v] = min(t.low[v], t.num[w])
			}
			continue
		}
		t.path = t.path[:len(t.path)-1]
		if len(t.path) > 0 {
			up := t.path[len(t.path)-1].node
			t.low[up] = min(t.low[up], t.low[v])
		}
		if t.low[v] == t.num[v] {
			for {
				w := t.stack[len(t.stack)-1]
				t.stack = t.stack[:len(t.stack)-1]
				t.component[w] = t.closed
				if w == v {
					break
				}
			}
			t.closed++
		}
	}
}
