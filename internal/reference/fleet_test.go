package reference_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/fleet"
	"provstream/internal/reference"
)

// shared finds a file beside the module, or skips aloud.
func shared(t *testing.T, path string) string {
	t.Helper()
	for dir, up := ".", 0; up < 6; dir, up = filepath.Join(dir, ".."), up+1 {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			name := filepath.Join(dir, "..", "shared", path)
			if _, err := os.Stat(name); err != nil {
				t.Skipf("skipped: %s is not here", name)
			}
			return name
		}
	}
	t.Fatal("no go.mod above")
	return ""
}

// TestAirlineFleet holds the reference against what is known about the file
// independently of it.
func TestAirlineFleet(t *testing.T) {
	reader, err := codec.NewReader(codec.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p := reference.New(reference.DefaultConfig())
	var out []reference.Emission
	offset := map[string]int64{}
	var last int64
	err = fleet.ReadFile(shared(t, "fleet/airline.jsonl.gz"), nil, func(r fleet.Record) error {
		rec := codec.Record{Topic: r.Topic, Offset: offset[r.Topic], Timestamp: r.TimeMs, Key: r.Key, Value: r.Value}
		offset[r.Topic]++
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, codec.Header{Key: h.Key, Value: h.Value})
		}
		res := reader.Read(&rec, r.TimeMs, func(_, value []byte) {
			s := &acs.Step{}
			if err := codec.DecodeStep(s, append([]byte{}, value...)); err != nil {
				t.Fatal(err)
			}
			out = append(out, p.Apply(s)...)
		})
		if res.DeadLetter != nil {
			t.Errorf("dead letter: %+v", res.DeadLetter)
		}
		if last = max(last, r.TimeMs); last%7 == 0 {
			out = append(out, p.Tick(last-1000)...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out = append(out, p.Tick(last+24*3600_000)...)

	got := map[string]int{}
	for _, e := range out {
		var v struct {
			ClosedBy      string         `json:"closed_by"`
			Final         bool           `json:"final"`
			Nodes         []any          `json:"nodes"`
			Compactions   int            `json:"compactions"`
			AnomalyCounts map[string]int `json:"anomaly_counts"`
		}
		if err := json.Unmarshal(e.Value, &v); err != nil {
			t.Fatal(err)
		}
		switch {
		case e.Kind == reference.Turn:
			got["turns "+v.ClosedBy]++
		case e.Kind == reference.Run:
			got["dags"]++
			got["nodes"] += len(v.Nodes)
		case v.Final:
			got["runs"]++
			got["compactions"] += v.Compactions
			for code, n := range v.AnomalyCounts {
				got["anomaly "+code] += n
			}
		}
	}
	want := map[string]int{"turns complete": 489, "dags": 60, "runs": 60, "nodes": 4293, "compactions": 52, "anomaly compaction_lineage": 12}
	for k, n := range want {
		if got[k] != n {
			t.Errorf("%s: %d, want %d", k, got[k], n)
		}
	}
	for k, n := range got {
		if want[k] == 0 {
			t.Errorf("%s: %d, want none", k, n)
		}
	}
	if t.Failed() {
		t.Log(strings.Repeat("-", 20), got)
	}
}
