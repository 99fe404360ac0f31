package reference

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"provstream/internal/acs"
)

// record is a distinct step or decision of an open segment.
type record struct {
	step   *acs.Step
	at     int64 // max(recorded_at, clock), of its first copy
	seq    int64 // arrival, of its first copy
	weight int64
}

// item is a record in its place, with everything that is found about it.
type item struct {
	*acs.Step
	rec *record

	segment int // which segment of the run
	pos     int // its position there, in canonical order

	hook     acs.Hook
	loser    bool // a conflict it lost
	winner   bool // accepted and no loser (handshakes too)
	counted  bool // winner and no handshake
	decision bool

	// Of decisions.
	request string // request_id, or the JSON-RPC id of an error that joined nothing
	answers *item  // its step, in this segment
	earlier *item  // its step, in an earlier segment
	nth     int    // the how manieth decision of its request_id in the run

	depth        int // the largest depth of an id it carries, -1 without ids
	facts        []Fact
	sessionFacts []Fact // told in the session summary only
	unresolved   []string
	inferredLine bool
	inferredCall bool

	node       int  // its number in the run, 0 without a node
	segmentRef bool // the node that stands for the earlier segment
	gaveNoDAG  bool // it stands in a sealed segment without a DAG
}

// stepID is what facts about the item name.
func (it *item) stepID() string {
	if it.decision {
		return it.request
	}
	return it.StepID
}

func (it *item) rejected() bool { return it.Rejected != "" }

func (it *item) fact(code, detail string) {
	it.facts = append(it.facts, Fact{Code: code, StepID: it.stepID(), Detail: detail})
}

// carries reports whether the Provenance objects of the item count: those of a
// loser do not (rules §1), and a rejected record has none.
func (it *item) carries() bool {
	return it.counted || it.decision && !it.rejected()
}

func (it *item) objects() []acs.Provenance {
	if !it.carries() {
		return nil
	}
	return it.Provenance
}

// ids are the provenance ids it carries, each once.
func (it *item) ids() []string {
	var out []string
	for _, o := range it.objects() {
		out = append(out, o.ID)
	}
	return sortedSet(out)
}

func (it *item) turn() string {
	if it.decision || it.hook == acs.HookHandshake && !it.rejected() {
		return ""
	}
	return it.EffectiveTurnID()
}

func compareCoordinates(a, b acs.Coordinates) int {
	return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition),
		cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Index, b.Index))
}

// compareArrival is (recorded_at, topic, partition, offset, index): which copy
// stays, and how the decisions of a step are ordered.
func compareArrival(a, b *acs.Step) int {
	return cmp.Or(cmp.Compare(a.RecordedAt, b.RecordedAt), compareCoordinates(a.Coordinates, b.Coordinates))
}

func rank(s *acs.Step) uint8 { return acs.Rank(acs.HookOf(s.Method), s.Rejected != "", s.Answer) }

// compareSteps is the canonical order of steps (rules §3).
func compareSteps(a, b *acs.Step) int {
	return cmp.Or(
		cmp.Compare(a.EventTime, b.EventTime),
		cmp.Compare(rank(a), rank(b)),
		strings.Compare(a.StepID, b.StepID),
		bytes.Compare(a.RequestHash[:], b.RequestHash[:]),
		cmp.Compare(a.RecordedAt, b.RecordedAt),
		compareCoordinates(a.Coordinates, b.Coordinates),
	)
}

// inOrder puts steps and decisions into canonical order: steps by
// compareSteps, each with its decisions right after it, and a decision without
// a step here after every step (and its decisions) of its instant.
func inOrder(steps, decisions []*item) []*item {
	slices.SortFunc(steps, func(a, b *item) int { return compareSteps(a.Step, b.Step) })
	slices.SortFunc(decisions, func(a, b *item) int { return compareArrival(a.Step, b.Step) })
	answers := map[*item][]*item{}
	var alone []*item
	for _, d := range decisions {
		if d.answers != nil {
			answers[d.answers] = append(answers[d.answers], d)
		} else {
			alone = append(alone, d)
		}
	}
	var out []*item
	for _, s := range steps {
		for len(alone) > 0 && alone[0].RecordedAt < s.EventTime {
			out, alone = append(out, alone[0]), alone[1:]
		}
		out = append(out, s)
		out = append(out, answers[s]...)
	}
	return append(out, alone...)
}
