package reference

import "provstream/internal/acs"

// mint is where an id of this segment comes from: its first unskewed carrier,
// else its first, and that carrier's first object of the id.
type mint struct {
	at    *item
	first acs.Provenance
}

func (a *analysis) findMints() {
	for _, it := range a.items {
		for _, o := range it.objects() {
			if a.past.ids[o.ID] != nil {
				continue // minted in an earlier segment
			}
			m := a.mints[o.ID]
			if m == nil || m.at.Skewed && !it.Skewed {
				a.mints[o.ID] = &mint{at: it, first: o}
			}
		}
	}
}

// resolves reports whether an id has a mint, here or in what is remembered.
func (a *analysis) resolves(id string) bool {
	return a.past.ids[id] != nil || a.mints[id] != nil
}

// source is the node where an id comes from (nil if nowhere, or in a segment
// without a node) and how an edge to it is called.
func (a *analysis) source(id string) (*item, string) {
	if m := a.past.ids[id]; m != nil {
		if m.retrieval {
			return a.segmentNode, "retrieved-from"
		}
		return a.segmentNode, "influenced-by"
	}
	m := a.mints[id]
	if m == nil {
		return nil, ""
	}
	if isRetrieval(m.at) {
		return m.at, "retrieved-from"
	}
	return m.at, "influenced-by"
}

func isRetrieval(it *item) bool {
	k := nodeKind(it)
	return k == "retrieval" || k == "memory-read"
}

// parents of an id of this segment: the derived_from of its mint's first
// object that resolve; an id of a subagentStop has none here, its parents are
// ids of the child session.
func (a *analysis) parents(id string) []string {
	m := a.mints[id]
	if m == nil || m.at.hook == acs.HookSubagentStop {
		return nil
	}
	var out []string
	for _, q := range sortedSet(m.first.DerivedFrom) {
		if a.resolves(q) {
			out = append(out, q)
		}
	}
	return out
}

// findDepths: ids that reach each other count as one; depth is 0 without
// parents outside, else 1 + the largest depth of those.
func (a *analysis) findDepths() {
	var names []string
	for id := range a.mints {
		names = append(names, id)
	}
	component := map[string]int{}
	for n, members := range components(names, a.parents) { // causes before effects
		depth := 0
		for _, id := range members {
			component[id] = n
		}
		for _, id := range members {
			for _, q := range a.parents(id) {
				if c, here := component[q]; here && c == n {
					continue
				}
				depth = max(depth, 1+a.depth(q))
			}
		}
		for _, id := range members {
			a.depths[id] = depth
		}
	}
	for _, it := range a.items {
		for _, id := range it.ids() {
			it.depth = max(it.depth, a.depth(id))
		}
	}
}

// depth of an id that resolves.
func (a *analysis) depth(id string) int {
	if m := a.past.ids[id]; m != nil {
		return m.depth
	}
	return a.depths[id]
}

// components are the strongly connected components of the graph that next
// spans over names, each after those it leads to (Tarjan). A successor that is
// no name of the graph may be returned as a component of its own.
func components[T comparable](names []T, next func(T) []T) [][]T {
	index, low := map[T]int{}, map[T]int{}
	onStack := map[T]bool{}
	var stack []T
	var out [][]T
	var visit func(v T)
	visit = func(v T) {
		index[v], low[v] = len(index)+1, len(index)+1
		stack, onStack[v] = append(stack, v), true
		for _, w := range next(v) {
			if index[w] == 0 {
				visit(w)
				low[v] = min(low[v], low[w])
			} else if onStack[w] {
				low[v] = min(low[v], index[w])
			}
		}
		if low[v] != index[v] {
			return
		}
		var members []T
		for {
			w := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			onStack[w] = false
			members = append(members, w)
			if w == v {
				break
			}
		}
		out = append(out, members)
	}
	for _, v := range names {
		if index[v] == 0 {
			visit(v)
		}
	}
	return out
}
