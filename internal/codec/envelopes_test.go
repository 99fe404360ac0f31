package codec

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"provstream/internal/acs"
	"provstream/internal/topics"
)

// testdata/envelopes.json holds, for every hook, the least and the fullest
// payload, and for those and for the envelopes every single violation of every
// constraint with the pointer and the keyword that it must be told with. It was
// written from the ACS documents, not from the schemas.
type envelopeCases struct {
	Hooks []struct {
		Method        string
		Minimal, Full any
		Violations    []violation
		Allowed       []violation
	}
	Requests, Responses []struct {
		Name       string
		Envelope   any
		Violations []violation
		Allowed    []violation
	}
}

type violation struct {
	Remove, Set      string
	Value            any
	Pointer, Keyword string
}

func (v violation) String() string {
	if v.Remove != "" {
		return "without " + v.Remove
	}
	text, _ := json.Marshal(v.Value)
	return v.Set + "=" + string(text)
}

// apply returns a copy of doc with the change.
func (v violation) apply(doc any) any {
	text, _ := json.Marshal(doc)
	var c any
	_ = json.Unmarshal(text, &c)
	pointer := v.Set
	if v.Remove != "" {
		pointer = v.Remove
	}
	names := strings.Split(pointer, "/")[1:]
	in := c
	for _, name := range names[:len(names)-1] {
		switch t := in.(type) {
		case map[string]any:
			in = t[name]
		case []any:
			i, _ := strconv.Atoi(name)
			in = t[i]
		}
	}
	last := names[len(names)-1]
	switch t := in.(type) {
	case map[string]any:
		if v.Remove != "" {
			if _, ok := t[last]; !ok {
				panic("nothing at " + pointer)
			}
			delete(t, last)
		} else {
			t[last] = v.Value
		}
	case []any:
		i, _ := strconv.Atoi(last)
		t[i] = v.Value
	default:
		panic("nothing at " + pointer)
	}
	return c
}

