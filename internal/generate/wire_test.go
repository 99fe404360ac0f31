package generate

import (
	"fmt"
	"maps"
	"testing"

	"provstream/internal/codec"
	"provstream/internal/fleet"
	"provstream/internal/lineage"
	"provstream/internal/topics"
)

// readAll puts records through ingest's reader, as if they stood in one
// partition of their topic, and returns the dead letters by kind.
func readAll(t *testing.T, cfg codec.Config, records []fleet.Record, emit func(runKey, value []byte)) map[string]int {
	t.Helper()
	read := reader(t, cfg)
	kinds := map[string]int{}
	for i := range records {
		if d := read(i, &records[i], emit); d != nil {
			kinds[d.Kind]++
			t.Logf("%s: %s %s %s", records[i].Topic, d.Kind, d.Pointer, d.Message)
		}
	}
	return kinds
}

// reader returns a function that reads one record, offset i of its topic.
func reader(t *testing.T, cfg codec.Config) func(i int, r *fleet.Record, emit func(runKey, value []byte)) *codec.DeadLetter {
	t.Helper()
	cfg.DecisionsTopic = topics.Decisions
	reader, err := codec.NewReader(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return func(i int, r *fleet.Record, emit func(runKey, value []byte)) *codec.DeadLetter {
		rec := codec.Record{Topic: r.Topic, Offset: int64(i), Timestamp: r.TimeMs, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, codec.Header{Key: h.Key, Value: h.Value})
		}
		return reader.Read(&rec, r.TimeMs+1000, emit).DeadLetter
	}
}

func ignore(_, _ []byte) {}

func TestCleanFleetValidates(t *testing.T) {
	for seed := range uint64(5) {
		records := make_(t, Config{Seed: seed, Sessions: 40})
		if kinds := readAll(t, codec.Config{}, records, ignore); len(kinds) != 0 {
			t.Errorf("seed %d: dead letters %v", seed, kinds)
		}
	}
}

func TestFaultsGiveTheirDeadLetters(t *testing.T) {
	for _, f := range Faults() {
		t.Run(f.Name, func(t *testing.T) {
			records := make_(t, Config{Seed: 11, Sessions: 1, Faults: []string{f.Name}})
			kinds := readAll(t, codec.Config{}, records, ignore)
			if !maps.Equal(kinds, f.DeadLetters) && len(kinds)+len(f.DeadLetters) > 0 {
				t.Errorf("dead letters %v, want %v", kinds, f.DeadLetters)
			}
		})
	}
}

// Three kinds depend on how ingest is configured.
func TestConfiguredKinds(t *testing.T) {
	for _, c := range []struct {
		fault, kind string
		cfg         codec.Config
	}{
		{"unknown_method", "unknown_method", codec.Config{UnknownHooksReject: true}},
		{"tenant_mismatch", "tenant_mismatch", codec.Config{TenantTopics: map[string]string{"acs.hooks.pinned": "elsewhere"}}},
		{"provenance", "provenance", codec.Config{ProvenanceRequired: true}},
		{"provenance_missing", "provenance", codec.Config{ProvenanceRequired: true}},
	} {
		records := make_(t, Config{Seed: 11, Sessions: 1, Faults: []string{c.fault}})
		if kinds := readAll(t, c.cfg, records, ignore); fmt.Sprint(kinds) != fmt.Sprint(map[string]int{c.kind: 1}) {
			t.Errorf("%s: dead letters %v", c.fault, kinds)
		}
	}
}

// Each kind of dead letter and each anomaly of the rules can be made on purpose.
func TestEveryKindAndCodeHasAFault(t *testing.T) {
	codes, kinds := map[string]bool{}, map[string]bool{
		codec.KindUnknownMethod: true, codec.KindTenantMismatch: true, codec.KindProvenance: true, // TestConfiguredKinds
	}
	for _, f := range Faults() {
		for c := range f.Anomalies {
			codes[c] = true
		}
		for k := range f.DeadLetters {
			kinds[k] = true
		}
	}
	for _, c := range lineage.Codes() {
		if !codes[c.String()] {
			t.Errorf("no fault gives the anomaly %s", c)
		}
	}
	for _, k := range codec.Kinds() {
		if !kinds[k] {
			t.Errorf("no fault gives the dead letter %s", k)
		}
	}
}
