// Package show draws one run from its DAGs: as a tree by turn, as a Mermaid or
// Graphviz graph, and as the answer to why an output depends on its sources. It
// is pure: DAG JSON in, text out. It checks nothing but what it needs to draw;
// package verify does that.
package show

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Node is a node of the Kindgi DAG with the attributes that are drawn.
type Node struct {
	ID               string     `json:"id"`
	Kind             string     `json:"kind"`
	Actor            string     `json:"actor,omitempty"`
	Timestamp        string     `json:"timestamp"`
	ContentHash      string     `json:"contentHash,omitempty"`
	ContentRef       string     `json:"contentRef,omitempty"`
	ModelVersion     string     `json:"modelVersion,omitempty"`
	PolicyDecisionID string     `json:"policyDecisionId,omitempty"`
	Attributes       Attributes `json:"attributes"`

	raw json.RawMessage // the node as it stands in the DAG
}

// UnmarshalJSON keeps the text of the node beside what is drawn of it.
func (n *Node) UnmarshalJSON(text []byte) error {
	type plain Node
	var p plain
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	*n = Node(p)
	n.raw = slices.Clone(text)
	return nil
}

// MarshalJSON writes the node as it stood in the DAG.
func (n *Node) MarshalJSON() ([]byte, error) { return n.raw, nil }

// Attributes are those that provstream writes (rules §7).
type Attributes struct {
	StepID        string          `json:"step_id,omitempty"`
	Method        string          `json:"method,omitempty"`
	TurnID        string          `json:"turn_id,omitempty"`
	Origins       []string        `json:"origins,omitempty"`
	ProvenanceIDs []string        `json:"provenance_ids,omitempty"`
	SourceIDs     []string        `json:"source_ids,omitempty"`
	LineageDepth  *int            `json:"lineage_depth,omitempty"`
	Lineage       string          `json:"lineage,omitempty"`
	Call          string          `json:"call,omitempty"`
	Unresolved    json.RawMessage `json:"unresolved,omitempty"`
	Anomalies     []string        `json:"anomalies,omitempty"`
	Tool          string          `json:"tool,omitempty"`
	Capability    string          `json:"capability,omitempty"`
	ExitStatus    string          `json:"exit_status,omitempty"`
	Outcome       string          `json:"outcome,omitempty"`
	Subagent      string          `json:"subagent_session_id,omitempty"`
	SkillID       string          `json:"skill_id,omitempty"`
	RecordedAt    string          `json:"recorded_at,omitempty"`
	Rejected      string          `json:"rejected,omitempty"`
	Decision      string          `json:"decision,omitempty"`
	ErrorCode     json.Number     `json:"error_code,omitempty"`
	ReasonCodes   []string        `json:"reason_codes,omitempty"`
	Cited         []string        `json:"cited,omitempty"`
	Evaluator     string          `json:"evaluator,omitempty"`
	Segment       *int            `json:"segment,omitempty"`
	DAGID         string          `json:"dag_id,omitempty"`
}

// Edge points from effect to cause.
type Edge struct {
	From string `json:"from"`
	To   string `json:"to"`
	Kind string `json:"kind"`
}

// DAG is one segment of a run.
type DAG struct {
	ID        string `json:"id"`
	RunID     string `json:"runId"`
	TenantID  string `json:"tenantId"`
	CreatedAt string `json:"createdAt"`
	Nodes     []Node `json:"nodes"`
	Edges     []Edge `json:"edges"`
	Signature *struct {
		KeyID    string `json:"keyId"`
		SignedAt string `json:"signedAt"`
	} `json:"signature"`
}

// Parse reads a DAG. ok is false for a JSON value that is none.
func Parse(value []byte) (d *DAG, ok bool, err error) {
	var probe struct {
		Nodes json.RawMessage `json:"nodes"`
	}
	if err := json.Unmarshal(value, &probe); err != nil || probe.Nodes == nil {
		return nil, false, err
	}
	d = new(DAG)
	if err := json.Unmarshal(value, d); err != nil {
		return nil, false, fmt.Errorf("DAG %s: %w", d.ID, err)
	}
	return d, true, nil
}

// Run is a run to draw: its segments in order, as one graph.
type Run struct {
	ID, Tenant string
	DAGs       []*DAG
	Nodes      []*Node
	Edges      []Edge

	byID map[string]int
	// out are the causes of a node, in the order of the edges.
	out [][]half
}

// half is an edge seen from its effect.
type half struct {
	to   int
	kind string
}

// ErrNoRun and ErrAmbiguous are wrapped by Find.
var (
	ErrNoRun     = errors.New("no such run")
	ErrAmbiguous = errors.New("name is ambiguous")
)

