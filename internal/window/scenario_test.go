package window_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"provstream/internal/acs"
	"provstream/internal/reference/steptest"
	"provstream/internal/window"
)

// flags are window flags by name, of a scenario or drawn.
type flags interface {
	Duration(name string, otherwise time.Duration) (time.Duration, error)
	Int(name string, otherwise int64) (int64, error)
}

func configOf(f flags) (window.Config, error) {
	c := window.DefaultConfig()
	var errs []error
	for name, p := range map[string]*time.Duration{
		"complete-grace": &c.CompleteGrace, "grace": &c.Grace, "seal-grace": &c.SealGrace, "turn-idle": &c.TurnIdle,
		"session-idle": &c.SessionIdle, "late-grace": &c.LateGrace, "late-retention": &c.LateRetention,
		"idle-retention": &c.IdleRetention,
	} {
		d, err := f.Duration(name, *p)
		*p, errs = d, append(errs, err)
	}
	steps, err := f.Int("max-open-steps", int64(c.MaxOpenSteps))
	c.MaxOpenSteps, errs = int(steps), append(errs, err)
	ids, err := f.Int("max-run-ids", int64(c.MaxRunIDs))
	c.MaxRunIDs, errs = int(ids), append(errs, err)
	c.MaxRunWeight, err = f.Int("max-run-weight", c.MaxRunWeight)
	return c, errors.Join(append(errs, err)...)
}

// core lets a scenario drive the partition.
type core struct{ p *window.Partition }

func (c core) Apply(offset int64, s *acs.Step) []steptest.Output {
	return collect(func(emit func(window.Emission)) { c.p.Apply(offset, s, emit) })
}

func (c core) Tick(offset, t int64) []steptest.Output {
	return collect(func(emit func(window.Emission)) { c.p.Tick(offset, t, emit) })
}

func collect(run func(func(window.Emission))) []steptest.Output {
	topics := map[window.Kind]string{window.Turn: "turns", window.Session: "sessions", window.Run: "dags"}
	var out []steptest.Output
	run(func(e window.Emission) {
		out = append(out, steptest.Output{Topic: topics[e.Kind], Key: e.Key, ID: e.ID, Value: slices.Clone(e.Value)})
	})
	return out
}

// TestScenarios runs the files of testdata/scenarios, which were worked out by
// hand: each names the rule that it is about.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			sc, err := steptest.Parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			cfg, err := configOf(sc)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range sc.Run(core{window.NewPartition(cfg)}) {
				t.Error(fault)
			}
		})
	}
}
