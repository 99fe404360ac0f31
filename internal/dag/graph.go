// Package dag builds the causal DAG of a segment (Kindgi Provenance DAG,
// schema 1.0.0): its nodes, the edges of rules 1 to 8, the cut of every cycle,
// and its canonical bytes.
//
// Edges point from effect to cause. The DAG is a function of the segment's
// records, of what is kept of the run's earlier segments, and of the clock at
// the seal (rules.md §7).
//
// The package is pure: no Kafka, clock, logger or goroutine.
package dag

import (
	"slices"
	"strconv"

	"provstream/internal/provenance"
	"provstream/internal/segment"
)

// edge is from<<36 | to<<8 | kind: sorting edges is sorting numbers.
type edge uint64

func makeEdge(from, to int32, kind EdgeKind) edge {
	return edge(from)<<36 | edge(to)<<8 | edge(kind)
}

func (e edge) from() int32    { return int32(e >> 36) }
func (e edge) to() int32      { return int32(e >> 8 & (1<<28 - 1)) }
func (e edge) kind() EdgeKind { return EdgeKind(e) }

// noNode is the position of what has no node.
const noNode int32 = -1

// Cut is an edge that was taken out because it closed a cycle.
type Cut struct {
	From   segment.Ref
	ToNode int32 // position of the removed cause
}

// Graph is the DAG of one segment. A Graph reuses its storage from Build to
// Build.
type Graph struct {
	Order *segment.Order
	Index *provenance.Index

	// Nodes is the number of nodes, the segment node included.
	Nodes int32
	// Cuts are the edges that were removed.
	Cuts []Cut

	base        int // nodes of the run before this segment
	segmentNode int32
	nodeOf      []int32 // by position in Order.Refs
	refs        []segment.Ref
	edges       []edge

	inferredLineage []bool  // by step
	inferredCall    []bool  // by step
	resultOf        []int32 // by step that calls: 1 + its result
	callFound       []bool  // by step that is a result

	b    builder
	text []byte // storage of Document
	syms []segment.Sym
}

// Build makes the graph of a segment. order and index are those of the same
// segment and must outlive the graph's use.
func (g *Graph) Build(order *segment.Order, index *provenance.Index) {
	g.Order, g.Index = order, index
	g.placeNodes()
	n := len(order.Seg.Steps)
	g.inferredLineage = segment.Resize(g.inferredLineage, n)
	g.inferredCall = segment.Resize(g.inferredCall, n)
	g.resultOf = segment.Resize(g.resultOf, n)
	g.callFound = segment.Resize(g.callFound, n)
	g.edges, g.Cuts = g.edges[:0], g.Cuts[:0]
	if g.Nodes == 0 {
		return
	}
	g.link()
	slices.Sort(g.edges)
	g.edges = slices.Compact(g.edges)
	g.cutCycles()
}

// placeNodes gives every record but handshakes a node, in run order. The first
// node of a later segment stands for the segment before it, where that is
// remembered and gave a DAG.
func (g *Graph) placeNodes() {
	o := g.Order
	g.nodeOf = segment.Resize(g.nodeOf, len(o.Refs))
	g.refs = g.refs[:0]
	g.base, g.segmentNode = 0, noNode
	if o.Mem != nil {
		g.base = o.Mem.Nodes
		if o.Mem.DAGID != "" {
			g.segmentNode = 0
			g.refs = append(g.refs, segment.NoRef)
		}
	}
	own := false
	for pos, r := range o.Refs {
		if r.IsStep() && o.Seg.Steps[r.Step()].IsHandshake() {
			g.nodeOf[pos] = noNode
			continue
		}
		own = true
		g.nodeOf[pos] = int32(len(g.refs))
		g.refs = append(g.refs, r)
	}
	if !own {
		g.refs, g.segmentNode = g.refs[:0], noNode
	}
	g.Nodes = int32(len(g.refs))
}

// OwnNodes is the number of nodes that are records of the segment.
func (g *Graph) OwnNodes() int32 {
	if g.segmentNode != noNode {
		return g.Nodes - 1
	}
	return g.Nodes
}

// Edges is the number of edges.
func (g *Graph) Edges() int { return len(g.edges) }

// node returns the position of a record's node, noNode for a handshake.
func (g *Graph) node(r segment.Ref) int32 { return g.nodeOf[g.Order.Pos(r)] }

// kind returns the kind of the node at a position.
func (g *Graph) kind(node int32) NodeKind {
	switch r := g.refs[node]; {
	case r == segment.NoRef:
		return Artifact
	case r.IsStep():
		return KindOf(g.Order.Seg, &g.Order.Seg.Steps[r.Step()])
	}
	return PolicyDecision
}

// AppendNodeID appends the id of the node at a position: <kind>:<n>, n being
// its place in the run, from 1.
func (g *Graph) AppendNodeID(b []byte, node int32) []byte {
	b = append(b, g.kind(node).String()...)
	b = append(b, ':')
	return strconv.AppendInt(b, int64(g.base)+int64(node)+1, 10)
}

// HasResult reports whether a tool call or MCP request has a result.
func (g *Graph) HasResult(step int32) bool { return g.resultOf[step] != 0 }

// FoundCall reports whether rule 2 found the call of a result or answer.
func (g *Graph) FoundCall(step int32) bool { return g.callFound[step] }
