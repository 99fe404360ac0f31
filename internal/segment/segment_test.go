package segment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"provstream/internal/acs"
	"provstream/internal/reference/steptest"
	"provstream/internal/segment"
)

// lines reads records, a line each (see steptest).
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

func order(mem *segment.Memory, steps ...*acs.Step) *segment.Order {
	g := &segment.Segment{}
	for _, s := range steps {
		g.Add(s)
	}
	o := &segment.Order{}
	o.Build(g, mem)
	return o
}

// told prints the run order: a step by its id, a decision as request>verdict.
func told(o *segment.Order) string {
	var out []string
	for _, r := range o.Refs {
		if r.IsStep() {
			out = append(out, o.Seg.Syms.String(o.Seg.Steps[r.Step()].StepID))
			continue
		}
		d := &o.Seg.Decisions[r.Decision()]
		out = append(out, o.Seg.Syms.String(o.RequestID[r.Decision()])+">"+o.Seg.Syms.String(d.Decision))
	}
	return strings.Join(out, " ")
}

// TestOrderIsCanonical: event time, then the rank of the method, then step_id,
// then request hash, in whatever order the records come.
func TestOrderIsCanonical(t *testing.T) {
	inOrder := []string{
		"1000 z sessionEnd", // earlier than all, though it ranks last
		"2000 y20 handshake", "2000 y19 sessionStart", "2000 y18 agbom/snapshot", "2000 y17 agentTrigger", "2000 y16 turnStart",
		"2000 y15 userMessage", "2000 y14 skillRegister skill=k@d", "2000 y13 skillLoad skill=k@d", "2000 y12 memoryContextRetrieval",
		"2000 y11 knowledgeRetrieval", "2000 y10 subagentStart sub=c", "2000 y09 subagentStop sub=c",
		"2000 y08a protocols/MCP/tools/call inner=1", "2000 y08b toolCallRequest",
		"2000 y07a protocols/MCP/tools/call inner=1 answer", "2000 y07b toolCallResult",
		"2000 y06a steps/dream", "2000 y06b userMessage rejected=payload",
		"2000 y05 memoryStore", "2000 y04 agbom/changed", "2000 y03 preCompact entries=z", "2000 y02 postCompact entries=z",
		"2000 y01 skillUnload skill=k", "2000 y00a agentResponse", "2000 y00b agentResponse", "2000 x1 turnEnd outcome=completed", "2000 x0 sessionEnd",
		"3000 a userMessage",
	}
	want := make([]string, len(inOrder))
	for i, l := range inOrder {
		want[i] = strings.Fields(l)[1]
	}
	rapid.Check(t, func(t *rapid.T) {
		var steps []*acs.Step
		for _, i := range rapid.Permutation(indexes(len(inOrder))).Draw(t, "arrival") {
			s, err := steptest.ParseStep(inOrder[i], i)
			if err != nil {
				t.Fatal(err)
			}
			steps = append(steps, s)
		}
		if got := told(order(nil, steps...)); got != strings.Join(want, " ") {
			t.Fatalf("got  %s\nwant %s", got, strings.Join(want, " "))
		}
	})
}

