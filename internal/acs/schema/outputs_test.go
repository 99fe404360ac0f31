package schema_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"provstream/internal/acs"
	"provstream/internal/acs/schema"
	"provstream/internal/codec"
	"provstream/internal/generate"
	"provstream/internal/window"
	"provstream/verify"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

func output(t *testing.T, name string) func(value []byte) {
	t.Helper()
	sch, err := schema.CompileOutput("outputs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return func(value []byte) {
		t.Helper()
		if err := check(sch, value); err != nil {
			t.Errorf("%s: %v\n%s", name, err, value)
		}
	}
}

func check(sch *jsonschema.Schema, value []byte) error {
	var v any
	if err := json.Unmarshal(value, &v); err != nil {
		return err
	}
	return sch.Validate(v)
}

// What the pipeline writes conforms to the schemas that are published, for a
// fleet in which every fault occurs.
func TestOutputsConform(t *testing.T) {
	var faults []string
	for _, f := range generate.Faults() {
		faults = append(faults, f.Name)
	}
	fleet, err := generate.New(generate.Config{Seed: 1, Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := codec.NewReader(codec.Config{})
	if err != nil {
		t.Fatal(err)
	}
	step, tick := output(t, "step.json"), output(t, "tick.json")
	byKind := map[window.Kind]func([]byte){
		window.Turn: output(t, "turn-summary.json"), window.Session: output(t, "session-summary.json"), window.Run: output(t, "dag.json"),
	}
	seen := map[window.Kind]int{}
	tell := func(e window.Emission) {
		seen[e.Kind]++
		byKind[e.Kind](e.Value)
	}
	p := window.NewPartition(window.DefaultConfig())
	var s acs.Step
	offset, last := int64(0), int64(0)
	offsets := map[string]int64{}
	for rec := range fleet.All() {
		in := codec.Record{Topic: rec.Topic, Offset: offsets[rec.Topic], Timestamp: rec.TimeMs, Key: rec.Key, Value: rec.Value}
		offsets[rec.Topic]++
		for _, h := range rec.Headers {
			in.Headers = append(in.Headers, codec.Header{Key: h.Key, Value: h.Value})
		}
		last = max(last, rec.TimeMs)
		reader.Read(&in, rec.TimeMs, func(_, value []byte) {
			step(value)
			if err := codec.DecodeStep(&s, value); err != nil {
				t.Fatal(err)
			}
			p.Apply(offset, &s, tell)
			offset++
		})
		if offset%50 == 0 {
			tick(codec.AppendTick(nil, rec.TimeMs-1000))
			p.Tick(offset, rec.TimeMs-1000, tell)
			offset++
		}
	}
	for _, after := range []int64{60_000, 3 * 3600_000, 30 * 3600_000} {
		p.Tick(offset, last+after, tell)
		offset++
	}
	if seen[window.Turn] == 0 || seen[window.Session] == 0 || seen[window.Run] == 0 {
		t.Errorf("%v emissions by kind", seen)
	}
	coverage := output(t, "coverage.json")
	coverage((&verify.Coverage{Topic: "acs.hooks.turn-end", Partition: 1, From: 3, To: 9, Records: 6, Steps: 5, Rejected: 1, DeadLetters: 2}).Append(nil))
	coverage((&verify.Coverage{Topic: "acs.hooks.turn-end", From: 3, To: 9, Gap: true}).Append(nil))
	key, err := verify.NewKey(make([]byte, 32), verify.UseLog, "")
	if err != nil {
		t.Fatal(err)
	}
	output(t, "key.json")(key.JWK())
}

// The schema of steps names every member that the codec writes.
func TestStepSchemaIsComplete(t *testing.T) {
	sch, err := schema.CompileOutput("outputs/step.json")
	if err != nil {
		t.Fatal(err)
	}
	const one = "x"
	n := acs.Number{Set: true, Value: 1}
	list := []string{one}
	full := acs.Step{
		Tenant: one, Session: one, StepID: one, ID: "1", Skewed: true, Coordinates: acs.Coordinates{Topic: one},
		Rejected: codec.KindPayload, Method: one, AgentID: one, AgentName: one, TurnID: one, ParentTurnID: one, Environment: one,
		Platform: one, PlatformVersion: one, UserID: one, ChainHash: one, SignatureKeyID: one, SignatureAlgorithm: one,
		Provenance: []acs.Provenance{{ID: one, Origin: one, SourceID: one, DerivedFrom: list}}, ProvenanceMissing: 1,
		ProvenanceProducer: "none", PayloadTurnID: one, PayloadParentTurnID: one, TriggeredBy: one, Outcome: one, StepCount: n,
		ToolCallCount: n, HasSummary: true, Tool: one, Capability: one, ExitStatus: one, RequestIDRef: one, EntriesToCompact: list,
		DeclaredSummary: &acs.DeclaredSummary{HasEntryCount: true}, EntriesCompacted: list, PreCompactChainHash: one, LineageDepthAfter: n,
		SubagentSessionID: one, ParentStepID: one, SkillID: one, DigestAlgorithm: one, DigestValue: one, TriggerStepID: one,
		Answer: true, InnerID: "1", Decision: "allow", ErrorResponse: true, ErrorCode: n, ReasonCodes: list, Cited: list, Evaluator: one,
		DecisionChainHash: one,
	}
	value := codec.AppendStep(nil, &full)
	if err := check(sch, value); err != nil {
		t.Error(err)
	}
	var members map[string]any
	if err := json.Unmarshal(value, &members); err != nil {
		t.Fatal(err)
	}
	for name := range sch.Properties {
		if _, ok := members[name]; !ok {
			t.Errorf("the schema has %s, the step has not", name)
		}
	}
	for name := range members {
		if sch.Properties[name] == nil {
			t.Errorf("the step has %s, the schema has not", name)
		}
	}
}

// The dead-letter kinds of the schema are those of the codec.
func TestKinds(t *testing.T) {
	text, err := schema.Read("outputs/dead-letter-headers.json")
	if err != nil {
		t.Fatal(err)
	}
	var sch struct {
		Properties map[string]struct{ Enum []string }
	}
	if err := json.Unmarshal(text, &sch); err != nil {
		t.Fatal(err)
	}
	if got := sch.Properties["provstream.error.kind"].Enum; !slices.Equal(got, codec.Kinds()) {
		t.Errorf("%s, want %s", strings.Join(got, " "), strings.Join(codec.Kinds(), " "))
	}
}
