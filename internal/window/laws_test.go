package window_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"provstream/internal/acs"
	"provstream/internal/reference/steptest"
	"provstream/internal/window"
)

// last is what a log says in the end: the last summary of each turn and run and
// the DAGs, without what may depend on the order of arrival.
func last(t *rapid.T, cfg window.Config, steps []*acs.Step, ticks []int64) map[string]string {
	out := map[string]string{}
	p := window.NewPartition(cfg)
	dags := 0
	emit := func(e window.Emission) {
		var v map[string]any
		if err := json.Unmarshal(e.Value, &v); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"createdAt", "revision", "closed_by", "sealed_by"} {
			delete(v, name)
		}
		key := fmt.Sprint(e.Kind, e.Key, v["turn_id"])
		if e.Kind == window.Run {
			dags++
			key += fmt.Sprint(dags)
		}
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out[key] = string(text)
	}
	p.Tick(0, ticks[0], emit)
	for i, s := range steps {
		c := *s
		p.Apply(int64(2*i+1), &c, emit)
		if i+1 < len(ticks) {
			p.Tick(int64(2*i+2), ticks[i+1], emit)
		}
	}
	for _, pass := range []int64{1, 5, 1000} {
		p.Tick(1<<40, ticks[len(ticks)-1]+pass*int64(time.Hour/time.Millisecond), emit)
	}
	return out
}

// TestOrderOfArrivalDoesNotShow is D1: the DAG of a segment and the final
// summaries are a function of the set of its records. The same records permuted,
// some of them repeated, with turns that close and open again in between, give
// the same.
func TestOrderOfArrivalDoesNotShow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := window.DefaultConfig()
		cfg.CompleteGrace = time.Duration(rapid.SampledFrom([]int{0, 10, 1000}).Draw(t, "complete grace")) * time.Millisecond
		cfg.Grace, cfg.TurnIdle = 50*time.Millisecond, 200*time.Millisecond
		cfg.SealGrace, cfg.SessionIdle = 4*time.Hour, 4*time.Hour // nothing seals before all is here
		steps := steptest.DrawSegment(t, 60)
		ticks := func(n int) (out []int64) {
			now := int64(10_000)
			for range n + 1 {
				now += rapid.SampledFrom([]int64{0, 0, 5, 70, 300}).Draw(t, "tick")
				out = append(out, now)
			}
			return out
		}
		want := last(t, cfg, steps, ticks(len(steps)))
		scrambled := steptest.Scramble(t, steps)
		got := last(t, cfg, scrambled, ticks(len(scrambled)))
		for key, w := range want {
			if got[key] != w {
				topic := map[byte]string{'0': "turns", '1': "sessions", '2': "dags"}[key[0]]
				t.Fatalf("%s\n%s\nin order:\n%s\nscrambled:\n%s", key,
					difference([]steptest.Output{{Topic: topic, Value: []byte(w)}}, []steptest.Output{{Topic: topic, Value: []byte(got[key])}}),
					printSteps(steps), printSteps(scrambled))
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%d results in order, %d scrambled", len(want), len(got))
		}
	})
}

func printSteps(steps []*acs.Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(describe(steptest.Event{Step: s}) + "\n")
	}
	return b.String()
}

// graph is a DAG as a reader sees it.
type graph struct {
	Nodes []struct {
		ID, Kind   string
		Attributes struct {
			StepID        string   `json:"step_id"`
			RequestHash   string   `json:"request_hash"`
			ProvenanceIDs []string `json:"provenance_ids"`
			Anomalies     []string `json:"anomalies"`
			Method        string   `json:"method"`
			Depth         *int     `json:"lineage_depth"`
			Rejected      string   `json:"rejected"`
		}
	}
	Edges []struct{ From, To, Kind string }
}

// TestGraphLaws: whatever comes, a DAG has no cycle, its edges end at nodes, ids
// are unique and numbers go on; an output reaches what the model may have seen
// before it, and depth grows along declared lineage.
func TestGraphLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg, err := configOf(steptest.DrawSettings(t))
		if err != nil {
			t.Fatal(err)
		}
		p := core{window.NewPartition(cfg)}
		for i, e := range steptest.DrawLog(t, 80) {
			var outs []steptest.Output
			if e.Step == nil {
				outs = p.Tick(int64(i), e.Tick)
			} else {
				outs = p.Apply(int64(i), e.Step)
			}
			for _, o := range outs {
				if o.Topic != "dags" {
					continue
				}
				var g graph
				if err := json.Unmarshal(o.Value, &g); err != nil {
					t.Fatal(err)
				}
				g.check(t, strings.Join(steptest.Print(o), "\n"))
			}
		}
	})
}

