package reference_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"provstream/internal/acs"
	"provstream/internal/reference"
	"provstream/internal/reference/steptest"
)

// core lets a scenario drive the reference.
type core struct{ p *reference.Partition }

func (c core) Apply(_ int64, s *acs.Step) []steptest.Output { return outputs(c.p.Apply(s)) }
func (c core) Tick(_, t int64) []steptest.Output            { return outputs(c.p.Tick(t)) }

func outputs(emissions []reference.Emission) []steptest.Output {
	topics := map[reference.Kind]string{reference.Turn: "turns", reference.Session: "sessions", reference.Run: "dags"}
	var out []steptest.Output
	for _, e := range emissions {
		out = append(out, steptest.Output{Topic: topics[e.Kind], Key: e.Key, ID: e.ID, Value: e.Value})
	}
	return out
}

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("../window/testdata/scenarios/*.txt")
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
			cfg, err := reference.ConfigFrom(sc)
			if err != nil {
				t.Fatal(err)
			}
			for _, fault := range sc.Run(core{reference.New(cfg)}) {
				t.Error(fault)
			}
		})
	}
}
