package show

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"provstream/internal/acs"
)

// dataEdges are the kinds of edge along which data flows. The others tell of
// control: who started, called or checked what.
var dataEdges = map[string]bool{"influenced-by": true, "retrieved-from": true, "produced": true}

// sources are the kinds of node where data enters a run; an earlier segment
// stands for everything in it.
var sources = map[string]bool{"input": true, "retrieval": true, "memory-read": true, "tool-result": true, "prompt": true}

// Path leads from the explained node to one of its sources. Edges[i] joins
// Nodes[i] and Nodes[i+1].
type Path struct {
	Source string   `json:"source"`
	Kind   string   `json:"kind"`
	Nodes  []string `json:"nodes"`
	Edges  []string `json:"edges"`
	// Inferred: a step of the path declares no lineage, and the edge says only
	// what the model may have seen.
	Inferred bool `json:"inferred,omitempty"`
}

// Explanation is why a node depends on its sources.
type Explanation struct {
	Node    string   `json:"node"`
	Origins []string `json:"origins"` // that reach the node, its own included
	Paths   []Path   `json:"paths"`   // one a source, the shortest; shortest first
	// Reached is the number of nodes that the data of the node comes from.
	Reached int `json:"reached"`
}

// Explain finds for each source that reaches a node the shortest path to it.
func (r *Run) Explain(name string) (*Explanation, error) {
	start, err := r.lookup(name)
	if err != nil {
		return nil, err
	}
	before := make([]half, len(r.Nodes)) // the step before on the shortest path
	seen := make([]bool, len(r.Nodes))
	seen[start] = true
	order := []int{start}
	for at := 0; at < len(order); at++ { // breadth first: the first way found is a shortest
		for _, h := range r.out[order[at]] {
			if dataEdges[h.kind] && !seen[h.to] {
				seen[h.to] = true
				before[h.to] = half{order[at], h.kind}
				order = append(order, h.to)
			}
		}
	}
	e := &Explanation{Node: r.Nodes[start].ID, Origins: []string{}, Paths: []Path{}, Reached: len(order) - 1}
	origins := map[string]bool{}
	for _, i := range order {
		n := r.Nodes[i]
		for _, o := range n.Attributes.Origins {
			origins[o] = true
		}
		if i != start && (sources[n.Kind] || n.Attributes.Segment != nil) {
			e.Paths = append(e.Paths, r.path(start, i, before))
		}
	}
	for o := acs.OriginUserInput; o < acs.OriginCount; o++ {
		if origins[o.String()] {
			e.Origins = append(e.Origins, o.String())
		}
	}
	return e, nil
}

func (r *Run) path(start, end int, before []half) Path {
	p := Path{Source: r.Nodes[end].ID, Kind: r.Nodes[end].Kind, Nodes: []string{r.Nodes[end].ID}}
	for i := end; i != start; {
		h := before[i]
		p.Nodes = append(p.Nodes, r.Nodes[h.to].ID)
		p.Edges = append(p.Edges, h.kind)
		if r.Nodes[h.to].Attributes.Lineage == "inferred" {
			p.Inferred = true
		}
		i = h.to
	}
	slices.Reverse(p.Nodes)
	slices.Reverse(p.Edges)
	return p
}

// Text writes the explanation for people; at most limit paths, 0 is all.
func (r *Run) Text(w io.Writer, e *Explanation, limit int, s Style) error {
	var b strings.Builder
	n := r.Nodes[r.byID[e.Node]]
	fmt.Fprintf(&b, "%s  %s  %s\n", s.paint(cyan, n.ID), label(n), s.paint(dim, n.Timestamp))
	fmt.Fprintf(&b, "origins that reach it: %s\n", orNone(strings.Join(e.Origins, ", ")))
	fmt.Fprintf(&b, "its data comes from %d nodes; %d of them are sources\n", e.Reached, len(e.Paths))
	for i, p := range e.Paths {
		if limit > 0 && i == limit {
			fmt.Fprintf(&b, "%s\n", s.paint(dim, fmt.Sprintf("… and %d more", len(e.Paths)-i)))
			break
		}
		src := r.Nodes[r.byID[p.Source]]
		about := strings.Join(src.Attributes.SourceIDs, ",")
		if about != "" {
			about = " (" + about + ")"
		}
		note := ""
		if p.Inferred {
			note = "  " + s.paint(yellow, "inferred")
		}
		fmt.Fprintf(&b, "\n%s  %s%s%s\n", s.paint(bold, p.Source), label(src), about, note)
		for k, kind := range p.Edges {
			fmt.Fprintf(&b, "  %s%s %s %s\n", strings.Repeat("  ", k), p.Nodes[k], s.paint(dim, "─ "+kind+" →"), p.Nodes[k+1])
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}
