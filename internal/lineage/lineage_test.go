package lineage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"provstream/internal/dag"
	"provstream/internal/lineage"
	"provstream/internal/provenance"
	"provstream/internal/reference/steptest"
	"provstream/internal/segment"
)

// noTurns is a run without turns.
type noTurns struct{}

func (noTurns) Index(segment.Sym) int32                    { return 0 }
func (noTurns) Members(int32) (int, int)                   { return 0, 0 }
func (noTurns) AppendSteps(steps []int32, _ int32) []int32 { return steps }
func (noTurns) Nested(int32) (int, int)                    { return 0, 0 }
func (noTurns) EachNested(int32, func(int32))              {}
func (noTurns) HasSealedSteps(int32) bool                  { return false }
func (noTurns) HasSealedEnd(int32) bool                    { return false }

// find returns the facts of a segment as they are told: code, step, detail.
func find(t *testing.T, absence bool, text ...string) (told []string) {
	t.Helper()
	g := &segment.Segment{}
	for i, l := range text {
		s, err := steptest.ParseStep(l, i)
		if err != nil {
			t.Fatal(err)
		}
		g.Add(s)
	}
	var o segment.Order
	var x provenance.Index
	var graph dag.Graph
	var f lineage.Facts
	o.Build(g, nil)
	x.Build(&o)
	graph.Build(&o, &x)
	f.Find(&graph, noTurns{}, absence)
	f.Tell(&lineage.Telling{}, f.All, func(fact *lineage.Fact) {
		told = append(told, fmt.Sprintf("%s %s %s", fact.Code, g.Syms.String(f.StepID(fact)), fact.Detail))
	})
	return told
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// TestCodesAreSorted: sorting codes is sorting names.
func TestCodesAreSorted(t *testing.T) {
	last := ""
	for _, c := range lineage.Codes() {
		if c.String() <= last {
			t.Errorf("%s stands behind %s", c, last)
		}
		last = c.String()
	}
}

// TestFactsStandInOrder: by run order of the step, then code, then detail.
func TestFactsStandInOrder(t *testing.T) {
	expect(t, find(t, true,
		"2000 b userMessage prov=p:memory<z+y agent=other",
		"1000 a steps/dream",
		"1500 lost allow",
	),
		"missing_session_start a ",
		"unknown_method a steps/dream",
		"decision_without_step lost ",
		"agent_changed b other",
		"unknown_origin b memory",
		"unresolved_parent b y",
		"unresolved_parent b z",
	)
}

// TestAtMostTwentyOfACode: equal facts are told once, and of one code on one step
// the first twenty.
func TestAtMostTwentyOfACode(t *testing.T) {
	var entries []string
	for i := range 25 {
		entries = append(entries, fmt.Sprintf("x%02d", i), fmt.Sprintf("x%02d", i))
	}
	told := find(t, false,
		"1000 c preCompact entries="+strings.Join(entries, "+"),
		"2000 d preCompact entries="+strings.Join(entries[:4], "+"))
	if len(told) != 22 {
		t.Fatalf("%d facts: %q", len(told), told)
	}
	for i := range 20 {
		if want := fmt.Sprintf("compaction_unknown_step c x%02d", i); told[i] != want {
			t.Errorf("fact %d is %s, want %s", i, told[i], want)
		}
	}
	expect(t, told[20:], "compaction_unknown_step d x00", "compaction_unknown_step d x01")
}

// TestLaundering: a compaction whose summary names fewer sources than what it
// compacted carried.
func TestLaundering(t *testing.T) {
	before := []string{
		"1000 web knowledgeRetrieval prov=w:retrieved", "1100 ask userMessage prov=u:user_input", "1200 out agentResponse prov=o:agent_generated<w+u",
	}
	honest := "2000 c postCompact entries=web+ask+out prov=s:agent_generated<w+u+o depth=2"
	expect(t, find(t, false, append(slices.Clone(before), honest)...))
	hidden := "2000 c postCompact entries=web+ask+out prov=s:agent_generated<u+o+ghost depth=1"
	expect(t, find(t, false, append(slices.Clone(before), hidden)...),
		"compaction_depth c 1/2",
		"compaction_lineage c missing 1, extra 1",
		"unresolved_parent c ghost")
}

// TestChainHeads: a claim is held against what decisions published, and not
// right behind an ask, which may move the head without a hook.
func TestChainHeads(t *testing.T) {
	expect(t, find(t, false,
		"1000 a userMessage chain=h0", "1100 a allow head=h1", "2000 b userMessage chain=h1", "3000 c userMessage chain=h9",
		"3100 c ask head=h2", "4000 d userMessage chain=h8"),
		"chain_gap a h0", "chain_gap c h9")
	expect(t, find(t, false, "1000 a userMessage chain=h0", "1100 a allow")) // no heads: nothing to hold it against
}

// TestMet: a count is met by the members, or by members and nested steps.
func TestMet(t *testing.T) {
	for _, c := range []struct {
		declared        float64
		members, nested int
		met, byNested   bool
	}{
		{3, 3, 0, true, false}, {3, 3, 5, true, false}, {8, 3, 5, true, true}, {4, 3, 5, false, false}, {3.5, 3, 0, false, false}, {0, 0, 0, true, false},
	} {
		if met, by := lineage.Met(c.declared, c.members, c.nested); met != c.met || by != c.byNested {
			t.Errorf("%+v: %t, %t", c, met, by)
		}
	}
}