func (g *graph) check(t *rapid.T, text string) {
	place := map[string]int{}
	first := 0
	for i, n := range g.Nodes {
		if _, ok := place[n.ID]; ok {
			t.Fatalf("node %s stands twice\n%s", n.ID, text)
		}
		place[n.ID] = i
		var number int
		if _, err := fmt.Sscanf(n.ID, n.Kind+":%d", &number); err != nil {
			t.Fatalf("node id %s\n%s", n.ID, text)
		}
		if i == 0 {
			first = number
		} else if number != first+i {
			t.Fatalf("node %s is number %d after %d\n%s", n.ID, i, first, text)
		}
	}
	causes := make([][]int, len(g.Nodes))
	for _, e := range g.Edges {
		from, ok1 := place[e.From]
		to, ok2 := place[e.To]
		if !ok1 || !ok2 || from == to {
			t.Fatalf("edge %v has no two ends\n%s", e, text)
		}
		causes[from] = append(causes[from], to)
	}
	g.checkAcyclic(t, causes, text)
	g.checkReach(t, causes, text)
	g.checkDepth(t, place, text)
}

func (g *graph) checkAcyclic(t *rapid.T, causes [][]int, text string) {
	state := make([]int, len(causes)) // 1: on the path, 2: done
	var visit func(int)
	visit = func(v int) {
		state[v] = 1
		for _, w := range causes[v] {
			switch state[w] {
			case 0:
				visit(w)
			case 1:
				t.Fatalf("a cycle through %s and %s\n%s", g.Nodes[v].ID, g.Nodes[w].ID, text)
			}
		}
		state[v] = 2
	}
	for v := range causes {
		if state[v] == 0 {
			visit(v)
		}
	}
}

// checkReach: a step of the kinds that a model sees or makes, without a
// provenance id, hangs on the nearest earlier one.
func (g *graph) checkReach(t *rapid.T, causes [][]int, text string) {
	kinds := []string{"input", "prompt", "retrieval", "memory-read", "tool-call", "tool-result", "model-output", "memory-write"}
	before := -1
	for i, n := range g.Nodes {
		a := n.Attributes
		if !slices.Contains(kinds, n.Kind) || slices.Contains(a.Anomalies, "step_conflict") || a.Rejected != "" {
			continue
		}
		if before >= 0 && len(a.ProvenanceIDs) == 0 && !slices.Contains(causes[i], before) {
			t.Fatalf("%s says nothing of its lineage and does not hang on %s\n%s", n.ID, g.Nodes[before].ID, text)
		}
		before = i
	}
}

// checkDepth: along a lineage edge between nodes of one id each the depth
// grows, unless the ids are in a ring.
func (g *graph) checkDepth(t *rapid.T, place map[string]int, text string) {
	ring := strings.Contains(text, "lineage_cycle")
	for _, e := range g.Edges {
		from, to := g.Nodes[place[e.From]], g.Nodes[place[e.To]]
		a, b := from.Attributes, to.Attributes
		if e.Kind != "influenced-by" && e.Kind != "retrieved-from" || a.Depth == nil || b.Depth == nil ||
			len(a.ProvenanceIDs) != 1 || len(b.ProvenanceIDs) != 1 || ring ||
			slices.Contains(a.Anomalies, "provenance_conflict") || slices.Contains(b.Anomalies, "provenance_conflict") ||
			a.Method == acs.MethodPostCompact || a.Method == "" {
			continue
		}
		switch same := a.ProvenanceIDs[0] == b.ProvenanceIDs[0]; {
		case same && *a.Depth != *b.Depth:
			t.Fatalf("%s and %s carry one id at depths %d and %d\n%s", from.ID, to.ID, *a.Depth, *b.Depth, text)
		case !same && *a.Depth <= *b.Depth:
			t.Fatalf("%s (depth %d) comes from %s (depth %d)\n%s", from.ID, *a.Depth, to.ID, *b.Depth, text)
		}
	}
}
