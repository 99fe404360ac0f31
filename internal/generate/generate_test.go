package generate

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"provstream/internal/acs"
	"provstream/internal/fleet"
)

func make_(t *testing.T, cfg Config) []fleet.Record {
	t.Helper()
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(g.All())
}

func lines(records []fleet.Record) []byte {
	var b []byte
	for i := range records {
		b = fleet.AppendLine(b, &records[i])
	}
	return b
}

func TestFleetIsAFunctionOfItsConfig(t *testing.T) {
	cfg := Config{Seed: 7, Sessions: 12, Faults: []string{"copies", "payload", "lineage_cycle"}}
	a, b := lines(make_(t, cfg)), lines(make_(t, cfg))
	if !bytes.Equal(a, b) {
		t.Fatal("the same configuration gave two fleets")
	}
	cfg.Seed++
	if bytes.Equal(a, lines(make_(t, cfg))) {
		t.Fatal("another seed gave the same fleet")
	}
}

func TestFleetIsInOrderOfTime(t *testing.T) {
	records := make_(t, Config{Seed: 3, Sessions: 30, Faults: FaultNames()[:12]})
	for i := 1; i < len(records); i++ {
		if records[i].TimeMs < records[i-1].TimeMs {
			t.Fatalf("record %d is older than the one before it", i)
		}
	}
}

// A default fleet has every hook of ACS 0.1.0, every verdict, an error, a
// ServerHello, a batch and MCP by both spellings.
func TestFleetHasEveryHook(t *testing.T) {
	seen := map[string]bool{}
	var see func(v any)
	see = func(v any) {
		if list, ok := v.([]any); ok {
			seen["batch"] = true
			for _, e := range list {
				see(e)
			}
			return
		}
		env := v.(map[string]any)
		if m, ok := env["method"].(string); ok {
			seen[m] = true
			return
		}
		if env["error"] != nil {
			seen["error"] = true
			return
		}
		result := env["result"].(map[string]any)
		if result["negotiated_version"] != nil {
			seen["ServerHello"] = true
			return
		}
		seen[result["decision"].(string)] = true
	}
	tenants := map[string]bool{}
	for _, r := range make_(t, Config{Seed: 1, Sessions: 6}) {
		var v any
		if err := json.Unmarshal(r.Value, &v); err != nil {
			t.Fatal(err)
		}
		see(v)
		for _, h := range r.Headers {
			if h.Key == "acs-tenant-id" {
				tenants[string(h.Value)] = true
			}
		}
	}
	want := []string{"batch", "error", "ServerHello", "allow", "deny", "modify", "ask", "defer",
		"protocols/MCP/tools/call", "wrapped:mcp-2025-06-18/tools/call", "protocols/MCP/resources/read", "protocols/MCP/prompts/get"}
	for _, m := range strings.Fields(`handshake/hello steps/sessionStart agbom/snapshot steps/agentTrigger steps/turnStart steps/userMessage
		steps/skillRegister steps/skillLoad steps/memoryContextRetrieval steps/knowledgeRetrieval steps/subagentStart steps/subagentStop
		steps/toolCallRequest steps/toolCallResult steps/memoryStore agbom/changed steps/preCompact steps/postCompact steps/skillUnload
		steps/agentResponse steps/turnEnd steps/sessionEnd system/ping`) {
		if acs.HookOf(m) == acs.HookUnknown {
			t.Errorf("%s is no hook", m)
		}
		want = append(want, m)
	}
	for _, m := range want {
		if !seen[m] {
			t.Errorf("no %s in the fleet", m)
		}
	}
	if len(tenants) < 2 {
		t.Errorf("tenants: %v", tenants)
	}
}

// Sizes are those of real fleets (about 750 bytes a record), so that figures
// measured on a generated fleet mean something.
func TestFleetHasRealisticSizes(t *testing.T) {
	bytes, n := 0, 0
	for _, r := range make_(t, Config{Seed: 5, Sessions: 60}) {
		bytes += len(r.Value)
		n++
	}
	if mean := bytes / n; mean < 600 || mean > 1000 {
		t.Errorf("mean size of a record is %d bytes", mean)
	}
	t.Logf("%d records, %d bytes each", n, bytes/n)
}

func TestEveryFaultIsAppliedOnceAndNamed(t *testing.T) {
	names := FaultNames()
	if len(names) != len(slices.Compact(slices.Sorted(slices.Values(names)))) {
		t.Error("a fault's name is used twice")
	}
	g, err := New(Config{Seed: 2, Sessions: 3, Faults: names})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for i := range g.Sessions() {
		if f := g.fault(i); f != nil {
			got[f.Name]++
		}
	}
	for _, n := range names {
		if got[n] != 1 {
			t.Errorf("fault %s is in %d sessions, want 1", n, got[n])
		}
	}
	if _, err := New(Config{Faults: []string{"nonesuch"}}); err == nil {
		t.Error("an unknown fault is accepted")
	}
}

func BenchmarkGenerate(b *testing.B) {
	g, err := New(Config{Seed: 1, Sessions: 1 << 30 >> 16})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		n += len(g.Session(n % 100))
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
}
