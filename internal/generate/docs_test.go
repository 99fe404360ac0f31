package generate

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of faults to docs/fleets.md")

// The table of faults in docs/fleets.md is that of the code.
func TestFaultsAreDocumented(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "fleets.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, rest, ok1 := strings.Cut(string(text), "-update -->\n")
	_, end, ok2 := strings.Cut(rest, "<!-- end -->")
	if !ok1 || !ok2 {
		t.Fatal("docs/fleets.md has no place for the table")
	}
	want := begin + "-update -->\n" + table() + "<!-- end -->" + end
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Error("docs/fleets.md differs from the code: run go test ./internal/generate -run Documented -update")
	}
}

func table() string {
	var b strings.Builder
	b.WriteString("\n| fault | what happens | dead letters | anomalies | needs |\n|---|---|---|---|---|\n")
	list := func(m map[string]int) string {
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(m)) {
			parts = append(parts, fmt.Sprintf("`%s` %d", k, m[k]))
		}
		return strings.Join(parts, ", ")
	}
	for _, f := range Faults() {
		needs := f.Needs
		if needs != "" {
			needs = strings.ReplaceAll(needs, "|", "\\|")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.Name, f.About, list(f.DeadLetters), list(f.Anomalies), needs)
	}
	b.WriteString("\n")
	return b.String()
}
