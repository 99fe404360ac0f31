package window_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"provstream/internal/reference"
	"provstream/internal/reference/steptest"
	"provstream/internal/window"
)

// TestReferenceAgrees holds the partition against the naive second
// implementation, emission by emission, on generated logs with every hook,
// every fault and every kind of seal. (10,000 logs: -rapid.checks=10000.)
func TestReferenceAgrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		agree(t, partitions(t, nil), steptest.DrawSettings(t), steptest.DrawLog(t, 100))
	})
}

// TestReferenceAgreesOnLongRuns does the same on long runs whose turns close one
// after the other: they are analysed on bases, and in one pass wherever that
// would not be exact (each reason: TestWhatCrossesABase).
func TestReferenceAgreesOnLongRuns(t *testing.T) {
	var seen paths
	rapid.Check(t, func(t *rapid.T) {
		agree(t, partitions(t, &seen), steptest.DrawLongSettings(t), steptest.DrawLongLog(t, 200))
	})
	t.Logf("%+v", seen)
	if seen.based == 0 || seen.kept == 0 || seen.whole == 0 {
		t.Error("a way of analysing was never taken")
	}
}

// partitions makes partitions that analyse short segments on bases, and adds up
// how they did.
func partitions(t *rapid.T, seen *paths) func(window.Config) *window.Partition {
	own, margin := rapid.SampledFrom([]int{1, 6, 20}).Draw(t, "own view"), rapid.SampledFrom([]int{1, 2, 4, 8}).Draw(t, "margin")
	return func(cfg window.Config) *window.Partition {
		p := window.NewPartition(cfg)
		p.AnalyseOnBases(own, margin)
		if seen != nil {
			t.Cleanup(func() { seen.add(p) })
		}
		return p
	}
}

// TestReferenceAgreesAfterAChange does the same where the configuration changes
// between two records: it holds from there on, also for what is open.
func TestReferenceAgreesAfterAChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := steptest.DrawLog(t, 100)
		before, after := steptest.DrawSettings(t), steptest.DrawSettings(t)
		for name := range before {
			if strings.HasSuffix(name, "grace") { // 0 acts with a record, which is then over
				before[name], after[name] = max(1, before[name]), max(1, after[name])
			}
		}
		agree(t, partitions(t, nil), before, log, change{rapid.IntRange(0, len(log)-1).Draw(t, "at"), after})
	})
}

// change is of the configuration, before an event.
type change struct {
	at       int
	settings steptest.Settings
}

func configs(t *rapid.T, s steptest.Settings) (window.Config, reference.Config) {
	ours, err := configOf(s)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := reference.ConfigFrom(s)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

func agree(t *rapid.T, partition func(window.Config) *window.Partition, settings steptest.Settings, log []steptest.Event, changes ...change) {
	cfg, refCfg := configs(t, settings)
	ours, theirs := core{partition(cfg)}, referenceCore{reference.New(refCfg)}
	for i, e := range log {
		for _, c := range changes {
			if c.at == i {
				cfg, refCfg := configs(t, c.settings)
				ours.p.SetConfig(cfg)
				theirs.p.SetConfig(refCfg)
			}
		}
		var got, want []steptest.Output
		if e.Step != nil {
			s, c := *e.Step, *e.Step
			got, want = ours.Apply(int64(i), &s), theirs.Apply(&c)
		} else {
			got, want = ours.Tick(int64(i), e.Tick), theirs.Tick(e.Tick)
		}
		if d := difference(want, got); d != "" {
			t.Fatalf("event %d of %d (%s)\n%s\nsettings %v\n%s", i, len(log), describe(e), d, settings, printLog(log[:i+1]))
		}
	}
}

// difference tells the first emission in which two lists differ, line by line.
func difference(want, got []steptest.Output) string {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			return "the core does not emit:\n  " + strings.Join(steptest.Print(want[i]), "\n  ")
		case i >= len(want):
			return "the core emits, and the reference does not:\n  " + strings.Join(steptest.Print(got[i]), "\n  ")
		}
		w, g := want[i], got[i]
		if w.Topic == g.Topic && w.Key == g.Key && w.ID == g.ID && string(w.Value) == string(g.Value) {
			continue
		}
		a, b := steptest.Print(w), steptest.Print(g)
		var lines []string
		for _, l := range a {
			if !slices.Contains(b, l) {
				lines = append(lines, "reference: "+l)
			}
		}
		for _, l := range b {
			if !slices.Contains(a, l) {
				lines = append(lines, "core:      "+l)
			}
		}
		if len(lines) == 0 {
			lines = append(lines, "reference: "+string(w.Value), "core:      "+string(g.Value))
		}
		return fmt.Sprintf("emission %d: %s %s %s, %s %s %s\n%s", i, w.Topic, w.Key, w.ID, g.Topic, g.Key, g.ID, strings.Join(lines, "\n"))
	}
	return ""
}

// referenceCore is the reference as a core.
type referenceCore struct{ p *reference.Partition }

func (c referenceCore) Tick(t int64) []steptest.Output { return outputs(c.p.Tick(t)) }

func outputs(emissions []reference.Emission) []steptest.Output {
	topics := map[reference.Kind]string{reference.Turn: "turns", reference.Session: "sessions", reference.Run: "dags"}
	var out []steptest.Output
	for _, e := range emissions {
		out = append(out, steptest.Output{Topic: topics[e.Kind], Key: e.Key, ID: e.ID, Value: e.Value})
	}
	return out
}

func printLog(log []steptest.Event) string {
	var b strings.Builder
	for i, e := range log {
		fmt.Fprintf(&b, "%3d %s\n", i, describe(e))
	}
	return b.String()
}
