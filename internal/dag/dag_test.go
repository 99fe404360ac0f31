package dag_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	gojcs "github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"provstream/internal/acs"
	"provstream/internal/dag"
	"provstream/internal/provenance"
	"provstream/internal/reference/steptest"
	"provstream/internal/segment"
)

// record is a DAG as any reader sees it.
type record struct {
	ID    string `json:"id"`
	Nodes []struct {
		ID, Kind string
	} `json:"nodes"`
	Edges []struct {
		From, To, Kind string
	} `json:"edges"`
}

func graphOf(steps ...*acs.Step) *dag.Graph {
	g := &segment.Segment{}
	for _, s := range steps {
		g.Add(s)
	}
	o, x, graph := &segment.Order{}, &provenance.Index{}, &dag.Graph{}
	o.Build(g, nil)
	x.Build(o)
	graph.Build(o, x)
	return graph
}

func lines(t testing.TB, text ...string) (steps []*acs.Step) {
	t.Helper()
	for i, l := range text {
		s, err := steptest.ParseStep(l, i)
		if err != nil {
			t.Fatal(err)
		}
		steps = append(steps, s)
	}
	return steps
}

func none(segment.Ref) []string { return nil }

func read(t interface{ Fatal(...any) }, doc dag.Document) (r record) {
	if err := json.Unmarshal(doc.Value, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// edges prints the edges, "from kind to", without the kinds of nodes.
func (r record) edges() (out []string) {
	number := func(id string) string { return id[strings.Index(id, ":")+1:] }
	for _, e := range r.Edges {
		out = append(out, number(e.From)+" "+e.Kind+" "+number(e.To))
	}
	return out
}

// TestKinds: what each record of ACS is in the DAG.
func TestKinds(t *testing.T) {
	for line, want := range map[string]string{
		"1000 s userMessage": "input", "1000 s agentResponse": "model-output", "1000 s knowledgeRetrieval": "retrieval",
		"1000 s toolCallRequest": "tool-call", "1000 s toolCallResult": "tool-result", "1000 s memoryContextRetrieval": "memory-read",
		"1000 s memoryStore": "memory-write", "1000 s postCompact entries=x": "artifact", "1000 s agbom/snapshot": "artifact",
		"1000 s agbom/changed": "event", "1000 s sessionStart": "event", "1000 s steps/dream": "event",
		"1000 s userMessage rejected=payload": "event", "1000 s allow": "policy-decision", "1000 - error": "policy-decision",
		"1000 s protocols/MCP/tools/call inner=1": "tool-call", "1000 s protocols/MCP/tools/call inner=1 answer": "tool-result",
		"1000 s protocols/MCP/resources/read inner=1": "retrieval", "1000 s protocols/MCP/resources/read inner=1 answer": "retrieval",
		"1000 s protocols/MCP/prompts/get inner=1": "prompt", "1000 s protocols/MCP/ping inner=1": "event",
		"1000 s protocols/A2A/message/send inner=1": "event",
	} {
		r := read(t, graphOf(lines(t, line)...).Document("default", "r", 0, none, heap))
		if len(r.Nodes) != 1 || r.Nodes[0].Kind != want || r.Nodes[0].ID != want+":1" {
			t.Errorf("%s gives %+v, want %s", line, r.Nodes, want)
		}
	}
	if n := graphOf(lines(t, "1000 s handshake")...).Nodes; n != 0 {
		t.Errorf("a handshake gives %d nodes", n)
	}
}

// TestCyclesAreCut: in a ring the edges whose cause stands later go; all others
// stay, also those that only look forward.
func TestCyclesAreCut(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		edges []string
		cuts  int
	}{
		{"two that derive from each other",
			[]string{"1000 a userMessage prov=p:user_input<q", "2000 b userMessage prov=q:user_input<p"},
			[]string{"2 influenced-by 1"}, 1},
		{"a ring of three, its middle is the latest",
			[]string{"1000 a userMessage prov=p:user_input<q", "3000 b userMessage prov=q:user_input<r", "2000 c userMessage prov=r:user_input<p"},
			[]string{"2 influenced-by 1", "3 influenced-by 2"}, 1},
		{"a cause that stands later, in no ring",
			[]string{"1000 a userMessage prov=p:user_input<q", "2000 b userMessage prov=q:user_input"},
			[]string{"1 influenced-by 2"}, 0},
		{"two rings with a step in common",
			[]string{"1000 a userMessage prov=p:user_input<q", "2000 b userMessage prov=q:user_input<p+r", "3000 c userMessage prov=r:user_input<q"},
			[]string{"2 influenced-by 1", "3 influenced-by 2"}, 2},
		{"a decision that cites what its step led to",
			[]string{"1000 a userMessage", "1500 a allow cites=q", "2000 b userMessage prov=q:user_input<p", "500 z userMessage prov=p:user_input"},
			// a is checked against its decision, which cites b: no ring.
			[]string{"2 influenced-by 1", "2 checked-against 3", "3 influenced-by 4", "4 influenced-by 1"}, 0},
		{"a decision that cites an id derived from its step",
			[]string{"1000 a userMessage prov=p:user_input", "1500 a allow cites=q", "2000 b userMessage prov=q:user_input<p"},
			// For the test the decision stands before a: its citation of b goes.
			[]string{"1 checked-against 2", "3 influenced-by 1"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := graphOf(lines(t, c.lines...)...)
			got := read(t, g.Document("default", "r", 0, none, heap)).edges()
			if !slices.Equal(got, c.edges) || len(g.Cuts) != c.cuts {
				t.Errorf("%d cuts, edges %q; want %d, %q", len(g.Cuts), got, c.cuts, c.edges)
			}
		})
	}
}

// TestDocumentIsCanonical: the value is its own RFC 8785 text in another
// implementation, the id names the content, nodes stand in the order of their
// numbers and edges by (from, to, kind), each once.
func TestDocumentIsCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := graphOf(steptest.DrawSegment(t, 40)...)
		if g.Nodes == 0 {
			return
		}
		doc := g.Document("te\"n\u2028ant/ü", "r1", 1_700_000_000_123, none, heap)
		canonical, err := gojcs.Transform(doc.Value)
		if err != nil || string(canonical) != string(doc.Value) {
			t.Fatalf("not canonical (%v):\n%s\n%s", err, doc.Value, canonical)
		}
		var raw struct{ Nodes, Edges json.RawMessage }
		if err := json.Unmarshal(doc.Value, &raw); err != nil {
			t.Fatal(err)
		}
		hash := sha256.Sum256(fmt.Appendf(nil, "[%s,%s]", raw.Nodes, raw.Edges))
		r := read(t, doc)
		if r.ID != doc.ID || r.ID != "r1."+hex.EncodeToString(hash[:16]) || doc.Hash != hash {
			t.Fatalf("id %s, content %x", r.ID, hash)
		}
		place := map[string]int{}
		for i, n := range r.Nodes {
			place[n.ID] = i
			if n.ID != n.Kind+":"+strconv.Itoa(i+1) {
				t.Fatalf("node %d is %s", i, n.ID)
			}
		}
		last := ""
		for _, e := range r.Edges {
			from, ok := place[e.From]
			to, also := place[e.To]
			at := fmt.Sprintf("%09d %09d %s", from, to, e.Kind)
			if !ok || !also || from == to || at <= last {
				t.Fatalf("edge %+v behind %s", e, last)
			}
			last = at
		}
	})
}

// TestTimes: RFC 3339 with three digits, in UTC, also before 1970 and at the
// ends of the calendar.
func TestTimes(t *testing.T) {
	for ms, want := range map[int64]string{
		0: "1970-01-01T00:00:00.000Z", -1: "1969-12-31T23:59:59.999Z", 951_782_400_007: "2000-02-29T00:00:00.007Z",
		253_402_300_799_999: "9999-12-31T23:59:59.999Z", -62_167_219_200_000: "0000-01-01T00:00:00.000Z",
	} {
		if got := string(dag.AppendTime(nil, ms)); got != want {
			t.Errorf("%d is %s, want %s", ms, got, want)
		}
	}
}

func heap(n int) []byte { return make([]byte, n) }
