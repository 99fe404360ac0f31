package aggregator

import (
	"reflect"
	"testing"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/fleet"
	"provstream/internal/generate"
	"provstream/internal/window"
)

// The task decodes steps in place: their strings are parts of the fetched
// batch. The machine must keep nothing of them.
func TestTheMachineKeepsNothingOfABatch(t *testing.T) {
	values := stepValues(t)
	inPlace := emissions(values, func(s *acs.Step, value []byte, apply func()) error {
		batch := append([]byte(nil), value...)
		err := codec.DecodeStepInPlace(s, batch)
		apply()
		for i := range batch {
			batch[i] = '#'
		}
		return err
	}, t)
	copied := emissions(values, func(s *acs.Step, value []byte, apply func()) error {
		*s = acs.Step{}
		err := codec.DecodeStep(s, value)
		apply()
		return err
	}, t)
	if len(copied) < 1000 {
		t.Fatalf("%d emissions are too few to show anything", len(copied))
	}
	for i := range min(len(inPlace), len(copied)) {
		if !reflect.DeepEqual(inPlace[i], copied[i]) {
			t.Fatalf("emission %d:\n%s\nwant\n%s", i, inPlace[i].Value, copied[i].Value)
		}
	}
	if len(inPlace) != len(copied) {
		t.Errorf("%d emissions, want %d", len(inPlace), len(copied))
	}
}

func emissions(values [][]byte, decode func(s *acs.Step, value []byte, apply func()) error, t *testing.T) (out []window.Emission) {
	t.Helper()
	cfg := window.DefaultConfig()
	cfg.MaxRunWeight = 32 << 10 // runs of several segments too
	p := window.NewPartition(cfg)
	emit := func(e window.Emission) {
		e.Value = append([]byte(nil), e.Value...)
		out = append(out, e)
	}
	var s acs.Step
	last := int64(0)
	for i, v := range values {
		err := decode(&s, v, func() {
			last = max(last, s.RecordedAt)
			p.Apply(int64(2*i), &s, emit)
		})
		if err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			p.Tick(int64(2*i+1), last, emit)
		}
	}
	p.Tick(int64(2*len(values)), last+2*cfg.SessionIdle.Milliseconds(), emit)
	return out
}

// stepValues are the values of prov.steps of a generated fleet with faults of every kind.
func stepValues(t *testing.T) (values [][]byte) {
	t.Helper()
	reader, err := codec.NewReader(codec.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var faults []string
	for _, f := range generate.Faults() {
		if f.Name != "large_session" && f.Name != "many_ids" { // they take long and show nothing more
			faults = append(faults, f.Name)
		}
	}
	g, err := generate.New(generate.Config{Seed: 7, Sessions: 40, Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	offsets := map[string]int64{}
	take := func(r *fleet.Record) {
		rec := codec.Record{Topic: r.Topic, Offset: offsets[r.Topic], Timestamp: r.TimeMs, Key: r.Key, Value: r.Value}
		offsets[r.Topic]++
		reader.Read(&rec, r.TimeMs, func(_, value []byte) { values = append(values, append([]byte(nil), value...)) })
	}
	for r := range g.All() {
		take(&r)
	}
	return values
}
