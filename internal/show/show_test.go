package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func load(t *testing.T, names ...string) []*DAG {
	t.Helper()
	var dags []*DAG
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		d, ok, err := Parse(text)
		if err != nil || !ok {
			t.Fatalf("%s: %v %v", name, ok, err)
		}
		dags = append(dags, d)
	}
	return dags
}

func find(t *testing.T, dags []*DAG, name string) *Run {
	t.Helper()
	r, err := Find(dags, name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The expected texts were drawn by hand from the DAG.
func TestTreeAndExplain(t *testing.T) {
	r := find(t, load(t, "run.json"), "34b8")
	for file, draw := range map[string]func(b *bytes.Buffer) error{
		"tree.txt": func(b *bytes.Buffer) error { return r.Tree(b, Style{}) },
		"explain.txt": func(b *bytes.Buffer) error {
			e, err := r.Explain("model-output:10")
			if err != nil {
				return err
			}
			return r.Text(b, e, 0, Style{})
		},
	} {
		want, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := draw(&b); err != nil {
			t.Fatal(err)
		}
		if b.String() != string(want) {
			t.Errorf("%s: got\n%s\nwant\n%s", file, b.String(), want)
		}
	}
}

func TestNodesAreFoundByWhatPeopleHave(t *testing.T) {
	r := find(t, load(t, "run.json"), "")
	for _, name := range []string{"model-output:10", "10", "s10", "p3"} {
		if e, err := r.Explain(name); err != nil || e.Node != "model-output:10" {
			t.Errorf("%s: %v %v", name, e, err)
		}
	}
	if _, err := r.Explain("nonesuch"); err == nil || !strings.Contains(err.Error(), "model-output:10") {
		t.Errorf("an unknown node gives %v", err)
	}
}

func TestSegmentsAreOneRun(t *testing.T) {
	// In any order, and one of them twice.
	r := find(t, load(t, "run2.json", "run.json", "run2.json"), "acme/34b81ca0-b92f-5432-b4ba-bc420e8abc3c")
	if len(r.Nodes) != 15 || r.Nodes[0].ID != "event:1" || r.Nodes[14].ID != "model-output:15" {
		t.Errorf("%d nodes", len(r.Nodes))
	}
	e, err := r.Explain("15")
	if err != nil {
		t.Fatal(err)
	}
	want := []Path{{Source: "artifact:14", Kind: "artifact", Nodes: []string{"model-output:15", "artifact:14"}, Edges: []string{"influenced-by"}}}
	if !reflect.DeepEqual(e.Paths, want) {
		t.Errorf("paths %+v", e.Paths)
	}
}

func TestFindSaysWhatItMeans(t *testing.T) {
	dags := load(t, "run.json", "run2.json")
	other := *dags[0]
	other.TenantID = "globex"
	dags = append(dags, &other)
	if _, err := Find(dags, "34b81ca0"); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("a run id of two tenants: %v", err)
	}
	if r := find(t, dags, "globex/34b8"); r.Tenant != "globex" {
		t.Errorf("tenant %s", r.Tenant)
	}
	if r := find(t, dags[:2], "r1.bbbb"); len(r.DAGs) != 2 {
		t.Errorf("a DAG id gives %d segments of its run", len(r.DAGs))
	}
	if _, err := Find(dags, "ffff"); !errors.Is(err, ErrNoRun) {
		t.Errorf("no run: %v", err)
	}
	if _, err := Find(nil, ""); !errors.Is(err, ErrNoRun) {
		t.Errorf("nothing at all: %v", err)
	}
}

func TestGraphsAreWellFormed(t *testing.T) {
	r := find(t, load(t, "run.json"), "")
	var m, d bytes.Buffer
	if err := errors.Join(r.Mermaid(&m), r.DOT(&d)); err != nil {
		t.Fatal(err)
	}
	for text, wants := range map[string][]string{
		m.String(): {"flowchart BT\n", "subgraph turn1[\"turn t1\"]", `n7[\"tool-result:8<br/>toolCallResult shell (failure)"\]`, "n7 ==>|produced| n5\n", "class n9 found"},
		d.String(): {"digraph \"34b81ca0", `subgraph "cluster_t2"`, `n7 [label="tool-result:8\ntoolCallResult shell (failure)"]`, `n2 -> n3 [label="checked-against", style=dashed]`},
	} {
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("no %q in\n%s", want, text)
			}
		}
		if n := strings.Count(text, "\n"); n < 13+13 {
			t.Errorf("%d lines", n)
		}
	}
	if strings.Count(m.String(), "subgraph") != strings.Count(m.String(), "  end\n") || strings.Count(d.String(), "{\n") != strings.Count(d.String(), "}\n") {
		t.Error("blocks are not closed")
	}
}

// Nothing of a node is lost in JSON, attributes that are not drawn included.
func TestJSONKeepsNodes(t *testing.T) {
	const node = `{"id":"input:1","kind":"input","timestamp":"2026-01-05T09:00:00.000Z","attributes":{"request_hash":"ab","x":[1]}}`
	d, ok, err := Parse([]byte(`{"id":"a","runId":"r","tenantId":"t","nodes":[` + node + `],"edges":[]}`))
	if err != nil || !ok {
		t.Fatal(err)
	}
	text, err := json.Marshal(find(t, []*DAG{d}, "r").JSON())
	if err != nil || !strings.Contains(string(text), node) {
		t.Errorf("%s %v", text, err)
	}
}

func TestParseTellsWhatIsNoDAG(t *testing.T) {
	for in, want := range map[string]bool{`{"nodes":[],"edges":[]}`: true, `{"a":1}`: false, `7`: false, `{"nodes":7}`: false} {
		if _, ok, err := Parse([]byte(in)); ok != want {
			t.Errorf("%s: %v %v", in, ok, err)
		}
	}
}
