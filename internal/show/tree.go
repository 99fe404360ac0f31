package show

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Style says how text is written.
type Style struct {
	Color bool // ANSI colours
	// MaxNodes cuts a tree; 0 draws everything.
	MaxNodes int
}

// ANSI colours by meaning.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	cyan   = "36"
)

func (s Style) paint(color, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// branch is a turn, or the run itself, with what belongs to it in order.
type branch struct {
	start *Node // its turnStart; nil for the run
	turn  string
	items []item
}

// item is a node or a nested turn.
type item struct {
	node int
	sub  *branch
}

// outline sorts the nodes into turns. A turn stands in its parent turn, which
// the edge between their turnStarts names, else in the run; decisions stand
// beside their step.
func (r *Run) outline() (*branch, map[int][]int) {
	decisions := map[int][]int{}
	beside := map[int]bool{}
	for from := range r.out {
		for _, h := range r.out[from] {
			if h.kind == "checked-against" {
				decisions[from] = append(decisions[from], h.to)
				beside[h.to] = true
			}
		}
	}
	root := &branch{}
	turns := map[string]*branch{}
	for i, n := range r.Nodes {
		if beside[i] {
			continue
		}
		t := n.Attributes.TurnID
		if t == "" {
			root.items = append(root.items, item{node: i})
			continue
		}
		b := turns[t]
		if b == nil {
			b = &branch{turn: t}
			turns[t] = b
			parent := root
			if n.Attributes.Method == methodTurnStart {
				b.start = n
				for _, h := range r.out[i] {
					p := r.Nodes[h.to].Attributes
					if p.Method == methodTurnStart && p.TurnID != t && turns[p.TurnID] != nil {
						parent = turns[p.TurnID]
					}
				}
			}
			parent.items = append(parent.items, item{sub: b})
		}
		b.items = append(b.items, item{node: i})
	}
	return root, decisions
}

// Tree writes the run as a tree by turn.
func (r *Run) Tree(w io.Writer, s Style) error {
	t := &treeWriter{run: r, style: s, left: s.MaxNodes}
	var root *branch
	root, t.decisions = r.outline()
	t.head()
	t.branch(root, "")
	if t.cut > 0 {
		fmt.Fprintf(&t.b, "%s\n", s.paint(dim, fmt.Sprintf("… and %d more nodes", t.cut)))
	}
	_, err := io.WriteString(w, t.b.String())
	return err
}

type treeWriter struct {
	run       *Run
	style     Style
	b         strings.Builder
	decisions map[int][]int
	left, cut int
}

func (t *treeWriter) head() {
	r := t.run
	turns := map[string]bool{}
	for _, n := range r.Nodes {
		if id := n.Attributes.TurnID; id != "" {
			turns[id] = true
		}
	}
	fmt.Fprintf(&t.b, "%s  tenant %s\n", t.style.paint(bold, "run "+r.ID), r.Tenant)
	if n := len(r.Nodes); n > 0 {
		// The nodes of a later segment may tell of earlier times.
		first, last := r.Nodes[0].Timestamp, r.Nodes[0].Timestamp
		for i := range r.Nodes {
			first, last = min(first, r.Nodes[i].Timestamp), max(last, r.Nodes[i].Timestamp)
		}
		fmt.Fprintf(&t.b, "%s to %s, %d nodes, %d edges, %d turns\n", first, last, n, len(r.Edges), len(turns))
	}
	for _, d := range r.DAGs {
		signed := "not signed"
		if d.Signature != nil {
			signed = "signed with key " + d.Signature.KeyID
		}
		fmt.Fprintf(&t.b, "%s\n", t.style.paint(dim, "DAG "+d.ID+", "+signed))
	}
	found := r.anomalies()
	if len(found) == 0 {
		fmt.Fprintf(&t.b, "%s\n", t.style.paint(green, "nothing found"))
		return
	}
	var list []string
	for _, c := range slices.Sorted(maps.Keys(found)) {
		list = append(list, fmt.Sprintf("%s on %d", c, found[c]))
	}
	fmt.Fprintf(&t.b, "%s\n", t.style.paint(red, "found: "+strings.Join(list, ", ")))
}

func (t *treeWriter) branch(b *branch, indent string) {
	for i, it := range b.items {
		tee, under := "├─ ", "│  "
		if i == len(b.items)-1 {
			tee, under = "└─ ", "   "
		}
		if it.sub != nil && t.style.MaxNodes > 0 && t.left == 0 {
			t.cut += it.sub.size()
			continue
		}
		if it.sub != nil {
			fmt.Fprintf(&t.b, "%s%s%s\n", indent, tee, t.style.paint(bold, t.turnLine(it.sub)))
			t.branch(it.sub, indent+under)
			continue
		}
		if t.style.MaxNodes > 0 {
			if t.left == 0 {
				t.cut++
				continue
			}
			t.left--
		}
		fmt.Fprintf(&t.b, "%s%s%s\n", indent, tee, t.nodeLine(it.node))
	}
}

// size is the number of nodes in a branch.
func (b *branch) size() int {
	n := 0
	for _, it := range b.items {
		if it.sub != nil {
			n += it.sub.size()
		} else {
			n++
		}
	}
	return n
}

func (t *treeWriter) turnLine(b *branch) string {
	line := "turn " + b.turn
	for _, it := range slices.Backward(b.items) {
		if it.sub == nil {
			if a := t.run.Nodes[it.node].Attributes; a.Method == "steps/turnEnd" {
				return line + "  " + a.Outcome
			}
		}
	}
	return line
}

// nodeLine is a node with what was found beside it.
func (t *treeWriter) nodeLine(i int) string {
	n := t.run.Nodes[i]
	s := t.style
	parts := []string{s.paint(cyan, n.ID), label(n)}
	if n.Attributes.Segment != nil {
		parts = append(parts, s.paint(dim, n.Attributes.DAGID))
	}
	parts = append(parts, s.paint(dim, clock(n.Timestamp)))
	if len(n.Attributes.Origins) > 0 {
		origins := strings.Join(n.Attributes.Origins, ",")
		if d := n.Attributes.LineageDepth; d != nil {
			origins += fmt.Sprintf(" depth %d", *d)
		}
		parts = append(parts, "["+origins+"]")
	}
	if n.Attributes.Lineage == "inferred" {
		parts = append(parts, s.paint(yellow, "lineage inferred"))
	}
	if n.Attributes.Call == "inferred" {
		parts = append(parts, s.paint(yellow, "call inferred"))
	}
	for _, d := range t.decisions[i] {
		parts = append(parts, t.verdict(t.run.Nodes[d]))
	}
	if n.Kind == kindDecision {
		parts = append(parts, t.verdict(n))
	}
	if n.Attributes.Rejected != "" {
		parts = append(parts, s.paint(red, "rejected: "+n.Attributes.Rejected))
	}
	if len(n.Attributes.Anomalies) > 0 && n.Kind != kindDecision {
		parts = append(parts, s.paint(red, "! "+strings.Join(n.Attributes.Anomalies, " ")))
	}
	return strings.Join(parts, "  ")
}

// verdict is a decision beside its step.
func (t *treeWriter) verdict(n *Node) string {
	a := n.Attributes
	text, color := a.Decision, yellow
	switch {
	case a.Decision == "allow":
		color = green
	case a.Decision == "deny":
		color = red
	case a.ErrorCode != "":
		text, color = "error "+a.ErrorCode.String(), red
	case a.Rejected != "":
		text, color = "rejected: "+a.Rejected, red
	}
	if len(a.ReasonCodes) > 0 {
		text += " (" + strings.Join(a.ReasonCodes, ",") + ")"
	}
	if len(a.Anomalies) > 0 {
		text += " ! " + strings.Join(a.Anomalies, " ")
		color = red
	}
	return t.style.paint(color, "→ "+text)
}

// label says what a node is: its ACS method without the prefix, and what it is
// about.
func label(n *Node) string {
	a := n.Attributes
	name := strings.TrimPrefix(a.Method, "steps/")
	switch {
	case name != "":
	case n.Kind == kindDecision:
		name = "decision"
	case a.Segment != nil:
		name = fmt.Sprintf("segment %d", *a.Segment)
	default:
		name = n.Kind
	}
	for _, about := range []string{a.Tool, a.SkillID, a.Subagent} {
		if about != "" {
			name += " " + about
			break
		}
	}
	switch {
	case a.ExitStatus != "" && a.ExitStatus != "success":
		name += " (" + a.ExitStatus + ")"
	case a.Outcome != "":
		name += " (" + a.Outcome + ")"
	}
	return name
}

// clock is the time of day of an RFC 3339 timestamp.
func clock(ts string) string {
	t, err := time.Parse(time.RFC3339Nano, ts)
	if err != nil {
		return ts
	}
	return t.UTC().Format("15:04:05.000")
}
