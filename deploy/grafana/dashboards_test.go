package grafana

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var update = flag.Bool("update", false, "write the dashboards anew")

// The files beside this one are what the source makes, and no other.
func TestDashboards(t *testing.T) {
	all := Dashboards()
	for name, d := range all {
		want, err := d.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(name, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what dashboards.go makes: run go generate ./deploy/grafana", name)
		}
		var v struct {
			UID    string
			Panels []struct {
				ID      int
				GridPos struct{ X, Y, W, H int }
			}
		}
		if err := json.Unmarshal(got, &v); err != nil {
			t.Fatal(err)
		}
		for i, p := range v.Panels {
			for _, q := range v.Panels[:i] {
				a, b := p.GridPos, q.GridPos
				if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
					t.Errorf("%s: panels %d and %d lie over each other", name, q.ID, p.ID)
				}
			}
		}
	}
	files, err := filepath.Glob("*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, ok := all[f]; !ok {
			t.Errorf("%s: no source makes it", f)
		}
	}
}

// Every metric that is drawn is one that docs/metrics.md lists.
func TestDashboardsDrawWhatThereIs(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `(provstream_[a-z0-9_]+)`").FindAllSubmatch(doc, -1) {
		known[string(m[1])] = true
	}
	name := regexp.MustCompile(`provstream_[a-z0-9_]+`)
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	for file, d := range Dashboards() {
		for _, p := range d.Panels {
			for _, e := range p.Exprs {
				for _, m := range name.FindAllString(e.Query, -1) {
					if !known[m] && !known[suffix.ReplaceAllString(m, "")] {
						t.Errorf("%s, %s: docs/metrics.md does not list %s", file, p.Title, m)
					}
				}
			}
		}
	}
}
