package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// Two runs of the demo give the same unsigned DAGs and the same final
// summaries, createdAt aside (D1), whatever the machine does in between.
func TestDemoTwiceGivesTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the whole pipeline twice")
	}
	var dags, sessions, turns [2]map[string]string
	for i := range 2 {
		dir := t.TempDir()
		var out, errs bytes.Buffer
		args := []string{"demo", "--sessions", "12", "--faults", "copies,out_of_order,missing_session_end,payload,missing_turn_end", "--keep", dir, "--json"}
		if status := run(context.Background(), args, os.Getenv, &out, &errs); status != 0 {
			t.Fatalf("status %d: %s%s", status, errs.String(), out.String())
		}
		dags[i] = keptValues(t, filepath.Join(dir, "prov.runs.jsonl"), func(key string, v map[string]any) string {
			delete(v, "createdAt")
			return v["id"].(string)
		})
		sessions[i] = keptValues(t, filepath.Join(dir, "prov.sessions.jsonl"), func(key string, v map[string]any) string {
			for _, name := range []string{"revision", "sealed_by"} {
				delete(v, name)
			}
			return key // the last one, which is final, stays
		})
		turns[i] = keptValues(t, filepath.Join(dir, "prov.turns.jsonl"), func(key string, v map[string]any) string {
			for _, name := range []string{"revision", "closed_by"} {
				delete(v, name)
			}
			return key + " " + v["turn_id"].(string)
		})
	}
	for name, pair := range map[string][2]map[string]string{"DAGs": dags, "session summaries": sessions, "turn summaries": turns} {
		if len(pair[0]) == 0 || !reflect.DeepEqual(pair[0], pair[1]) {
			t.Errorf("%s: %d and %d, not the same", name, len(pair[0]), len(pair[1]))
		}
	}
}

// keptValues reads the values of a kept topic, each changed and named by f.
func keptValues(t *testing.T, path string, f func(key string, v map[string]any) string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	out := map[string]string{}
	lines := bufio.NewReader(file)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return out
		}
		var line struct{ Key, Value string }
		var v map[string]any
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(line.Value), &v); err != nil {
			t.Fatal(err)
		}
		name := f(line.Key, v)
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(b)
	}
}
