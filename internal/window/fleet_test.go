package window_test

import (
	"testing"

	"provstream/internal/reference"
	"provstream/internal/window"
)

// TestReferenceAgreesOnFleet holds the partition against the reference on real
// runs, with a tick after every third record.
func TestReferenceAgreesOnFleet(t *testing.T) {
	ours := core{window.NewPartition(window.DefaultConfig())}
	theirs := referenceCore{reference.New(reference.DefaultConfig())}
	emissions := 0
	hold := func(i int64, tick int64) {
		want, got := theirs.Tick(tick), ours.Tick(i, tick)
		emissions += len(want)
		if d := difference(want, got); d != "" {
			t.Fatalf("tick %d after record %d: %s", tick, i, d)
		}
	}
	var last int64
	for i, s := range fleetSteps(t) {
		last = max(last, s.RecordedAt)
		c := *s
		if d := difference(theirs.Apply(&c), ours.Apply(int64(i), s)); d != "" {
			t.Fatalf("record %d: %s", i, d)
		}
		if i%3 == 0 {
			hold(int64(i), last-1000)
		}
	}
	hold(1<<40, last+48*3_600_000)
	if emissions == 0 {
		t.Fatal("nothing was emitted")
	}
	t.Logf("%d emissions agree", emissions)
}
