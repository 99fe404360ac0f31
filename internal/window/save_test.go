package window_test

import (
	"maps"
	"testing"

	"pgregory.net/rapid"

	"provstream/internal/reference/steptest"
	"provstream/internal/window"
)

// stateTopic is prov.aggregator.state/p and the meta record as a flush left
// them.
type stateTopic struct {
	records   map[string][]byte
	next, low int64
	clock     int64
	hasClock  bool
	pressures []window.Pressure
}

// flush does what the aggregator does at the end of a transaction.
func (st *stateTopic) flush(p *window.Partition, next, behind int64) {
	p.Save(next, behind, func(key string, value []byte) {
		if value == nil {
			delete(st.records, key)
			return
		}
		st.records[key] = append([]byte(nil), value...)
	})
	st.next = next
	st.low, st.clock, st.hasClock = p.Low(next)
	st.pressures = append([]window.Pressure(nil), p.Pressures(st.low)...)
}

// restore builds a partition from the state topic and the log.
func (st *stateTopic) restore(t *rapid.T, cfg window.Config, log []steptest.Event) *window.Partition {
	p := window.NewPartition(cfg)
	p.AnalyseOnBases(1, 3)
	if st.hasClock {
		p.RestoreClock(st.clock)
	}
	l := window.NewLoader(p)
	for key, value := range st.records {
		if err := l.Add(key, value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Load(); err != nil {
		t.Fatal(err)
	}
	p.BeginReplay(st.pressures)
	for i := st.low; i < st.next; i++ {
		feed(p, i, log[i], func(window.Emission) {})
	}
	p.EndReplay()
	return p
}

func feed(p *window.Partition, offset int64, e steptest.Event, emit func(window.Emission)) {
	if e.Step == nil {
		p.Tick(offset, e.Tick, emit)
		return
	}
	s := *e.Step
	p.Apply(offset, &s, emit)
}

// TestRestoreGoesOnAsBefore is D2: what is emitted is a function of the log.
// The same log, cut at any flush, restored from snapshots and a replay, and
// continued, gives the same emissions at the same offsets.
func TestRestoreGoesOnAsBefore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		settings := steptest.DrawSettings(t)
		cfg, err := configOf(settings)
		if err != nil {
			t.Fatal(err)
		}
		log := steptest.DrawLog(t, 60)
		want := make([][]window.Emission, len(log))
		long := rapid.Bool().Draw(t, "long runs")
		if long {
			settings, log = steptest.DrawLongSettings(t), steptest.DrawLongLog(t, 120)
			if cfg, err = configOf(settings); err != nil {
				t.Fatal(err)
			}
			want = make([][]window.Emission, len(log))
		}
		whole := window.NewPartition(cfg)
		whole.AnalyseOnBases(1, 2)
		for i, e := range log {
			feed(whole, int64(i), e, func(e window.Emission) { want[i] = append(want[i], e) })
		}

		behind := rapid.Int64Range(-1, 20).Draw(t, "replay records")
		every := rapid.IntRange(1, 9).Draw(t, "flush every")
		restart := rapid.IntRange(1, 4).Draw(t, "restart every n flushes")
		st := &stateTopic{records: map[string][]byte{}}
		p := window.NewPartition(cfg)
		p.AnalyseOnBases(1, 2)
		flushes := 0
		for i, e := range log {
			var got []window.Emission
			feed(p, int64(i), e, func(e window.Emission) { got = append(got, e) })
			if len(got) != len(want[i]) {
				t.Fatalf("event %d (%s): %d emissions, want %d\nsettings %v\n%s", i, describe(e), len(got), len(want[i]), settings, printLog(log[:i+1]))
			}
			for k := range got {
				if got[k].ID != want[i][k].ID || string(got[k].Value) != string(want[i][k].Value) {
					t.Fatalf("event %d (%s): emission %d\n got %s %s\nwant %s %s\nlow %d next %d\nsettings %v\n%s", i, describe(e), k,
						got[k].ID, got[k].Value, want[i][k].ID, want[i][k].Value, st.low, st.next, settings, printLog(log[:i+1]))
				}
			}
			if i%every != every-1 {
				continue
			}
			st.flush(p, int64(i)+1, behind)
			if behind == -1 && st.low != st.next {
				t.Fatalf("everything was saved, and a replay would begin at %d of %d", st.low, st.next)
			}
			if behind >= 0 && st.next-st.low > behind+int64(every) && len(log) > 0 {
				t.Fatalf("a replay would read %d records, more than %d and a batch of %d", st.next-st.low, behind, every)
			}
			if flushes++; flushes%restart == 0 {
				before := maps.Clone(st.records)
				p = st.restore(t, cfg, log)
				if low, _, _ := p.Low(st.next); low < st.low {
					t.Fatalf("after the restore low is %d, before it was %d", low, st.low)
				}
				if len(before) != len(st.records) {
					t.Fatal("a restore changed the state topic")
				}
			}
		}
	})
}
