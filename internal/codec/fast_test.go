package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"provstream/internal/acs"
	"provstream/internal/acs/schema"
	"provstream/internal/jcs"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"pgregory.net/rapid"
)

// plainReader is a Reader without the fast way.
func plainReader(t testing.TB, cfg Config) *Reader {
	t.Helper()
	r := newReader(t, cfg)
	f := r.fast
	f.request, f.decision, f.failure, f.hello = nil, nil, nil, nil
	return r
}

// both reads a record on both ways, and once more without jsonschema/v5, and
// fails where they differ.
func both(t testing.TB, fast, plain *Reader, rec *Record) Result {
	t.Helper()
	plain.v5PerRecord = 0
	result := compare(t, fast, plain, rec)
	plain.v5PerRecord = v5PerRecord
	compare(t, fast, plain, rec)
	return result
}

func compare(t testing.TB, fast, plain *Reader, rec *Record) Result {
	t.Helper()
	collect := func(r *Reader) (Result, [][]byte) {
		var out [][]byte
		result := r.Read(rec, testTime+1000, func(key, value []byte) {
			out = append(out, bytes.Clone(key), bytes.Clone(value))
		})
		return result, out
	}
	a, fromFast := collect(fast)
	b, fromPlain := collect(plain)
	result := a
	a.Slow, b.Slow = 0, 0
	if !reflect.DeepEqual(a, b) {
		t.Fatalf("fast %+v %+v\nplain %+v %+v\nrecord %q", a, a.DeadLetter, b, b.DeadLetter, rec.Value)
	}
	if len(fromFast) != len(fromPlain) {
		t.Fatalf("%d and %d steps: %q", len(fromFast)/2, len(fromPlain)/2, rec.Value)
	}
	for i := range fromFast {
		if !bytes.Equal(fromFast[i], fromPlain[i]) {
			t.Fatalf("fast  %s\nplain %s\nrecord %q", fromFast[i], fromPlain[i], rec.Value)
		}
	}
	return result
}

// The explainer and jsonschema/v5 tell the same, but for empty member names,
// which v5 leaves out of its locations.
func explainsLikeV5(t testing.TB, x *explainer, sch *jsonschema.Schema, text []byte) {
	t.Helper()
	x.explain(sch, text)
	theirs, ok := validateV5(sch, tree(text))
	if !ok || x.unhandled || x.least.found != theirs.found || x.faults == 0 == theirs.found {
		t.Fatalf("explainer %+v, v5 %+v: %s", x, theirs, text)
	}
	if !bytes.Contains(text, []byte(`"":`)) && x.least != theirs {
		t.Fatalf("explainer %+v, v5 %+v: %s", x.least, theirs, text)
	}
}

// explainAll compares the two on a text, as every kind of document.
func explainAll(t testing.TB, set *schema.Set, x *explainer, text []byte) {
	t.Helper()
	explainsLikeV5(t, x, set.Request, text)
	explainsLikeV5(t, x, set.Response, text)
	payload := part(text, "params", "payload")
	if len(payload) == 0 {
		return
	}
	for _, method := range set.Methods() {
		explainsLikeV5(t, x, set.Payload(method), payload)
		if sch := set.Strict(method); sch != nil {
			explainsLikeV5(t, x, sch, payload)
		}
	}
}

// FuzzExplain holds the explainer, which decides where v5 would be out of
// proportion, to v5 on any JSON, against every schema.
func FuzzExplain(f *testing.F) {
	cases := readCases(f)
	for _, h := range cases.Hooks {
		text, _ := json.Marshal(request(h.Method, h.Full))
		f.Add(text)
	}
	for _, e := range append(cases.Requests, cases.Responses...) {
		text, _ := json.Marshal(e.Envelope)
		f.Add(text)
	}
	set, err := schema.ACS()
	if err != nil {
		f.Fatal(err)
	}
	var x explainer
	f.Fuzz(func(t *testing.T, src []byte) {
		text, err := jcs.Canonicalize(nil, src)
		if err != nil || len(text) > 1<<12 {
			return
		}
		explainAll(t, set, &x, text)
	})
}

