package segment

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"provstream/internal/acs"
)

// A segment that borrows the arrays of released ones is the segment that it
// would be without, and the storage keeps to its bound.
func TestBorrowedArraysDoNotShow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var store Storage
		var open []*Segment // each beside one that borrows nothing
		for range rapid.IntRange(1, 12).Draw(t, "segments") {
			own, lent := &Segment{}, store.Segment(false)
			open = append(open, own, lent)
			salt := rapid.IntRange(0, 1000).Draw(t, "salt")
			for i := range rapid.IntRange(0, 300).Draw(t, "records") {
				s := recordOf(salt, i)
				own.Add(s)
				lent.Add(s)
			}
			if rapid.Bool().Draw(t, "release") {
				lent.Release()
				open = open[:len(open)-2]
			}
		}
		for i := 0; i < len(open); i += 2 {
			if a, b := describe(open[i]), describe(open[i+1]); a != b {
				t.Fatalf("%s\nwith borrowed arrays\n%s", a, b)
			}
		}
		if store.held > mostHeld || store.held < 0 {
			t.Fatalf("%d bytes are held", store.held)
		}
		if none.held != mostHeld {
			t.Fatal("the storage of those that borrow nothing was written to")
		}
	})
}

func recordOf(salt, i int) *acs.Step {
	s := &acs.Step{
		Type: acs.TypeStep, Tenant: "t", Session: "s", StepID: fmt.Sprint("step-", salt, "-", i), Method: acs.MethodUserMessage,
		EventTime: int64(i * 7 % 50), RecordedAt: int64(i), TurnID: fmt.Sprint("turn-", salt, i/5), RequestHash: acs.Hash{byte(i), byte(i >> 8), byte(salt)},
		Coordinates: acs.Coordinates{Topic: "acs.hooks.x", Offset: int64(i), Index: -1},
	}
	switch i % 6 {
	case 0:
		s.Method, s.PayloadTurnID, s.Outcome = acs.MethodTurnStart, s.TurnID, "completed"
	case 1:
		s.Provenance = []acs.Provenance{{ID: fmt.Sprint("p", salt, i), Origin: "user_input", DerivedFrom: []string{"a", fmt.Sprint("p", salt, i-6)}}}
	case 2:
		s.AgentName = fmt.Sprint("agent ", salt)
	case 3:
		s.Type, s.Decision, s.ReasonCodes = acs.TypeDecision, "allow", []string{fmt.Sprint("code-", salt)}
	}
	return s
}

func describe(g *Segment) string {
	text := fmt.Sprint(g.Version, g.Disturbed, g.Weight, g.Len())
	for i := range g.Steps {
		text += fmt.Sprintf("\n%+v", *g.Unpack("t", "s", StepRef(int32(i))))
	}
	for i := range g.Decisions {
		text += fmt.Sprintf("\n%+v", *g.Unpack("t", "s", DecisionRef(int32(i))))
	}
	return text
}
