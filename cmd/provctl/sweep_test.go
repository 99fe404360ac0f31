package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"provstream/internal/audit"
	"provstream/internal/evidence/evidencetest"
	"provstream/verify"
)

// From the output of a whole fleet, as `demo --keep` leaves it: every flip of a
// member of a DAG, and every drop, repetition, insertion and move of a node,
// an edge and a record is found, with the right reason.
func TestSweepOverTheFleet(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: long")
	}
	dir := t.TempDir()
	want(t, 0, "", "--json", "demo", "--keep", dir)
	d := &evidencetest.Deployment{DAGs: readLines(t, filepath.Join(dir, "prov.dags.jsonl")), Checkpoints: readLines(t, filepath.Join(dir, "prov.checkpoints.jsonl"))}
	text, err := os.ReadFile(filepath.Join(dir, "jwks.json"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := verify.ParseJWKS(text)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := verify.NewKeys(list...)
	if err != nil {
		t.Fatal(err)
	}
	check := func(d *evidencetest.Deployment) error {
		cfg := audit.Config{Keys: keys, Log: true, Heads: audit.Lines(bytes.NewReader(evidencetest.JSONL(d.Checkpoints)))}
		_, err := audit.Run(context.Background(), cfg, audit.Lines(bytes.NewReader(evidencetest.JSONL(d.DAGs))))
		return err
	}
	if err := check(d); err != nil {
		t.Fatal(err)
	}

	smallest := 0
	for i := range d.DAGs {
		if len(d.DAGs[i].Value) < len(d.DAGs[smallest].Value) {
			smallest = i
		}
	}
	v, flips := verify.NewVerifier(keys), 0
	for i := range d.DAGs {
		all := evidencetest.Flips(t, i, d.DAGs[i].Value)
		step := max(1, len(all)/40)
		if i == smallest {
			step = 1
		}
		for n := i % step; n < len(all); n += step {
			one := &evidencetest.Deployment{DAGs: make([]evidencetest.Line, i+1)}
			one.DAGs[i] = d.DAGs[i].Clone()
			all[n].Change(t, one)
			_, err := v.Record([]byte(one.DAGs[i].Value), []byte(one.DAGs[i].Headers["tlog-proof"]))
			if !slices.Contains(all[n].Want, verify.KindOf(err)) {
				t.Errorf("%s: want %v, got %v", all[n].Name, all[n].Want, err)
			}
			flips++
		}
	}
	whole := slices.Concat(evidencetest.Lists(smallest, "nodes"), evidencetest.Lists(smallest, "edges"), evidencetest.Records(d))
	for _, x := range whole {
		c := d.Clone()
		x.Change(t, c)
		err := check(c)
		var f *audit.Finding
		if !errors.As(err, &f) || !slices.Contains(x.Want, f.Err.Kind) {
			t.Errorf("%s: want %v, got %v", x.Name, x.Want, err)
		}
	}
	t.Logf("%d flips in %d DAGs, %d other changes", flips, len(d.DAGs), len(whole))
}

func readLines(t *testing.T, path string) []evidencetest.Line {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []evidencetest.Line
	in := bufio.NewScanner(f)
	in.Buffer(nil, 64<<20)
	for in.Scan() {
		var l evidencetest.Line
		if err := json.Unmarshal(in.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	return out
}
