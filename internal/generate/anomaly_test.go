package generate

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/fleet"
	"provstream/internal/reference"
)

// found puts records through ingest's reader and the naive reference and
// returns the anomalies that the runs' last session summaries tell, by code. A
// tick stands wherever nothing comes for ten seconds, so time passes as if the
// records came when they say.
func found(t *testing.T, cfg reference.Config, records []fleet.Record) map[string]int {
	t.Helper()
	read := reader(t, codec.Config{})
	logs := map[string]reference.Log{} // one partition a run: they do not meet
	var last int64
	for i := range records {
		r := &records[i]
		for key, log := range logs {
			if r.TimeMs-last > 10_000 {
				logs[key] = append(log, reference.Entry{Offset: int64(len(log)), Tick: r.TimeMs - 1})
			}
		}
		read(i, r, func(runKey, value []byte) {
			step := new(acs.Step)
			if err := codec.DecodeStep(step, value); err != nil {
				t.Fatal(err)
			}
			log, ok := logs[string(runKey)]
			if !ok {
				log = reference.Log{{Tick: r.TimeMs - 1}}
			}
			logs[string(runKey)] = append(log, reference.Entry{Offset: int64(len(log)), Step: step})
		})
		last = max(last, r.TimeMs)
	}
	codes := map[string]int{}
	for _, log := range logs {
		for _, wait := range []time.Duration{time.Minute, 2 * time.Hour} {
			log = append(log, reference.Entry{Offset: int64(len(log)), Tick: last + wait.Milliseconds()})
		}
		var final struct {
			Final     bool           `json:"final"`
			Anomalies map[string]int `json:"anomaly_counts"`
		}
		for _, e := range reference.Simulate(cfg, log) {
			if e.Kind == reference.Session {
				final.Anomalies = nil
				if err := json.Unmarshal(e.Value, &final); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !final.Final {
			t.Error("a run is still open")
		}
		for code, n := range final.Anomalies {
			codes[code] += n
		}
	}
	return codes
}

func TestCleanFleetGivesNoAnomalies(t *testing.T) {
	for seed := range uint64(3) {
		if codes := found(t, reference.DefaultConfig(), make_(t, Config{Seed: seed, Sessions: 8})); len(codes) != 0 {
			t.Errorf("seed %d: %v", seed, codes)
		}
	}
}

// heavy faults are too much for an implementation that is quadratic.
var heavy = []string{"large_session", "many_ids"}

func TestFaultsGiveTheirAnomalies(t *testing.T) {
	for _, f := range Faults() {
		if slices.Contains(heavy, f.Name) {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			cfg := reference.DefaultConfig()
			if f.Name == "memory_limit" {
				cfg.MaxRunIDs = 500
			}
			codes := found(t, cfg, make_(t, Config{Seed: 11, Sessions: 1, Faults: []string{f.Name}}))
			if !maps.Equal(codes, f.Anomalies) && len(codes)+len(f.Anomalies) > 0 {
				t.Errorf("anomalies %v, want %v", codes, f.Anomalies)
			}
		})
	}
}
