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

// Graph is the DAG of one segment, as far as the passes over its order went (see
// segment.Order). Of the edges it holds those of the last pass: a document is
// written after a single pass over all records. It reuses its storage.
type Graph struct {
	Order *segment.Order
	Index *provenance.Index

	// Nodes is the number of nodes, the segment node included.
	Nodes int32
	// Cuts are the edges that were removed.
	Cuts []Cut

	before      int // nodes of the run before this segment
	segmentNode int32
	nodeOf      []int32 // by position in Order.Refs
	refs        []segment.Ref
	from        int32 // the first node of the pass
	cutsBefore  int
	edges       []edge
	place       []int32 // storage of places

	inferredLineage []bool                      // by step
	inferredCall    []bool                      // by step
	resultOf        segment.Table[int32, int32] // by step that calls: 1 + its result
	callFound       []bool                      // by step that is a result

	b    builder
	base struct {
		nodes, cuts int
		passing     passing
	}
	// Storage of Document.
	asked []int32 // by Sym of a request_id: answers so far
	text  []byte
	syms  []segment.Sym
}

// Build makes the graph of a segment in one pass. order and index are those of
// the same segment and must outlive the graph's use.
func (g *Graph) Build(order *segment.Order, index *provenance.Index) {
	g.Start(order, index)
	g.Pass()
}

// Start readies the graph for the first pass of an order. The first node of a
// later segment stands for the segment before it, where that is remembered and
// gave a DAG.
func (g *Graph) Start(order *segment.Order, index *provenance.Index) {
	g.Order, g.Index = order, index
	g.refs, g.nodeOf, g.Cuts = g.refs[:0], g.nodeOf[:0], g.Cuts[:0]
	g.before, g.segmentNode = 0, noNode
	if m := order.Mem; m != nil {
		g.before = m.Nodes
		if m.DAGID != "" {
			g.segmentNode = 0
			g.refs = append(g.refs, segment.NoRef)
		}
	}
	g.resultOf.Reset(len(order.Seg.Steps))
	g.b.reset(order.Seg.Unnamed)
}

// Keep makes the state the base, as the order's Keep does.
func (g *Graph) Keep() {
	g.base.nodes, g.base.cuts, g.base.passing = len(g.refs), len(g.Cuts), g.b.passing
	g.resultOf.Keep()
	g.b.keep()
}

// Rewind goes back to the base.
func (g *Graph) Rewind() {
	g.refs, g.nodeOf, g.Cuts = g.refs[:g.base.nodes], g.nodeOf[:min(len(g.nodeOf), len(g.Order.Refs))], g.Cuts[:g.base.cuts]
	g.b.passing = g.base.passing
	g.resultOf.Rewind()
	g.b.rewind()
}

// Pass adds the nodes and edges of the order's last pass, and cuts the cycles
// among them: no edge leads from the base to what stands behind it, so no cycle
// does.
func (g *Graph) Pass() {
	g.placeNodes()
	n := len(g.Order.Seg.Steps)
	g.resultOf.Grow(n)
	g.inferredLineage, g.inferredCall, g.callFound = room(g.inferredLineage, n), room(g.inferredCall, n), room(g.callFound, n)
	for _, r := range g.Order.Refs[g.Order.From:] {
		if r.IsStep() {
			i := r.Step()
			g.inferredLineage[i], g.inferredCall[i], g.callFound[i] = false, false, false
		}
	}
	g.edges = g.edges[:0]
	if g.Nodes == 0 {
		return
	}
	g.link()
	if g.Order.Crossed() != segment.NotCrossed {
		return
	}
	slices.Sort(g.edges)
	g.edges = slices.Compact(g.edges)
	g.cutCycles()
}

func room(s []bool, n int) []bool {
	if len(s) >= n {
		return s
	}
	return append(s, make([]bool, n-len(s))...)
}

// placeNodes gives every record of the pass but handshakes a node, in run order.
func (g *Graph) placeNodes() {
	o := g.Order
	g.from, g.cutsBefore = int32(len(g.refs)), len(g.Cuts)
	for _, r := range o.Refs[o.From:] {
		if r.IsStep() && o.Seg.Steps[r.Step()].IsHandshake() {
			g.nodeOf = append(g.nodeOf, noNode)
			continue
		}
		g.nodeOf = append(g.nodeOf, int32(len(g.refs)))
		g.refs = append(g.refs, r)
	}
	g.Nodes = int32(len(g.refs))
	if g.Nodes == 1 && g.segmentNode != noNode {
		g.Nodes = 0 // nothing but the earlier segment
	}
}

// NewCuts are the edges that the last pass removed.
func (g *Graph) NewCuts() []Cut { return g.Cuts[g.cutsBefore:] }

// OwnNodes is the number of nodes that are records of the segment.
func (g *Graph) OwnNodes() int32 {
	if g.segmentNode != noNode && g.Nodes > 0 {
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
	return strconv.AppendInt(b, int64(g.before)+int64(node)+1, 10)
}

// HasResult reports whether a tool call or MCP request has a result.
func (g *Graph) HasResult(step int32) bool { return g.resultOf.At(step) != 0 }

// FoundCall reports whether rule 2 found the call of a result or answer.
func (g *Graph) FoundCall(step int32) bool { return g.callFound[step] }