func readCases(t testing.TB) (c envelopeCases) {
	t.Helper()
	text, err := os.ReadFile("testdata/envelopes.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

const (
	testSession = "5c3f1b8e-9a0d-4c2e-8f4b-2d6a7e9c1b30"
	testRequest = "8d0b6b0e-4d6b-4f7a-9d1c-1f1c7f0e2a10"
	testTime    = 1789812000000 // 2026-09-19T10:00:00Z
)

// request returns a request envelope around a payload.
func request(method string, payload any) map[string]any {
	return map[string]any{
		"jsonrpc": "2.0", "method": method, "id": "rpc-1",
		"params": map[string]any{
			"acs_version": "0.1.0", "request_id": testRequest, "timestamp": "2026-09-19T10:00:00Z",
			"metadata": map[string]any{"agent_id": "agent", "session_id": testSession}, "payload": payload,
		},
	}
}

func hookRecord(value any) *Record {
	method := "steps/other"
	if m, ok := value.(map[string]any); ok {
		if s, ok := m["method"].(string); ok {
			method = s
		}
	}
	rec := &Record{Topic: topics.Hook(method), Partition: 2, Offset: 7, Timestamp: testTime}
	if text, ok := value.(string); ok {
		rec.Value = []byte(text)
	} else {
		rec.Value, _ = json.Marshal(value)
	}
	return rec
}

func decisionRecord(value any) *Record {
	rec := hookRecord(value)
	rec.Topic = topics.Decisions
	rec.Key = []byte(testSession)
	return rec
}

// emitted is one step as it went to prov.steps.
type emitted struct {
	key  string
	text string
	step acs.Step
}

func read(t testing.TB, r *Reader, rec *Record) (Result, []emitted) {
	t.Helper()
	var out []emitted
	result := r.Read(rec, testTime+1000, func(key, value []byte) {
		e := emitted{key: string(key), text: string(value)}
		if err := DecodeStep(&e.step, value); err != nil {
			t.Fatalf("%v: %s", err, value)
		}
		if want := topics.RunKey(e.step.Tenant, e.step.Session); e.key != want {
			t.Errorf("run key %s, want %s", e.key, want)
		}
		out = append(out, e)
	})
	rejected := 0
	for _, e := range out {
		if e.step.Rejected != "" {
			rejected++
		}
	}
	if result.Steps != len(out) || result.Rejected != rejected {
		t.Errorf("%d steps and %d rejected ones counted, %d and %d emitted", result.Steps, result.Rejected, len(out), rejected)
	}
	return result, out
}

func wantAccepted(t *testing.T, r *Reader, name string, rec *Record) {
	t.Helper()
	result, _ := read(t, r, rec)
	if result.DeadLetter != nil || result.Steps+result.Dropped != 1 {
		t.Errorf("%s: %+v, %+v: %s", name, result, result.DeadLetter, rec.Value)
	}
}

func wantDead(t *testing.T, r *Reader, name string, rec *Record, kind, pointer, keyword string) *DeadLetter {
	t.Helper()
	result, _ := read(t, r, rec)
	d := result.DeadLetter
	if d == nil {
		t.Errorf("%s: accepted: %s", name, rec.Value)
		return &DeadLetter{}
	}
	if d.Kind != kind || d.Pointer != pointer || d.Keyword != keyword {
		t.Errorf("%s: got %s %q %s, want %s %q %s", name, d.Kind, d.Pointer, d.Keyword, kind, pointer, keyword)
	}
	if (d.Keyword == "") != (d.Schema == "") || d.Message == "" {
		t.Errorf("%s: %+v", name, *d)
	}
	return d
}

func TestEveryHookAndConstraint(t *testing.T) {
	r := newReader(t, Config{MaxClockSkew: 1 << 60})
	cases := readCases(t)
	for _, h := range cases.Hooks {
		wantAccepted(t, r, h.Method+" minimal", hookRecord(request(h.Method, h.Minimal)))
		wantAccepted(t, r, h.Method+" full", hookRecord(request(h.Method, h.Full)))
		for _, v := range h.Allowed {
			wantAccepted(t, r, h.Method+" "+v.String(), hookRecord(request(h.Method, v.apply(h.Full))))
		}
		for _, v := range h.Violations {
			wantDead(t, r, h.Method+" "+v.String(), hookRecord(request(h.Method, v.apply(h.Full))),
				KindPayload, "/params/payload"+v.Pointer, v.Keyword)
		}
		// A payload that is no object is the envelope's fault.
		wantDead(t, r, h.Method+" array", hookRecord(request(h.Method, []any{})), KindEnvelope, "/params/payload", "type")
	}
	for _, e := range cases.Requests {
		wantAccepted(t, r, e.Name, hookRecord(e.Envelope))
		for _, v := range e.Allowed {
			wantAccepted(t, r, e.Name+" "+v.String(), hookRecord(v.apply(e.Envelope)))
		}
		for _, v := range e.Violations {
			wantDead(t, r, e.Name+" "+v.String(), hookRecord(v.apply(e.Envelope)), KindEnvelope, v.Pointer, v.Keyword)
		}
	}
	for _, e := range cases.Responses {
		wantAccepted(t, r, e.Name, decisionRecord(e.Envelope))
		for _, v := range e.Allowed {
			wantAccepted(t, r, e.Name+" "+v.String(), decisionRecord(v.apply(e.Envelope)))
		}
		for _, v := range e.Violations {
			wantDead(t, r, e.Name+" "+v.String(), decisionRecord(v.apply(e.Envelope)), KindEnvelope, v.Pointer, v.Keyword)
		}
	}
}

// The strict siblings: one data-bearing field without provenance is enough.
func TestProvenanceRequired(t *testing.T) {
	strict, lenient := newReader(t, Config{ProvenanceRequired: true}), newReader(t, Config{})
	p := map[string]any{"provenance_id": "p1", "origin": "user_input"}
	with := map[string]any{"type": "text", "value": 1, "provenance": p}
	without := map[string]any{"type": "text", "value": "x"}
	tool := map[string]any{"name": "t"}
	for _, c := range []struct {
		method  string
		payload map[string]any
		pointer string
		missing int
	}{
		{"steps/userMessage", map[string]any{"content": []any{with, without, without}}, "/content/1", 2},
		{"steps/agentResponse", map[string]any{"content": []any{without}}, "/content/0", 1},
		{"steps/knowledgeRetrieval", map[string]any{"query": map[string]any{"value": "q"}, "results": []any{without}}, "/query", 2},
		{"steps/knowledgeRetrieval", map[string]any{"query": map[string]any{"value": "q", "provenance": p}, "results": []any{without}}, "/results/0", 1},
		{"steps/memoryContextRetrieval", map[string]any{"results": []any{with, without}}, "/results/1", 1},
		{"steps/memoryStore", map[string]any{"content": map[string]any{"value": 1}}, "/content", 1},
		{"steps/toolCallRequest", map[string]any{"tool": tool, "arguments": map[string]any{"b": without, "a": without, "c/~": with}}, "/arguments/a", 2},
		{"steps/toolCallRequest", map[string]any{"tool": tool, "arguments": map[string]any{"b/~%": without}}, "/arguments/b~1~0%", 1},
		{"steps/toolCallResult", map[string]any{"tool": tool, "exit_status": "success", "outputs": []any{without}}, "/outputs/0", 1},
	} {
		rec := hookRecord(request(c.method, c.payload))
		d := wantDead(t, strict, c.method, rec, KindProvenance, "/params/payload"+c.pointer, "required")
		if !strings.HasSuffix(d.Schema, ".acs-provenance.json") {
			t.Errorf("%s: schema %s", c.method, d.Schema)
		}
		if _, out := read(t, strict, rec); len(out) != 1 || out[0].step.Rejected != KindProvenance {
			t.Errorf("%s: it leaves no rejected step: %+v", c.method, out)
		}
		if _, out := read(t, lenient, rec); len(out) != 1 || out[0].step.ProvenanceMissing != c.missing {
			t.Errorf("%s: %d fields without provenance, want %d", c.method, out[0].step.ProvenanceMissing, c.missing)
		}
	}
	// memoryContextRetrieval's query bears no data; sessionStart has none at all.
	wantAccepted(t, strict, "query", hookRecord(request("steps/memoryContextRetrieval",
		map[string]any{"query": map[string]any{"value": "q"}, "results": []any{with}})))
	wantAccepted(t, strict, "start", hookRecord(request("steps/sessionStart", map[string]any{})))
	wantAccepted(t, strict, "unknown", hookRecord(request("steps/other", map[string]any{"content": []any{without}})))
}

func TestSmallestPointerThenKeyword(t *testing.T) {
	r := newReader(t, Config{})
	item := func(extra string) string { return `{"type":"text","value":1` + extra + `}` }
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct{ payload, method, pointer, keyword string }{
		"pointers compare as text": {
			`{"content":[` + strings.Repeat(item("")+",", 2) + `{"type":"text"},` + strings.Repeat(item("")+",", 7) + `{"type":"text"}]}`,
			"steps/userMessage", "/content/10", "required",
		},
		"outer before inner":      {`{"content":[{"type":"bogus"}]}`, "steps/userMessage", "/content/0", "required"},
		"type hides its siblings": {`{"turn_id":7,"triggered_by":"x"}`, "steps/turnStart", "/turn_id", "type"},
		"escaped names":           {`{"tool":{"name":"x"},"arguments":{"a/b~c d%2fé":{}}}`, "steps/toolCallRequest", "/arguments/a~1b~0c d%2fé", "required"},
		"an empty name":           {`{"tool":{"name":"x"},"arguments":{"":{}}}`, "steps/toolCallRequest", "/arguments/", "required"},
		"a long name": {
			`{"tool":{"name":"x"},"arguments":{"` + long + `":{}}}`, "steps/toolCallRequest",
			"/arguments/" + acs.Clamp(long), "required",
		},
	} {
		var payload any
		if err := json.Unmarshal([]byte(c.payload), &payload); err != nil {
			t.Fatal(err)
		}
		wantDead(t, r, name, hookRecord(request(c.method, payload)), KindPayload, "/params/payload"+c.pointer, c.keyword)
	}
	e := request("steps/turnStart", map[string]any{})
	e["extra"] = 1
	delete(e, "id")
	wantDead(t, r, "two keywords at one place", hookRecord(e), KindEnvelope, "", "additionalProperties")
}

func ExampleReader() {
	r, err := NewReader(Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	rec := Record{Topic: "acs.hooks.session-end", Offset: 4, Timestamp: 1789812000000, Value: []byte(`{
		"jsonrpc": "2.0", "id": 1, "method": "steps/sessionEnd",
		"params": {"acs_version": "0.1.0", "request_id": "8d0b6b0e-4d6b-4f7a-9d1c-1f1c7f0e2a10", "timestamp": "2026-09-19T10:00:00Z",
			"metadata": {"agent_id": "a", "session_id": "no uuid"}, "payload": {"reason": "completed"}}}`)}
	result := r.Read(&rec, 1789812000000, func(runKey, value []byte) { fmt.Printf("%s %s\n", runKey, value) })
	fmt.Println(result.DeadLetter.Kind, result.DeadLetter.Pointer, result.DeadLetter.Keyword)
	// Output: envelope /params/metadata/session_id format
}

// The cases of the ACS reference implementation, with the pointers it reports.
func TestReferenceCases(t *testing.T) {
	text, err := os.ReadFile("testdata/request-validation.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases struct {
		Valid   any
		Invalid []struct {
			Name, Remove string
			Set          map[string]any
			Pointer      string `json:"error_pointer"`
		}
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	r := newReader(t, Config{})
	wantAccepted(t, r, "valid", hookRecord(cases.Valid))
	for _, c := range cases.Invalid {
		v := violation{Remove: c.Remove}
		for pointer, value := range c.Set {
			v.Set, v.Value = pointer, value
		}
		result, _ := read(t, r, hookRecord(v.apply(cases.Valid)))
		if d := result.DeadLetter; d == nil || d.Kind != KindEnvelope || d.Pointer != c.Pointer {
			t.Errorf("%s: %+v, want %q", c.Name, d, c.Pointer)
		}
	}
}

// Bad records among good ones change nothing about the good ones, and leave
// nothing behind in the reader.
func TestBadRecordsBetweenGoodOnes(t *testing.T) {
	r := newReader(t, Config{})
	good := hookRecord(envelope)
	bad := []*Record{
		hookRecord("{"), hookRecord(replaced(envelope, "completed", "x")), hookRecord(replaced(envelope, "completed", `\ud800`)),
		decisionRecord(replaced(answer, "allow", "deny")), hookRecord("[" + envelope + ",1]"), decisionRecord("null"),
	}
	_, first := read(t, r, good)
	for i := range 2000 {
		if result, _ := read(t, r, bad[i%len(bad)]); result.DeadLetter == nil {
			t.Fatalf("record %d is accepted", i)
		}
		if _, out := read(t, r, good); len(out) != 1 || out[0].text != first[0].text {
			t.Fatalf("after bad record %d a good one reads otherwise", i)
		}
	}
}
