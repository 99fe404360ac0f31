package reference

import "provstream/internal/acs"

// turn is everything a run has of one turn_id.
type turn struct {
	id      string
	steps   []*item // in run order, losers and rejected ones too
	start   *item   // the first counted turnStart
	end     *item   // the last counted turnEnd
	members []*item // counted steps but start and end
	parent  string
	answers []*item // decisions of its counted steps, in run order

	children []*turn
}

// turnsOf reads the turns out of the items of a run.
func turnsOf(items []*item) map[string]*turn {
	turns := map[string]*turn{}
	for _, it := range items {
		if it.turn() == "" {
			if it.decision && it.answers != nil && it.answers.turn() != "" {
				t := turns[it.answers.turn()]
				t.answers = append(t.answers, it)
			}
			continue
		}
		t := turns[it.turn()]
		if t == nil {
			t = &turn{id: it.turn()}
			turns[t.id] = t
		}
		t.steps = append(t.steps, it)
		if it.counted && it.hook == acs.HookTurnStart && t.start == nil {
			t.start = it
		}
		if it.counted && it.hook == acs.HookTurnEnd {
			t.end = it
		}
	}
	for _, t := range turns {
		t.finish()
	}
	for _, t := range turns {
		if p := turns[t.parent]; p != nil && p != t {
			p.children = append(p.children, t)
		}
	}
	return turns
}

// finish finds the members and the parent: turnStart's payload, else the
// metadata of the turn's first step that has one.
func (t *turn) finish() {
	for _, it := range t.steps {
		if it.counted && it != t.start && it != t.end {
			t.members = append(t.members, it)
		}
	}
	if t.start != nil {
		t.parent = t.start.PayloadParentTurnID
	}
	for _, it := range t.steps {
		if t.parent == "" && it.counted {
			t.parent = it.ParentTurnID
		}
	}
}

// nested are all counted steps of the turns inside t, transitively, their
// boundaries included.
func (t *turn) nested() []*item {
	var out []*item
	seen := map[*turn]bool{t: true}
	var walk func(*turn)
	walk = func(u *turn) {
		for _, c := range u.children {
			if seen[c] {
				continue
			}
			seen[c] = true
			for _, it := range c.steps {
				if it.counted {
					out = append(out, it)
				}
			}
			walk(c)
		}
	}
	walk(t)
	return out
}

// met reports whether the declared step_count is met, and whether only
// together with the nested turns.
func (t *turn) met() (met, byNested bool) {
	if t.end == nil || !t.end.StepCount.Set {
		return false, false
	}
	declared := t.end.StepCount.Value
	if declared == float64(len(t.members)) {
		return true, false
	}
	if declared == float64(len(t.members)+len(t.nested())) {
		return true, true
	}
	return false, false
}

// scope is what a turn's declared numbers are about: its members, and the
// nested steps where only they meet the count.
func (t *turn) scope() []*item {
	if _, byNested := t.met(); byNested {
		return append(append([]*item{}, t.members...), t.nested()...)
	}
	return t.members
}

func calls(items []*item) int {
	n := 0
	for _, it := range items {
		if it.counted && it.hook == acs.HookToolCallRequest {
			n++
		}
	}
	return n
}

func idsOf(items []*item) map[string]bool {
	out := map[string]bool{}
	for _, it := range items {
		for _, id := range it.ids() {
			out[id] = true
		}
	}
	return out
}