func indexes(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// TestDecisionsStandBehindTheirStep: an answer stands right behind the step it
// answers, whenever it came; without its step, at its recorded_at behind every
// step of that instant.
func TestDecisionsStandBehindTheirStep(t *testing.T) {
	o := order(nil, lines(t,
		"3000 a deny", "2500 a allow", "2000 lost2 allow", "1500 lost1 ask", "1000 a userMessage", "2000 b userMessage", "2001 c userMessage")...)
	if got, want := told(o), "a a>allow a>deny lost1>ask b lost2>allow c"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestErrorResponsesJoinByID: by the JSON-RPC id as a JSON value; null joins
// nothing, and what joins nothing has the text of its id as request_id.
func TestErrorResponsesJoinByID(t *testing.T) {
	o := order(nil, lines(t,
		`1000 a toolCallRequest id=7`, `1001 b toolCallRequest id="x"`, `1002 n toolCallRequest id=null`,
		`1100 - error id=7`, `1100 - error id="x"`, `1200 - error id=null`, `1300 - error id="7"`)...)
	if got, want := told(o), `a a> b b> n null> "7">`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCopiesKeepTheSmallest: of several copies the one with the smallest
// (recorded_at, topic, partition, offset, index) stays, and weighs once.
func TestCopiesKeepTheSmallest(t *testing.T) {
	copies := lines(t,
		"1000/2000 a userMessage at=h/0/9", "1000/2000 a userMessage at=h/0/5", "1000/2000 a userMessage at=g/1/7",
		"1000/2000 a userMessage at=g/1/7/3", "1000/1999 a userMessage at=z/9/99", "1000/3000 a userMessage at=a/0/0")
	g := &segment.Segment{}
	var did []segment.Added
	for _, s := range copies {
		did = append(did, g.Add(s))
	}
	if want := []segment.Added{segment.New, segment.CopyReplaced, segment.CopyReplaced, segment.Copy, segment.CopyReplaced, segment.Copy}; !slices.Equal(did, want) {
		t.Errorf("got %v, want %v", did, want)
	}
	if s := &g.Steps[0]; g.Len() != 1 || s.RecordedAt != 1999 || g.Syms.String(s.Topic) != "z" || s.Offset != 99 {
		t.Errorf("%d records, the first %+v", g.Len(), s)
	}
	if g.Weight != segment.Weight(copies[0]) {
		t.Errorf("weight %d, that of one copy %d", g.Weight, segment.Weight(copies[0]))
	}
	answers := lines(t, "1000 a allow at=h/0/9", "1000 a allow at=h/0/4", "1000 a deny")
	for _, s := range answers {
		g.Add(s)
	}
	if len(g.Decisions) != 2 || g.Decisions[0].Offset != 4 {
		t.Errorf("decisions %+v", g.Decisions)
	}
}

// TestConflictsHaveOneWinner: the one already sealed, else the first that is
// not skewed, else the first. Losers are what no reference means.
func TestConflictsHaveOneWinner(t *testing.T) {
	const skewed = "/900000"
	for _, c := range []struct {
		name   string
		sealed bool
		lines  []string
		winner string // event time
	}{
		{"the first in order", false, []string{"3000 a userMessage hash=x", "1000 a userMessage hash=y", "2000 a userMessage hash=z"}, "1000"},
		{"the first unskewed", false, []string{"1000" + skewed + " a userMessage hash=x", "2000 a userMessage hash=y", "3000 a userMessage hash=z"}, "2000"},
		{"all are skewed", false, []string{"2000" + skewed + " a userMessage hash=x", "1000" + skewed + " a userMessage hash=y"}, "1000"},
		{"another method", false, []string{"2000 a userMessage", "1000 a agentResponse"}, "1000"},
		{"a rejected one takes no part", false, []string{"2000 a userMessage hash=x", "1000 a userMessage hash=y rejected=payload"}, "2000"},
		{"one is sealed", true, []string{"1000 a userMessage hash=x", "2000 a userMessage hash=y"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mem *segment.Memory
			if c.sealed {
				mem = remember(t, 100, lines(t, "5000 a userMessage hash=sealed")...)
			}
			o := order(mem, lines(t, c.lines...)...)
			winner := ""
			for i, s := range o.Standing {
				if s == segment.Counted {
					winner += fmt.Sprint(o.Seg.Steps[i].EventTime)
				}
			}
			if winner != c.winner {
				t.Errorf("%q wins, want %q", winner, c.winner)
			}
			id := o.Seg.Syms.Lookup("a")
			if at := o.Resolve(id); c.sealed && at != segment.Earlier || !c.sealed && fmt.Sprint(o.Seg.Steps[at].EventTime) != c.winner {
				t.Errorf("a reference means %d", at)
			}
		})
	}
}

func remember(t testing.TB, most int, steps ...*acs.Step) *segment.Memory {
	t.Helper()
	mem := &segment.Memory{MaxIDs: most}
	mem.Remember(sealed(order(nil, steps...)))
	return mem
}

func sealed(o *segment.Order) segment.Sealed {
	no := func(int32) bool { return false }
	return segment.Sealed{
		Order: o, InDAG: true,
		IDOf:   func(segment.Sym) segment.IDInfo { return segment.IDInfo{Depth: 3, Retrieval: true} },
		TurnOf: func(*segment.Step) int32 { return -1 }, OpenCall: no, Unanswered: no, OpenSubagent: no,
	}
}

// TestMemoryKeepsWholeRecords: a record is remembered with all its hashes or not
// at all; the first that does not fit is told once, and smaller ones behind it
// may still fit.
func TestMemoryKeepsWholeRecords(t *testing.T) {
	steps := lines(t,
		"1000 a userMessage prov=p:user_input",                     // itself, its step_id, p carried, p new: 4
		"2000 b userMessage prov=q:user_input prov=r:user_input",   // 6
		"3000 c userMessage", "4000 d userMessage", "5000 a allow", // 2, 2, 1
	)
	mem := &segment.Memory{MaxIDs: 8}
	o := order(nil, steps...)
	unfit := mem.Remember(sealed(o))
	if unfit == segment.NoRef || o.Seg.Syms.String(o.Seg.Steps[unfit.Step()].StepID) != "b" {
		t.Errorf("what does not fit first is %v", unfit)
	}
	if mem.Used() != 7 || !mem.MemoryLimited() {
		t.Errorf("%d hashes, limited %t", mem.Used(), mem.MemoryLimited())
	}
	for id, want := range map[string]bool{"a": true, "b": false, "c": true, "d": false} {
		if o.Seg.Accepted(mem, o.Seg.Syms.Lookup(id)) != want {
			t.Errorf("step %s is remembered: %t", id, !want)
		}
	}
	if o.Seg.Recall(mem, o.Seg.Syms.Lookup("a")).Decisions != 1 {
		t.Error("the answer to a is not counted")
	}
	if n, ok := o.Seg.RecallID(mem, o.Seg.Syms.Lookup("p")); !ok || mem.ID(n) != (segment.IDInfo{Depth: 3, Retrieval: true}) {
		t.Errorf("p is %+v, %t", mem.ID(n), ok)
	}
	if _, ok := o.Seg.RecallID(mem, o.Seg.Syms.Lookup("q")); ok {
		t.Error("q of a record that did not fit is remembered")
	}
	for i, want := range []bool{true, false, true, false, true} {
		if mem.SawCopy(o.Seg, steps[i]) != want {
			t.Errorf("record %d is a copy: %t", i, !want)
		}
	}
	if again := mem.Remember(sealed(order(mem, lines(t, "6000 e userMessage prov=s:user_input")...))); again != segment.NoRef {
		t.Error("the limit is told twice")
	}
}

// TestUnpackGivesTheRecordBack: moving a record to another segment loses
// nothing, which is what a size seal does with records behind the clock.
func TestUnpackGivesTheRecordBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, again := &segment.Segment{}, &segment.Segment{}
		for _, s := range steptest.DrawSegment(t, 30) {
			g.Add(s)
		}
		for i := range g.Steps {
			again.Add(g.Unpack("default", "r1", segment.StepRef(int32(i))))
		}
		for i := range g.Decisions {
			again.Add(g.Unpack("default", "r1", segment.DecisionRef(int32(i))))
		}
		var a, b segment.Order
		a.Build(g, nil)
		b.Build(again, nil)
		if told(&a) != told(&b) || g.Weight != again.Weight || !slices.Equal(a.Standing, b.Standing) {
			t.Fatalf("got  %s, weight %d\nwant %s, weight %d", told(&b), again.Weight, told(&a), g.Weight)
		}
	})
}
