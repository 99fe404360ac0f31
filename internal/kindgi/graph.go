package kindgi

import (
	"bytes"
	"fmt"
	"strconv"
)

// graph checks what the schema cannot say.
func (r *Reader) graph() *Error {
	if r.Foreign {
		if e := r.indexForeign(); e != nil {
			return e
		}
	} else if e := r.indexNumbered(); e != nil {
		return e
	}
	if e := r.resolveEdges(); e != nil {
		return e
	}
	if e := r.acyclic(); e != nil {
		return e
	}
	if r.Foreign {
		return nil
	}
	return r.claims()
}

// indexNumbered checks the ids <kind>:<n>, numbered without a hole: so they
// are unique, in order, and found by arithmetic.
func (r *Reader) indexNumbered() *Error {
	for i := range r.Nodes {
		n := &r.Nodes[i]
		id, kind := r.Bytes(n.ID), r.Bytes(n.Kind)
		num, ok := int64(0), len(id) > len(kind) && id[len(kind)] == ':' && bytes.HasPrefix(id, kind)
		if ok {
			num, ok = decimal(id[len(kind)+1:])
		}
		if !ok {
			return r.graphError("/nodes/"+strconv.Itoa(i)+"/id", "node id %q is not its kind %q and a number", r.Text(n.ID), r.Text(n.Kind))
		}
		switch {
		case i == 0:
			r.first = num
		case num != r.first+int64(i):
			return r.graphError("/nodes/"+strconv.Itoa(i)+"/id", "node %q stands where number %d belongs: a node was dropped, repeated, inserted or moved", r.Text(n.ID), r.first+int64(i))
		}
	}
	return nil
}

// decimal reads a positive number without leading zeros.
func decimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 15 || b[0] == '0' {
		return 0, false
	}
	n := int64(0)
	for _, c := range b {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = 10*n + int64(c)
	}
	return n, true
}

func (r *Reader) indexForeign() *Error {
	if r.byID == nil {
		r.byID = make(map[string]int32, len(r.Nodes))
	}
	clear(r.byID)
	for i := range r.Nodes {
		id := r.Bytes(r.Nodes[i].ID)
		if at, twice := r.byID[string(id)]; twice {
			return r.graphError("/nodes/"+strconv.Itoa(i)+"/id", "node id %q is that of node %d too", r.Text(r.Nodes[i].ID), at)
		}
		r.byID[string(id)] = int32(i)
	}
	return nil
}

// find returns the position of the node with that id, or -1.
func (r *Reader) find(id []byte) int32 {
	if r.Foreign {
		if i, ok := r.byID[string(id)]; ok {
			return i
		}
		return -1
	}
	colon := len(id) - 1
	for colon >= 0 && id[colon]-'0' <= 9 {
		colon--
	}
	num, ok := decimal(id[colon+1:])
	if num -= r.first; !ok || num < 0 || num >= int64(len(r.Nodes)) || !bytes.Equal(r.Bytes(r.Nodes[num].ID), id) {
		return -1
	}
	return int32(num)
}

func (r *Reader) resolveEdges() *Error {
	for i := range r.Edges {
		e := &r.Edges[i]
		if i > 0 && bytes.Equal(r.Bytes(r.Edges[i-1].from), r.Bytes(e.from)) {
			e.From = r.Edges[i-1].From
		} else if e.From = r.find(r.Bytes(e.from)); e.From < 0 {
			return r.graphError("/edges/"+strconv.Itoa(i)+"/from", "edge from %q: there is no such node", r.Text(e.from))
		}
		if e.To = r.find(r.Bytes(e.to)); e.To < 0 {
			return r.graphError("/edges/"+strconv.Itoa(i)+"/to", "edge to %q: there is no such node", r.Text(e.to))
		}
		if e.From == e.To {
			return r.graphError("/edges/"+strconv.Itoa(i), "edge from %q onto itself", r.Text(e.from))
		}
		if i == 0 || r.Foreign {
			continue
		}
		c := compareEdges(&r.Edges[i-1], e)
		switch {
		case c == 0:
			return r.graphError("/edges/"+strconv.Itoa(i), "edge %s → %s (%s) stands there twice", r.Text(e.from), r.Text(e.to), e.Kind())
		case c > 0:
			return r.graphError("/edges/"+strconv.Itoa(i), "edge %s → %s (%s) is out of order", r.Text(e.from), r.Text(e.to), e.Kind())
		}
	}
	return nil
}

func compareEdges(a, b *Edge) int {
	if a.From != b.From {
		return int(a.From) - int(b.From)
	}
	if a.To != b.To {
		return int(a.To) - int(b.To)
	}
	return int(a.kind) - int(b.kind)
}