func TestExplainerOnEveryCase(t *testing.T) {
	set, err := schema.ACS()
	if err != nil {
		t.Fatal(err)
	}
	var x explainer
	cases := readCases(t)
	canonical := func(v any) []byte {
		text, _ := json.Marshal(v)
		text, err := jcs.Canonicalize(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	for _, h := range cases.Hooks {
		for _, v := range append(h.Allowed, h.Violations...) {
			explainsLikeV5(t, &x, set.Payload(h.Method), canonical(v.apply(h.Full)))
		}
	}
	for _, e := range append(cases.Requests, cases.Responses...) {
		for _, v := range append(e.Allowed, e.Violations...) {
			explainAll(t, set, &x, canonical(v.apply(e.Envelope)))
		}
	}
}

// Every schema that is embedded is known to the fast way: no keyword sends a
// whole hook to jsonschema/v5.
func TestFastPathKnowsEverySchema(t *testing.T) {
	set, err := schema.ACS()
	if err != nil {
		t.Fatal(err)
	}
	for _, strict := range []bool{false, true} {
		f := newFastPath(set, strict)
		if f.request == nil || f.decision == nil || f.failure == nil || f.hello == nil || !f.wrapped.known {
			t.Errorf("an envelope has no tree: %v %v %v %v", f.request, f.decision, f.failure, f.hello)
		}
		for method, p := range f.payloads {
			if !p.known {
				t.Errorf("%s has no tree", method)
			}
		}
	}
}

func TestBothWaysOnEveryCase(t *testing.T) {
	cases := readCases(t)
	for _, cfg := range []Config{
		{}, {ProvenanceRequired: true, UnknownHooksReject: true, TenantTopics: map[string]string{"acs.hooks.turn-end": "x"}},
	} {
		fast, plain := newReader(t, cfg), plainReader(t, cfg)
		for _, h := range cases.Hooks {
			for _, payload := range []any{h.Minimal, h.Full} {
				if result := both(t, fast, plain, hookRecord(request(h.Method, payload))); result.DeadLetter == nil && result.Slow != 0 {
					t.Errorf("%s takes the slow way", h.Method)
				}
			}
			for _, v := range append(h.Allowed, h.Violations...) {
				both(t, fast, plain, hookRecord(request(h.Method, v.apply(h.Full))))
			}
		}
		for _, e := range cases.Requests {
			both(t, fast, plain, hookRecord(e.Envelope))
			for _, v := range append(e.Allowed, e.Violations...) {
				both(t, fast, plain, hookRecord(v.apply(e.Envelope)))
			}
		}
		for _, e := range cases.Responses {
			if result := both(t, fast, plain, decisionRecord(e.Envelope)); result.DeadLetter == nil && result.Slow != 0 {
				t.Errorf("%s takes the slow way", e.Name)
			}
			for _, v := range append(e.Allowed, e.Violations...) {
				both(t, fast, plain, decisionRecord(v.apply(e.Envelope)))
			}
		}
	}
}

func TestBothWaysOnTheFleet(t *testing.T) {
	fast, plain := newReader(t, Config{}), plainReader(t, Config{})
	slow := 0
	for _, rec := range fleetRecords(t) {
		slow += both(t, fast, plain, &rec).Slow
	}
	if slow > 0 {
		t.Errorf("%d envelopes of the fleet take the slow way", slow)
	}
}

// Names, ids and lists of any length are clamped alike.
func TestBothWaysOnLongStrings(t *testing.T) {
	fast, plain := newReader(t, Config{}), plainReader(t, Config{})
	cases := readCases(t)
	rapid.Check(t, func(rt *rapid.T) {
		texts := rapid.SampledFrom([]string{
			strings.Repeat("x", 256), strings.Repeat("x", 257), strings.Repeat("é", 128), strings.Repeat("é", 129),
			strings.Repeat("\"", 200), strings.Repeat("\n", 300), "", "a\"b", "\u0000", strings.Repeat("😀", 100), "short",
		})
		var grow func(v any) any
		grow = func(v any) any {
			switch v := v.(type) {
			case map[string]any:
				m := make(map[string]any)
				for name, item := range v {
					m[name] = grow(item)
				}
				return m
			case []any:
				list := make([]any, len(v))
				for i := range v {
					list[i] = grow(v[i])
				}
				return list
			case string:
				if rapid.IntRange(0, 2).Draw(rt, "grow") == 0 {
					return texts.Draw(rt, "text")
				}
			}
			return v
		}
		h := rapid.SampledFrom(cases.Hooks).Draw(rt, "hook")
		e := request(h.Method, grow(h.Full))
		params := e["params"].(map[string]any)
		params["tenant_id"] = texts.Draw(rt, "tenant")
		params["metadata"].(map[string]any)["turn_id"] = texts.Draw(rt, "turn")
		params["signature"] = map[string]any{"algorithm": "ML-DSA-65", "value": "v", "key_id": texts.Draw(rt, "key")}
		e["id"] = texts.Draw(rt, "id")
		both(t, fast, plain, hookRecord(e))
		e = map[string]any{"jsonrpc": "2.0", "id": texts.Draw(rt, "id"), "result": map[string]any{
			"type": "final", "acs_version": "0.1.0", "request_id": testRequest, "decision": "allow",
			"cited_provenance_ids": []string{texts.Draw(rt, "c1"), texts.Draw(rt, "c2")}, "reason_codes": []string{texts.Draw(rt, "r")},
		}}
		both(t, fast, plain, decisionRecord(e))
	})
}

func TestPatternsByHand(t *testing.T) {
	for pattern, byHand := range map[string]func([]byte) bool{
		patternVersion: matchVersion, patternHash: matchHash, patternMethod: matchMethod,
	} {
		re := regexp.MustCompile(pattern)
		texts := rapid.OneOf(
			rapid.StringMatching(pattern), rapid.StringMatching(`[0-9.]{0,8}`), rapid.StringMatching(`[0-9a-fA-F]{63,65}`),
			rapid.StringMatching(`(steps|agbom|wrapped|trace)[/:]?.{0,2}`), rapid.String(),
		)
		rapid.Check(t, func(t *rapid.T) {
			s := texts.Draw(t, "s")
			if text, _ := json.Marshal(s); bytes.Contains(text, []byte(`\`)) {
				t.Skip() // strings with escapes go to the regular expression
			}
			if re.MatchString(s) != byHand([]byte(s)) {
				t.Fatalf("%s: %q", pattern, s)
			}
		})
	}
	set, err := schema.ACS()
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Request.Properties["method"].Pattern.String(); got != patternMethod {
		t.Errorf("the schema has another pattern for methods: %s", got)
	}
}

// manyMembers is an envelope whose payload has n members, backwards.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%06d":%d,`, n-i, i)
	}
	return replaced(envelope, `"reason"`, b.String()+`"reason"`)
}

// FuzzReader holds the two ways to the same verdict, the same dead letter and
// the same bytes on any input, on a hook topic and on the decisions topic.
func FuzzReader(f *testing.F) {
	cases := readCases(f)
	add := func(v any) {
		text, _ := json.Marshal(v)
		f.Add(text, false)
		f.Add(text, true)
	}
	for _, h := range cases.Hooks {
		add(request(h.Method, h.Full))
		for i, v := range h.Violations {
			if i%7 == 0 {
				add(request(h.Method, v.apply(h.Full)))
			}
		}
	}
	for _, e := range append(cases.Requests, cases.Responses...) {
		add(e.Envelope)
		for i, v := range e.Violations {
			if i%7 == 0 {
				add(v.apply(e.Envelope))
			}
		}
	}
	for _, s := range []string{
		"", "[]", "[1,2]", "[" + envelope + "," + answer + "]", envelope[:len(envelope)/2], strings.Repeat("[", 200),
		strings.Repeat(`{"a":`, 127) + "1" + strings.Repeat("}", 127), replaced(envelope, `"completed"`, "1e-30000000"),
		replaced(envelope, `"completed"`, "1e400"), replaced(envelope, "agent\"", "\xff\""), replaced(envelope, "agent\"", `\ud800"`),
		replaced(envelope, `"reason"`, `"`+strings.Repeat(`a":1,"`, 50)+`b":1,"reason"`), manyMembers(2000),
		replaced(envelope, `"completed"`, "9"+strings.Repeat("9", 308)), replaced(envelope, `"completed"`, "1"+strings.Repeat("0", 400)),
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	cfg := Config{
		MaxValueBytes: 1 << 16, UnknownHooksReject: true, ProvenanceRequired: true,
		TenantTopics: map[string]string{"acs.hooks.other": "acme", "acs.decisions": "acme"},
	}
	fast, plain := newReader(f, Config{}), plainReader(f, Config{})
	strict, strictPlain := newReader(f, cfg), plainReader(f, cfg)
	f.Fuzz(func(t *testing.T, value []byte, decision bool) {
		rec := &Record{Topic: "acs.hooks.other", Timestamp: testTime, Value: value, Key: []byte(testSession)}
		if decision {
			rec.Topic = "acs.decisions"
		}
		result := both(t, fast, plain, rec)
		both(t, strict, strictPlain, rec)
		if d := result.DeadLetter; d != nil && len(d.Pointer) > 4*acs.MaxString+2*len("/params/payload/arguments/provenance") {
			t.Errorf("a pointer of %d bytes", len(d.Pointer))
		}
	})
}

// jsonschema/v5 panics on a json.Number like 1e-30000000; that is caught.
func TestV5GivesNoAnswer(t *testing.T) {
	set, err := schema.ACS()
	if err != nil {
		t.Fatal(err)
	}
	v := map[string]any{"turn_id": "t", "outcome": "completed", "step_count": json.Number("1e-30000000")}
	if least, ok := validateV5(set.Payload(acs.MethodTurnEnd), v); ok {
		t.Errorf("v5 gives an answer (it may have been repaired): %+v", least)
	}
}
