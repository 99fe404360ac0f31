package generate

import (
	"slices"

	"provstream/internal/acs"
)

// declare fills in what the envelopes say about other envelopes: a turnEnd's
// counts and lineage, a preCompact's summary, a postCompact's lineage and
// depth. All of it is true of the events as they stand.
func (s *session) declare() {
	for i, e := range s.events {
		switch e.method {
		case acs.MethodTurnEnd:
			s.declareTurn(e, i)
		case acs.MethodPreCompact:
			e.payload.set("entries_to_compact", ids(e.compacts))
			if s.rng.IntN(4) != 0 || s.rich {
				e.payload.set("pre_compact_provenance_summary", s.summary(e.compacts))
			}
		case acs.MethodPostCompact:
			s.declareCompaction(e, i)
		}
	}
}

func ids(events []*event) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = e.id
	}
	return out
}

// carried is the union of the provenance ids of the events, in their order.
func carried(events []*event) []string {
	var out []string
	seen := map[string]bool{}
	for _, e := range events {
		for _, p := range e.prov {
			if !seen[p.id] {
				seen[p.id] = true
				out = append(out, p.id)
			}
		}
	}
	return out
}

// declareTurn counts the members of the turn up to its turnEnd at position i
// (all counted steps of the turn but its turnStart; a turnEnd that deferred the
// turn is a member when it goes on). Every other turn with nested ones counts
// those in too: ACS leaves both readings open.
func (s *session) declareTurn(end *event, i int) {
	var members, nested []*event
	started := false
	for _, e := range s.events[:i] {
		switch {
		case e.uncounted || e.turn == "":
		case e.turn == end.turn && e.method == acs.MethodTurnStart && !started:
			started = true
		case e.turn == end.turn:
			members = append(members, e)
		case s.inside(e.turn, end.turn):
			nested = append(nested, e)
		}
	}
	if len(nested) > 0 && s.index%2 == 0 {
		members = append(members, nested...)
	}
	calls := 0
	for _, e := range members {
		if e.method == acs.MethodToolCallRequest {
			calls++
		}
	}
	end.payload.set("step_count", len(members))
	end.payload.set("tool_call_count", calls)
	if len(end.prov) > 0 {
		s.setParents(end.prov[0], carried(members))
	}
}

// inside tells whether a turn is nested in another.
func (s *session) inside(turn, outer string) bool {
	for range s.events {
		if turn == "" || turn == outer {
			break
		}
		parent := ""
		for _, e := range s.events {
			if e.method == acs.MethodTurnStart && e.turn == turn {
				parent = e.parent
				break
			}
		}
		turn = parent
	}
	return turn == outer
}

func (s *session) declareCompaction(e *event, i int) {
	e.payload.set("entries_compacted", ids(e.compacts))
	if len(e.prov) > 0 {
		s.setParents(e.prov[0], carried(e.compacts))
		e.payload.set("lineage_depth_after", s.depthAfter(e.prov[0].parents))
	}
}

func (s *session) setParents(p *prov, parents []string) { p.parents = slices.Clone(parents) }

// depthAfter is 1 + the largest depth of the ids, 0 when there is none.
func (s *session) depthAfter(parents []string) int {
	depth := s.depths()
	after := 0
	for _, q := range parents {
		if d, ok := depth[q]; ok {
			after = max(after, d+1)
		}
	}
	return after
}

// depths is the lineage depth of every id of the session: 0 without parents,
// else 1 + the largest depth of a parent. What a subagentStop mints has parents
// in another session and none here. Honest events name parents that came
// before, so one pass in their order is enough.
func (s *session) depths() map[string]int {
	depth := map[string]int{}
	for _, e := range s.events {
		for _, p := range e.prov {
			if _, again := depth[p.id]; again {
				continue
			}
			d := 0
			if e.method != acs.MethodSubagentStop {
				for _, q := range p.parents {
					if dq, ok := depth[q]; ok {
						d = max(d, dq+1)
					}
				}
			}
			depth[p.id] = d
		}
		for _, a := range e.answers {
			if ask, ok := a.result.get("ask_details").(object); ok {
				if ext, ok := ask.get("intent_extension").(object); ok {
					depth[ext.get("provenance").(*prov).id] = 0
				}
			}
		}
	}
	return depth
}

// summary is the ProvenanceSummary of the events (ACS §9).
func (s *session) summary(events []*event) object {
	depth := s.depths()
	count, earliest := map[string]int{}, map[string]string{}
	deepest := 0
	for _, e := range events {
		for _, p := range e.prov {
			count[p.origin]++
			if earliest[p.origin] == "" {
				earliest[p.origin] = e.id
			}
			deepest = max(deepest, depth[p.id])
		}
	}
	var seen []string
	byOrigin, first := object{}, object{}
	for o := acs.OriginUserInput; o < acs.OriginCount; o++ {
		if name := o.String(); count[name] > 0 {
			seen = append(seen, name)
			byOrigin = append(byOrigin, member{name, count[name]})
			first = append(first, member{name, earliest[name]})
		}
	}
	return obj("origins_seen", seen, "entry_count", len(events), "entry_count_by_origin", byOrigin,
		"earliest_step_id_by_origin", first, "max_lineage_depth", deepest)
}