// acyclic removes nodes that nothing open depends on, effects first (Kahn).
// Where every cause stands before its effect there is nothing to do.
func (r *Reader) acyclic() *Error {
	forward := false
	for i := range r.Edges {
		if r.Edges[i].To > r.Edges[i].From {
			forward = true
			break
		}
	}
	if !forward {
		return nil
	}
	n := len(r.Nodes)
	r.degree = grow(r.degree, n)
	r.outOf = grow(r.outOf, n+1)
	for i := range r.Edges {
		r.degree[r.Edges[i].To]++
		r.outOf[r.Edges[i].From+1]++
	}
	for i := range n {
		r.outOf[i+1] += r.outOf[i]
	}
	edges := r.byFrom()
	r.queue = r.queue[:0]
	for i := n - 1; i >= 0; i-- {
		if r.degree[i] == 0 {
			r.queue = append(r.queue, int32(i))
		}
	}
	for done := 0; done < len(r.queue); done++ {
		from := r.queue[done]
		out := edges[r.outOf[from]:r.outOf[from+1]]
		for i := range out {
			to := out[i].To
			if r.degree[to]--; r.degree[to] == 0 {
				r.queue = append(r.queue, to)
			}
		}
	}
	if len(r.queue) == n {
		return nil
	}
	for i := range n {
		if r.degree[i] > 0 {
			return r.graphError("/nodes/"+strconv.Itoa(i), "node %q is in a cycle or a cause of one", r.Text(r.Nodes[i].ID))
		}
	}
	return nil
}

// byFrom returns the edges grouped by where they begin, which those of a DAG of
// ours are.
func (r *Reader) byFrom() []Edge {
	if !r.Foreign {
		return r.Edges
	}
	at := make([]int32, len(r.Nodes))
	copy(at, r.outOf)
	edges := make([]Edge, len(r.Edges))
	for i := range r.Edges {
		e := &r.Edges[i]
		edges[at[e.From]] = *e
		at[e.From]++
	}
	return edges
}

func grow(s []int32, n int) []int32 {
	if cap(s) < n {
		return make([]int32, n, n+n/2)
	}
	s = s[:n]
	clear(s)
	return s
}

// claims checks that the graph holds what attributes and ids say about it.
func (r *Reader) claims() *Error {
	id, run := r.Bytes(r.ID), r.Bytes(r.RunID)
	if !dagIDOf(id, run) {
		return r.graphError("/id", "id %q is not the runId %q, a dot and 32 hexadecimal digits", r.Text(r.ID), r.Text(r.RunID))
	}
	e := 0
	for i := range r.Nodes {
		n := &r.Nodes[i]
		first := e
		for e < len(r.Edges) && int(r.Edges[e].From) == i {
			e++
		}
		if string(r.Bytes(n.Lineage)) == `"inferred"` && !hasKind(r.Edges[first:e], "influenced-by") {
			return r.graphError("/nodes/"+strconv.Itoa(i), "node %q says that its lineage is inferred, and no influenced-by edge leaves it", r.Text(n.ID))
		}
		if string(r.Bytes(n.Call)) == `"inferred"` && !hasKind(r.Edges[first:e], "produced") {
			return r.graphError("/nodes/"+strconv.Itoa(i), "node %q says that its call is inferred, and no produced edge leaves it", r.Text(n.ID))
		}
		if n.Segment.End > n.Segment.Start || n.DAGID.End > n.DAGID.Start {
			if err := r.segmentNode(i, n); err != nil {
				return err
			}
		}
	}
	return nil
}

func hasKind(edges []Edge, kind string) bool {
	for i := range edges {
		if edges[i].Kind() == kind {
			return true
		}
	}
	return false
}

// segmentNode stands for an earlier segment of the run: it comes first, and
// its contentHash is the hash that the id of that segment's DAG begins with.
func (r *Reader) segmentNode(i int, n *Node) *Error {
	path := "/nodes/" + strconv.Itoa(i)
	raw := r.Bytes(n.DAGID)
	if i != 0 || string(r.Bytes(n.Kind)) != "artifact" {
		return r.graphError(path, "node %q stands for an earlier segment and is not an artifact at the first place", r.Text(n.ID))
	}
	if n.Segment.End == n.Segment.Start || len(raw) < 2 || raw[0] != '"' || !dagIDOf(raw[1:len(raw)-1], r.Bytes(r.RunID)) {
		return r.graphError(path+"/attributes/dag_id", "node %q names no DAG of this run", r.Text(n.ID))
	}
	hash := r.Bytes(n.ContentHash)
	if len(hash) != 71 || !bytes.Equal(hash[7:7+32], raw[len(raw)-1-32:len(raw)-1]) {
		return r.graphError(path+"/contentHash", "node %q: its contentHash is not that of the DAG %s", r.Text(n.ID), unescape(raw[1:len(raw)-1]))
	}
	return nil
}

// dagIDOf tells whether id is run, a dot and 32 hexadecimal digits.
func dagIDOf(id, run []byte) bool {
	return len(id) == len(run)+33 && bytes.HasPrefix(id, run) && id[len(run)] == '.' && isHex(id[len(run)+1:])
}

func (r *Reader) graphError(path, format string, args ...any) *Error {
	return &Error{Class: ClassGraph, Path: path, Detail: fmt.Sprintf(format, args...)}
}
