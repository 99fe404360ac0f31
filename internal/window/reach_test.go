package window_test

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"provstream/internal/acs"
	"provstream/internal/reference/steptest"
	"provstream/internal/window"
)

var flowing = []string{
	acs.MethodUserMessage, acs.MethodKnowledgeRetrieval, acs.MethodMemoryContextRetrieval, acs.MethodToolCallResult, acs.MethodAgentResponse,
}

// TestOutputsReachWhatTheySaw: from an agent's output the edges lead to every
// input, retrieval and tool result that it may have seen, where nobody declares
// lineage: everything of these kinds before it; and to every one that it
// declares.
func TestOutputsReachWhatTheySaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := steptest.DrawSegment(t, 50)
		declared := rapid.Bool().Draw(t, "declared")
		for i, s := range steps {
			c := *s
			c.Rejected, c.Skewed = "", false
			if !declared {
				c.Provenance = nil
				if c.Type == acs.TypeStep && rapid.Bool().Draw(t, "flows") {
					c.Method = rapid.SampledFrom(flowing).Draw(t, "method")
				}
			}
			steps[i] = &c
		}
		g := dagOf(t, steps)
		place := map[string]int{}
		for i, n := range g.Nodes {
			place[n.ID] = i
		}
		causes := make([][]int, len(g.Nodes))
		for _, e := range g.Edges {
			causes[place[e.From]] = append(causes[place[e.From]], place[e.To])
		}
		counted := func(i int) bool { return !slices.Contains(g.Nodes[i].Attributes.Anomalies, "step_conflict") }
		for from, n := range g.Nodes {
			if n.Kind != "model-output" || !counted(from) {
				continue
			}
			seen := reach(causes, from)
			for to, m := range g.Nodes[:from] {
				switch m.Kind {
				case "input", "retrieval", "tool-result", "memory-read":
					if !declared && counted(to) && !seen[to] {
						t.Fatalf("%s (%s) does not reach %s (%s)", n.ID, n.Attributes.StepID, m.ID, m.Attributes.StepID)
					}
				}
			}
			if declared {
				checkDeclared(t, g, steps, from, seen)
			}
		}
	})
}

// checkDeclared: the output reaches a carrier of each parent that it states,
// unless an edge on the way closed a ring. The step of the same step_id that
// lost to it declares nothing (step_conflict).
func checkDeclared(t *rapid.T, g *graph, steps []*acs.Step, from int, seen map[int]bool) {
	out := g.Nodes[from]
	for i, n := range g.Nodes {
		if (i == from || seen[i]) && slices.Contains(n.Attributes.Anomalies, "lineage_cycle") {
			return
		}
	}
	for _, s := range steps {
		if s.Type != acs.TypeStep || s.StepID != out.Attributes.StepID || hex.EncodeToString(s.RequestHash[:]) != out.Attributes.RequestHash {
			continue
		}
		for _, p := range s.Provenance {
			for _, q := range p.DerivedFrom {
				carried, reached := false, q == p.ID
				for to, m := range g.Nodes {
					for _, id := range m.Attributes.ProvenanceIDs {
						if id == q {
							carried, reached = true, reached || to == from || seen[to]
						}
					}
				}
				if carried && !reached {
					t.Fatalf("%s declares %q and does not reach it", out.ID, q)
				}
			}
		}
	}
}

func reach(causes [][]int, from int) map[int]bool {
	seen := map[int]bool{}
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, to := range causes[queue[0]] {
			if !seen[to] {
				seen[to] = true
				queue = append(queue, to)
			}
		}
	}
	return seen
}

// dagOf seals records as one segment.
func dagOf(t *rapid.T, steps []*acs.Step) *graph {
	g := &graph{}
	emit := func(e window.Emission) {
		if e.Kind == window.Run {
			if err := json.Unmarshal(e.Value, g); err != nil {
				t.Fatal(err)
			}
		}
	}
	p := window.NewPartition(window.DefaultConfig())
	for i, s := range steps {
		p.Apply(int64(i), s, emit)
	}
	p.Tick(int64(len(steps)), 1<<41, emit)
	p.Tick(int64(len(steps))+1, 1<<42, emit)
	return g
}