// Find builds the run that name means: a run id, tenant/run id, a DAG id, or
// the beginning of a run id when only one begins so. "" means the only run
// there is, or else the one with the most nodes.
func Find(dags []*DAG, name string) (*Run, error) {
	type key struct{ tenant, run string }
	runs := map[key][]*DAG{}
	var order []key
	for _, d := range dags {
		k := key{d.TenantID, d.RunID}
		if runs[k] == nil {
			order = append(order, k)
		}
		runs[k] = append(runs[k], d)
	}
	match := func(f func(k key) bool) (found []key) {
		for _, k := range order {
			if f(k) {
				found = append(found, k)
			}
		}
		return found
	}
	var found []key
	if name == "" {
		found = order
		slices.SortStableFunc(found, func(a, b key) int { return nodes(runs[b]) - nodes(runs[a]) })
		if len(found) > 1 {
			found = found[:1]
		}
	}
	for _, f := range []func(k key) bool{
		func(k key) bool { return k.run == name || k.tenant+"/"+k.run == name },
		func(k key) bool { return slices.ContainsFunc(runs[k], func(d *DAG) bool { return d.ID == name }) },
		func(k key) bool {
			return strings.HasPrefix(k.run, name) || strings.HasPrefix(k.tenant+"/"+k.run, name)
		},
	} {
		if len(found) == 0 {
			found = match(f)
		}
	}
	switch len(found) {
	case 0:
		if len(order) == 0 {
			return nil, fmt.Errorf("%w: there is no DAG at all; a run is signed some seconds after its sessionEnd, or when it has been idle", ErrNoRun)
		}
		return nil, fmt.Errorf("%q: %w among %d", name, ErrNoRun, len(order))
	case 1:
		return newRun(runs[found[0]]), nil
	}
	return nil, fmt.Errorf("%q: %w: it means %d runs, such as %s/%s and %s/%s", name, ErrAmbiguous, len(found),
		found[0].tenant, found[0].run, found[1].tenant, found[1].run)
}

func nodes(dags []*DAG) int {
	n := 0
	for _, d := range dags {
		n += len(d.Nodes)
	}
	return n
}

// newRun joins the segments. Their nodes are numbered on, so the number of the
// first one orders them; a segment that is there twice is taken once.
func newRun(dags []*DAG) *Run {
	dags = slices.Clone(dags)
	slices.SortStableFunc(dags, func(a, b *DAG) int { return firstNumber(a) - firstNumber(b) })
	dags = slices.CompactFunc(dags, func(a, b *DAG) bool { return a.ID == b.ID })
	r := &Run{ID: dags[0].RunID, Tenant: dags[0].TenantID, DAGs: dags, byID: map[string]int{}}
	for _, d := range dags {
		for i := range d.Nodes {
			r.byID[d.Nodes[i].ID] = len(r.Nodes)
			r.Nodes = append(r.Nodes, &d.Nodes[i])
		}
		r.Edges = append(r.Edges, d.Edges...)
	}
	r.out = make([][]half, len(r.Nodes))
	for _, e := range r.Edges {
		from, ok1 := r.byID[e.From]
		to, ok2 := r.byID[e.To]
		if ok1 && ok2 {
			r.out[from] = append(r.out[from], half{to, e.Kind})
		}
	}
	return r
}

func firstNumber(d *DAG) int {
	if len(d.Nodes) == 0 {
		return 0
	}
	_, n, _ := strings.Cut(d.Nodes[0].ID, ":")
	v, _ := strconv.Atoi(n) // a foreign id sorts first
	return v
}

// lookup finds a node by id, by its number, by step id or by provenance id.
func (r *Run) lookup(name string) (int, error) {
	if i, ok := r.byID[name]; ok {
		return i, nil
	}
	for i, n := range r.Nodes {
		if _, number, ok := strings.Cut(n.ID, ":"); ok && number == name {
			return i, nil
		}
	}
	for _, is := range []func(n *Node) bool{
		func(n *Node) bool { return n.Attributes.StepID == name && n.Kind != kindDecision },
		func(n *Node) bool { return slices.Contains(n.Attributes.ProvenanceIDs, name) },
	} {
		if i := slices.IndexFunc(r.Nodes, is); i >= 0 {
			return i, nil
		}
	}
	return 0, fmt.Errorf("run %s has no node %q: give a node id such as %s, a step id or a provenance id", r.ID, name, r.example())
}

func (r *Run) example() string {
	for i := len(r.Nodes) - 1; i >= 0; i-- {
		if r.Nodes[i].Kind == "model-output" {
			return r.Nodes[i].ID
		}
	}
	if len(r.Nodes) > 0 {
		return r.Nodes[0].ID
	}
	return "input:1"
}

const (
	kindDecision    = "policy-decision"
	methodTurnStart = "steps/turnStart"
)

// anomalies counts the codes over all nodes.
func (r *Run) anomalies() map[string]int {
	m := map[string]int{}
	for _, n := range r.Nodes {
		for _, c := range n.Attributes.Anomalies {
			m[c]++
		}
	}
	return m
}

// Telling returns the run that shows most: the one with the most different
// anomalies, of those the smallest; its tenant and run id, "" without any.
func Telling(dags []*DAG) string {
	best, bestCodes, bestNodes := "", -1, 0
	for _, d := range dags {
		codes := map[string]bool{}
		for i := range d.Nodes {
			for _, c := range d.Nodes[i].Attributes.Anomalies {
				codes[c] = true
			}
		}
		better := len(codes) > bestCodes || len(codes) == bestCodes && len(d.Nodes) < bestNodes
		if name := d.TenantID + "/" + d.RunID; better {
			best, bestCodes, bestNodes = name, len(codes), len(d.Nodes)
		}
	}
	return best
}
