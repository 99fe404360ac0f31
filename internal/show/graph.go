package show

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// edgeStyle says how an edge is drawn: data lineage solid, control dotted.
var mermaidArrow = map[string]string{
	"retrieved-from": "-->", "influenced-by": "-->", "produced": "==>",
	"caused-by": "-.->", "invoked": "-.->", "checked-against": "-.->",
}

// mermaidShape are the brackets of a node by kind.
var mermaidShape = map[string][2]string{
	"input": {"([", "])"}, "model-output": {"[", "]"}, "retrieval": {"[(", ")]"}, "memory-read": {"[(", ")]"}, "memory-write": {"[(", ")]"},
	"tool-call": {"[/", "/]"}, "tool-result": {"[\\", "\\]"}, kindDecision: {"{{", "}}"}, "artifact": {"[[", "]]"},
}

// Mermaid writes the run as a Mermaid flowchart, turns as subgraphs.
func (r *Run) Mermaid(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintln(b, "flowchart BT")
	turns := 0
	r.grouped(func(turn string) {
		turns++
		fmt.Fprintf(b, "  subgraph turn%d[\"turn %s\"]\n", turns, mermaidText(short(turn)))
	}, func(i int, inside bool) {
		n := r.Nodes[i]
		shape, ok := mermaidShape[n.Kind]
		if !ok {
			shape = [2]string{"(", ")"}
		}
		indent := "  "
		if inside {
			indent = "    "
		}
		fmt.Fprintf(b, "%sn%d%s\"%s<br/>%s\"%s\n", indent, i, shape[0], mermaidText(n.ID), mermaidText(caption(n)), shape[1])
		if len(n.Attributes.Anomalies) > 0 || n.Attributes.Rejected != "" {
			fmt.Fprintf(b, "%sclass n%d found\n", indent, i)
		}
	}, func() { fmt.Fprintln(b, "  end") })
	r.eachEdge(func(from, to int, kind string) {
		arrow := mermaidArrow[kind]
		if arrow == "" {
			arrow = "-.->"
		}
		fmt.Fprintf(b, "  n%d %s|%s| n%d\n", from, arrow, kind, to)
	})
	fmt.Fprintln(b, "  classDef found stroke:#c0392b,stroke-width:3px")
	return b.Flush()
}

// DOT writes the run for Graphviz, turns as clusters.
func (r *Run) DOT(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "digraph %s {\n  rankdir=BT; node [shape=box, fontname=\"sans-serif\", fontsize=10]; edge [fontname=\"sans-serif\", fontsize=8];\n", dotText(r.ID))
	r.grouped(func(turn string) {
		fmt.Fprintf(b, "  subgraph %s {\n    label=%s;\n", dotText("cluster_"+turn), dotText("turn "+short(turn)))
	}, func(i int, inside bool) {
		n := r.Nodes[i]
		more := ""
		if len(n.Attributes.Anomalies) > 0 || n.Attributes.Rejected != "" {
			more = ", color=red, penwidth=2"
		}
		fmt.Fprintf(b, "    n%d [label=%s%s];\n", i, dotText(n.ID+"\n"+caption(n)), more)
	}, func() { fmt.Fprintln(b, "  }") })
	r.eachEdge(func(from, to int, kind string) {
		style := ""
		if mermaidArrow[kind] == "-.->" {
			style = ", style=dashed"
		}
		fmt.Fprintf(b, "  n%d -> n%d [label=%s%s];\n", from, to, dotText(kind), style)
	})
	fmt.Fprintln(b, "}")
	return b.Flush()
}

// JSON writes the run as one document: its segments joined, nodes and edges as
// in the DAGs.
func (r *Run) JSON() any {
	ids := make([]string, len(r.DAGs))
	for i, d := range r.DAGs {
		ids[i] = d.ID
	}
	return map[string]any{
		"run_id": r.ID, "tenant_id": r.Tenant, "dag_ids": ids, "nodes": r.Nodes, "edges": r.Edges, "anomalies": r.anomalies(),
	}
}

// grouped visits the nodes turn by turn: open, its nodes, end; first those
// without a turn.
func (r *Run) grouped(open func(turn string), node func(i int, inside bool), end func()) {
	var turns []string
	members := map[string][]int{}
	// A decision has no turn of its own and stands in that of its step.
	turnOf := make([]string, len(r.Nodes))
	for i, n := range r.Nodes {
		turnOf[i] = n.Attributes.TurnID
	}
	r.eachEdge(func(from, to int, kind string) {
		if kind == "checked-against" && turnOf[to] == "" {
			turnOf[to] = turnOf[from]
		}
	})
	for i, t := range turnOf {
		if t == "" {
			node(i, false)
			continue
		}
		if members[t] == nil {
			turns = append(turns, t)
		}
		members[t] = append(members[t], i)
	}
	for _, t := range turns {
		open(t)
		for _, i := range members[t] {
			node(i, true)
		}
		end()
	}
}

func (r *Run) eachEdge(f func(from, to int, kind string)) {
	for from := range r.out {
		for _, h := range r.out[from] {
			f(from, h.to, h.kind)
		}
	}
}

// caption is what stands under a node's id.
func caption(n *Node) string {
	text := label(n)
	if n.Kind == kindDecision {
		text = n.Attributes.Decision
	}
	if len(n.Attributes.Anomalies) > 0 {
		text += " ! " + strings.Join(n.Attributes.Anomalies, " ")
	}
	return text
}

func short(id string) string {
	if len(id) > 8 {
		return id[:8]
	}
	return id
}

// mermaidText escapes what Mermaid takes for markup inside quotation marks.
func mermaidText(s string) string {
	return strings.NewReplacer(`"`, "#quot;", "<", "#lt;", ">", "#gt;", "#", "#35;", "\n", " ", "`", "#96;").Replace(s)
}

func dotText(s string) string {
	text, _ := json.Marshal(s) // of a string it cannot fail
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(text))
}
