package generate

import (
	"bytes"
	"slices"
	"testing"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/reference"
	"provstream/internal/window"
)

// emission is one output of either implementation.
type emission struct {
	kind    uint8
	key, id string
	value   []byte
}

// Whole fleets with every fault, several runs in one partition and time passing
// as the records say, come out of the window and of the naive reference with
// the same bytes, in the same order of each run.
func TestWindowAndReferenceAgreeOnFleets(t *testing.T) {
	names := slices.DeleteFunc(FaultNames(), func(n string) bool { return slices.Contains(heavy, n) || n == "oversize" })
	for seed := range uint64(3) {
		records := make_(t, Config{Seed: 100 + seed, Sessions: 10, Faults: pickFaults(names, seed)})
		cfg := reference.DefaultConfig()
		cfg.MaxRunIDs = 500
		fast, naive := window.NewPartition(window.Config(cfg)), reference.New(cfg)
		var got, want []emission
		take := func(es []reference.Emission) {
			for _, e := range es {
				want = append(want, emission{uint8(e.Kind), e.Key, e.ID, e.Value})
			}
		}
		emit := func(e window.Emission) {
			got = append(got, emission{uint8(e.Kind), e.Key, e.ID, bytes.Clone(e.Value)})
		}
		offset, last := int64(0), int64(0)
		tick := func(ms int64) {
			fast.Tick(offset, ms, emit)
			take(naive.Tick(ms))
			offset++
		}
		read := reader(t, codec.Config{})
		for i := range records {
			r := &records[i]
			if r.TimeMs-last > 5_000 {
				tick(r.TimeMs - 1)
				last = r.TimeMs
			}
			read(i, r, func(_, value []byte) {
				s := new(acs.Step)
				if err := codec.DecodeStep(s, value); err != nil {
					t.Fatal(err)
				}
				fast.Apply(offset, s, emit)
				take(naive.Apply(s))
				offset++
			})
		}
		for _, wait := range []int64{60_000, 7_200_000, 90_000_000} {
			tick(last + wait)
		}
		compare(t, seed, got, want)
	}
}

// pickFaults gives each seed its share of the faults.
func pickFaults(names []string, seed uint64) []string {
	var out []string
	for i, n := range names {
		if uint64(i)%3 == seed%3 {
			out = append(out, n)
		}
	}
	return out
}

func compare(t *testing.T, seed uint64, got, want []emission) {
	t.Helper()
	byRun := func(es []emission) map[string][]emission {
		m := map[string][]emission{}
		for _, e := range es {
			m[e.key] = append(m[e.key], e)
		}
		return m
	}
	a, b := byRun(got), byRun(want)
	if len(a) != len(b) || len(got) != len(want) {
		t.Errorf("seed %d: %d emissions of %d runs, the reference has %d of %d", seed, len(got), len(a), len(want), len(b))
	}
	for key, list := range b {
		for i, w := range list {
			if i >= len(a[key]) {
				t.Errorf("seed %d: %s: emission %d is missing: %s", seed, key, i, w.id)
				break
			}
			if g := a[key][i]; g.kind != w.kind || g.id != w.id || !bytes.Equal(g.value, w.value) {
				t.Errorf("seed %d: %s\n got %s %s\nwant %s %s", seed, key, g.id, g.value, w.id, w.value)
				break
			}
		}
	}
}
