package provenance_test

import (
	"fmt"
	"reflect"
	"testing"

	gojcs "github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"provstream/internal/acs"
	"provstream/internal/provenance"
	"provstream/internal/reference/steptest"
	"provstream/internal/segment"
)

func index(t testing.TB, text ...string) (*provenance.Index, *segment.Order) {
	t.Helper()
	g := &segment.Segment{}
	for i, l := range text {
		s, err := steptest.ParseStep(l, i)
		if err != nil {
			t.Fatal(err)
		}
		g.Add(s)
	}
	o := &segment.Order{}
	o.Build(g, nil)
	x := &provenance.Index{}
	x.Build(o)
	return x, o
}

// TestDepth: 0 without parents, else one more than the deepest parent; ids that
// derive from each other count as one; what is carried nowhere is no parent.
func TestDepth(t *testing.T) {
	x, o := index(t,
		"1000 s1 userMessage prov=a:user_input",
		"2000 s2 agentResponse prov=b:agent_generated<a",
		"3000 s3 agentResponse prov=c:agent_generated<b+a",
		// A ring of three with the way out over a.
		"4000 s4 agentResponse prov=r1:agent_generated<r2",
		"4001 s5 agentResponse prov=r2:agent_generated<r3+a",
		"4002 s6 agentResponse prov=r3:agent_generated<r1",
		"5000 s7 agentResponse prov=below:agent_generated<r3",
		// A parent that comes later, and one that is its own parent.
		"6000 s8 agentResponse prov=early:agent_generated<late",
		"7000 s9 agentResponse prov=late:agent_generated<a",
		"8000 s10 agentResponse prov=self:agent_generated<self",
		"9000 s11 agentResponse prov=lost:agent_generated<nowhere",
		// Parents of a subagent's summary are ids of the child session.
		"9500 s12 subagentStop sub=child prov=sub:agent_generated<c",
		// Only the first object of an id in its mint gives its depth.
		"9600 s13 agentResponse prov=twice:agent_generated<a prov=twice:agent_generated<c",
	)
	for id, want := range map[string]int32{
		"a": 0, "b": 1, "c": 2, "r1": 1, "r2": 1, "r3": 1, "below": 2, "early": 2, "late": 1, "self": 0, "lost": 0, "sub": 0,
		"twice": 1, "nowhere": 0,
	} {
		if got := x.Depth(o.Seg.Syms.Lookup(id)); got != want {
			t.Errorf("depth of %s is %d, want %d", id, got, want)
		}
	}
	if x.Resolves(o.Seg.Syms.Lookup("nowhere")) {
		t.Error("an id that is carried nowhere resolves")
	}
}

// TestMint: the first carrier that is not skewed, else the first; losers and
// rejected steps carry nothing.
func TestMint(t *testing.T) {
	x, o := index(t,
		"1000/900000 skewed userMessage prov=p:user_input prov=q:user_input",
		"2000 lost userMessage rejected=payload prov=p:user_input",
		"3000 good userMessage prov=p:user_input",
		"4000 again userMessage prov=p:user_input",
	)
	for id, want := range map[string]string{"p": "good", "q": "skewed"} {
		m, ok := x.Mint(o.Seg.Syms.Lookup(id))
		if !ok || o.Seg.Syms.String(o.Seg.Steps[m.Record.Step()].StepID) != want {
			t.Errorf("%s is minted by %+v, want %s", id, m, want)
		}
	}
}

// TestLongChains: a chain and a ring of 100,000 ids are measured without
// recursion.
func TestLongChains(t *testing.T) {
	const n = 100_000
	for name, last := range map[string]int32{"chain": n - 1, "ring": 0} {
		g := &segment.Segment{}
		s := &acs.Step{Method: acs.MethodUserMessage, StepID: "s"}
		for i := range n {
			p := s.AddProvenance()
			p.ID = fmt.Sprint(i)
			if i+1 < n || name == "ring" {
				p.DerivedFrom = []string{fmt.Sprint((i + 1) % n)}
			}
		}
		g.Add(s)
		var o segment.Order
		o.Build(g, nil)
		var x provenance.Index
		x.Build(&o)
		if got := x.Depth(g.Syms.Lookup("0")); got != last {
			t.Errorf("%s: depth %d, want %d", name, got, last)
		}
	}
}

// drawStep is what one counted step says: its objects' origins and its depth.
type drawnStep struct {
	origins []acs.Origin
	depth   int32
}

func summaryOf(at int, steps []drawnStep) (s provenance.Summary) {
	for i, step := range steps {
		s.EntryCount++
		for _, o := range step.origins {
			if s.ByOrigin[o] == 0 {
				s.Earliest[o] = fmt.Append(nil, "s", at+i)
			}
			s.ByOrigin[o]++
		}
		s.MaxDepth = max(s.MaxDepth, step.depth)
	}
	return s
}

// TestMergeIsTheUnion: summaries of parts, merged in run order, are the summary
// of the whole, however it is cut; and the text is RFC 8785.
func TestMergeIsTheUnion(t *testing.T) {
	one := rapid.Custom(func(t *rapid.T) drawnStep {
		return drawnStep{
			origins: rapid.SliceOfN(rapid.SampledFrom([]acs.Origin{
				acs.OriginUserInput, acs.OriginSystem, acs.OriginToolOutput, acs.OriginRetrieved, acs.OriginAgentGenerated,
			}), 0, 3).Draw(t, "origins"),
			depth: rapid.Int32Range(0, 5).Draw(t, "depth"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfN(one, 0, 12).Draw(t, "steps")
		whole := summaryOf(0, steps)
		var merged provenance.Summary
		for at := 0; at < len(steps); {
			n := rapid.IntRange(1, len(steps)-at).Draw(t, "part")
			part := summaryOf(at, steps[at:at+n])
			merged.Merge(&part)
			at += n
		}
		if !reflect.DeepEqual(merged, whole) {
			t.Fatalf("merged %+v\nwhole  %+v", merged, whole)
		}
		text := merged.AppendJCS(nil)
		canonical, err := gojcs.Transform(text)
		if err != nil || string(canonical) != string(text) {
			t.Fatalf("%s is not canonical: %s, %v", text, canonical, err)
		}
	})
}
