package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"provstream/internal/acs/schema"
	"provstream/internal/evidence/evidencetest"
	"provstream/internal/generate"
	"provstream/internal/ingest"
)

// Everything that the running pipeline leaves on its topics is what the published
// schemas say: the values, the records of prov.checkpoints and the headers of dead
// letters, for a fleet in which nearly every fault occurs.
func TestTopicsFollowTheSchemas(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: runs the whole pipeline")
	}
	// These two take long and add nothing here.
	faults := slices.DeleteFunc(generate.FaultNames(), func(name string) bool { return name == "many_ids" || name == "large_session" })
	dir := t.TempDir()
	var out, errs bytes.Buffer
	args := []string{"demo", "--sessions", "60", "--faults", strings.Join(faults, ","), "--keep", dir, "--json"}
	if status := run(context.Background(), args, os.Getenv, &out, &errs); status != 0 {
		t.Fatalf("status %d: %s%s", status, errs.String(), out.String())
	}
	value := func(l evidencetest.Line) any { return decoded(t, []byte(l.Value)) }
	for _, c := range []struct {
		topic, schema string
		what          func(l evidencetest.Line) any
		least         int
	}{
		{"prov.turns", "turn-summary", value, 100},
		{"prov.sessions", "session-summary", value, 60},
		{"prov.runs", "dag", value, 60},
		{"prov.dags", "signed-dag", value, 60},
		{"prov.coverage", "coverage", value, 20},
		{"prov.keys", "key", value, 2},
		{"prov.checkpoints", "checkpoint-record", func(l evidencetest.Line) any {
			return map[string]any{"key": l.Key, "value": l.Value, "headers": asText(l.Headers)}
		}, 4},
		{"prov.dead-letter", "dead-letter-headers", func(l evidencetest.Line) any {
			own := map[string]any{}
			for name, v := range l.Headers {
				if ingest.OwnHeader(name) {
					own[name] = v
				}
			}
			return own
		}, 5},
	} {
		s, err := schema.CompileOutput("outputs/" + c.schema + ".json")
		if err != nil {
			t.Fatal(err)
		}
		lines := readLines(t, filepath.Join(dir, c.topic+".jsonl"))
		if len(lines) < c.least {
			t.Errorf("%s: %d records, want %d or more", c.topic, len(lines), c.least)
		}
		wrong(t, c.topic, s, lines, c.what)
	}
	wrongSteps(t, readLines(t, filepath.Join(dir, "prov.steps.jsonl")))
}

// wrong reports the first record that does not follow the schema; and the schema
// must refuse a record without its first required member, else it holds nothing.
func wrong(t *testing.T, topic string, s *jsonschema.Schema, lines []evidencetest.Line, what func(evidencetest.Line) any) {
	t.Helper()
	for _, l := range lines {
		v := what(l)
		if err := s.Validate(v); err != nil {
			t.Errorf("%s/%d@%d: %v", topic, l.Partition, l.Offset, err)
			return
		}
		if m, ok := v.(map[string]any); ok && len(s.Required) != 0 {
			delete(m, s.Required[0])
			if s.Validate(m) == nil {
				t.Errorf("%s: the schema takes a record without %s", topic, s.Required[0])
				return
			}
		}
	}
}

// wrongSteps holds prov.steps to its two schemas: every record is a step or a tick.
func wrongSteps(t *testing.T, lines []evidencetest.Line) {
	t.Helper()
	step, err := schema.CompileOutput("outputs/step.json")
	if err != nil {
		t.Fatal(err)
	}
	tick, err := schema.CompileOutput("outputs/tick.json")
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	for _, l := range lines {
		v := decoded(t, []byte(l.Value))
		if err := step.Validate(v); err == nil {
			steps++
		} else if tick.Validate(v) != nil {
			t.Errorf("prov.steps/%d@%d: %v", l.Partition, l.Offset, err)
			return
		}
	}
	if steps < 1000 || steps == len(lines) {
		t.Errorf("%d steps of %d records", steps, len(lines))
	}
}

func decoded(t *testing.T, text []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func asText(headers map[string]string) map[string]any {
	m := make(map[string]any, len(headers))
	for k, v := range headers {
		m[k] = v
	}
	return m
}
