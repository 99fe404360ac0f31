package window_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"provstream/internal/reference/steptest"
	"provstream/internal/window"
)

// TestWorkedOutByHand holds the bytes of a DAG and of a turn summary to what
// testdata/byhand/make.py wrote: nodes, edges and members by hand, SHA-256 and
// JSON by Python.
func TestWorkedOutByHand(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("testdata", "byhand", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	got := map[window.Kind][]string{}
	emit := func(e window.Emission) { got[e.Kind] = append(got[e.Kind], string(e.Value)+"\n") }
	p := window.NewPartition(window.DefaultConfig())
	for i, line := range strings.Split(read("run.txt"), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if tick, ok := strings.CutPrefix(line, "tick "); ok {
			at, err := strconv.ParseInt(tick, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			p.Tick(int64(i), at, emit)
			continue
		}
		s, err := steptest.ParseStep(line, i+1)
		if err != nil {
			t.Fatal(err)
		}
		p.Apply(int64(i), s, emit)
	}
	for kind, name := range map[window.Kind]string{window.Run: "dag.json", window.Turn: "turn.json"} {
		if want := read(name); len(got[kind]) != 1 || got[kind][0] != want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got[kind], ""), want)
		}
	}
}
