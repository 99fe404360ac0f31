package lineage

import (
	"fmt"
	"slices"
	"strconv"

	"provstream/internal/segment"
)

// turnEnd makes the checks of a turn's turnEnd (its last one; earlier turnEnds
// are members): turn_steps_mismatch, tool_call_count_mismatch and
// turn_summary_lineage.
func (f *Facts) turnEnd(r segment.Ref, s *segment.Step) {
	o := f.order
	if s.Turn == segment.None || o.Turns.End(s.Turn) != r.Step() {
		return
	}
	turn := f.turns.Index(s.Turn)
	b := o.Seg.Boundary(s)
	members, calls := f.turns.Members(turn)
	byNested := false
	nested, nestedCalls := 0, 0
	if b.StepCount.Set {
		if b.StepCount.Value > float64(members) { // else no nested step can help
			nested, nestedCalls = f.turns.Nested(turn)
		}
		var met bool
		if met, byNested = Met(b.StepCount.Value, members, nested); !met {
			f.add(r, TurnStepsMismatch, number(b.StepCount.Value)+"/"+strconv.Itoa(members))
		}
	}
	if byNested {
		calls += nestedCalls
	}
	if b.ToolCallCount.Set && b.ToolCallCount.Value != float64(calls) {
		f.add(r, ToolCallCountMismatch, number(b.ToolCallCount.Value)+"/"+strconv.Itoa(calls))
	}
	if s.HasSummary {
		f.turnSummary(r, s, turn, byNested)
	}
}

// turnSummary: derived_from of the summary against the ids that the members
// carry, and the steps of nested turns where those meet the count.
func (f *Facts) turnSummary(r segment.Ref, s *segment.Step, turn int32, byNested bool) {
	if f.order.Mem.MemoryLimited() {
		sealed := f.turns.HasSealedSteps(turn)
		if byNested {
			f.turns.EachNested(turn, func(t int32) { sealed = sealed || f.turns.HasSealedSteps(t) })
		}
		if sealed {
			return // some of the ids may no longer be remembered
		}
	}
	stated := f.statedParents(s)
	if f.recalled == nil {
		f.recalled = f.order.Mem.StepsByTurn()
	}
	steps := f.turns.AppendSteps(f.steps[:0], turn)
	steps = slices.DeleteFunc(steps, func(i int32) bool { return i == r.Step() })
	earlier := f.recalled[turn]
	if byNested {
		earlier = append([]*segment.StepInfo(nil), earlier...)
		f.turns.EachNested(turn, func(t int32) {
			steps = f.turns.AppendSteps(steps, t)
			earlier = append(earlier, f.recalled[t]...)
		})
	}
	f.steps = steps
	if missing, extra := f.compare(stated, steps, earlier); missing+extra > 0 {
		f.add(r, TurnSummaryLineage, fmt.Sprintf("missing %d, extra %d", missing, extra))
	}
}
