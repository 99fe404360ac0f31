package kindgi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"provstream/internal/jcs"
	"provstream/internal/kindgi/kindgitest"
)

func sample() []byte { return kindgitest.DAG(kindgitest.Options{Seed: 3, Turns: 2, Tools: 1}) }

func TestReadKeepsWhatIsThere(t *testing.T) {
	text := sample()
	var r Reader
	if err := r.Read(text); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		ID, RunID, TenantID, CreatedAt string
		Nodes                          []struct{ ID, Kind, ContentHash string }
		Edges                          []struct{ From, To, Kind string }
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if r.Text(r.ID) != doc.ID || r.Text(r.RunID) != doc.RunID || r.Text(r.TenantID) != doc.TenantID || r.Text(r.CreatedAt) != doc.CreatedAt || r.Signed {
		t.Errorf("read %+v", r)
	}
	if len(r.Nodes) != len(doc.Nodes) || len(r.Edges) != len(doc.Edges) {
		t.Fatalf("%d nodes, %d edges", len(r.Nodes), len(r.Edges))
	}
	for i, n := range doc.Nodes {
		if r.Text(r.Nodes[i].ID) != n.ID || r.Text(r.Nodes[i].Kind) != n.Kind || r.Text(r.Nodes[i].ContentHash) != n.ContentHash {
			t.Errorf("node %d", i)
		}
	}
	for i, e := range doc.Edges {
		if doc.Nodes[r.Edges[i].From].ID != e.From || doc.Nodes[r.Edges[i].To].ID != e.To || r.Edges[i].Kind() != e.Kind {
			t.Errorf("edge %d", i)
		}
	}
	if got, want := string(r.AppendSigningBytes(nil)), strings.TrimSuffix(string(text), `,"version":"1.0.0"}`)+"}"; got != want {
		t.Error("signing bytes")
	}
	head, tail := r.UnsignedParts()
	if !bytes.Equal(append(bytes.Clone(head), tail...), text) {
		t.Error("unsigned parts")
	}
}

// A document with a segment before it, and one that claims wrongly.
func TestSegmentNode(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	o := kindgitest.Options{Seed: 4, Turns: 1, First: 41, Previous: "run-1." + hash[:32], PreviousHash: hash}
	text := kindgitest.DAG(o)
	var r Reader
	if err := r.Read(text); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new string }{
		{hash + `"`, strings.Repeat("ac", 32) + `"`}, // the contentHash
		{`"dag_id":"run-1.`, `"dag_id":"run-2.`},
		{`"segment":0`, `"segmen":0`},
		{`"kind":"artifact"`, `"kind":"event"`},
	} {
		bad := bytes.Replace(text, []byte(c.old), []byte(c.new), 1)
		var e *Error
		if err := r.Read(bad); !errors.As(err, &e) || e.Class != ClassGraph && e.Class != ClassCanonical {
			t.Errorf("%s: %v", c.old, err)
		}
	}
}

// naive is the reference for Read: canonicaliser, JSON Schema, maps and depth
// first search.
func naive(text []byte) error {
	canonical, err := jcs.Canonicalize(nil, text)
	if err != nil {
		return err
	}
	if !bytes.Equal(canonical, text) {
		return errors.New("not canonical")
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		return err
	}
	if err := compiled().Validate(doc); err != nil {
		return errors.New("schema")
	}
	m := doc.(map[string]any)
	if m["version"] != Version {
		return errors.New("version")
	}
	causes := map[string][]string{}
	for _, n := range m["nodes"].([]any) {
		id := n.(map[string]any)["id"].(string)
		if _, twice := causes[id]; twice {
			return errors.New("node id twice")
		}
		causes[id] = []string{}
	}
	for _, e := range m["edges"].([]any) {
		from, to := e.(map[string]any)["from"].(string), e.(map[string]any)["to"].(string)
		if causes[from] == nil || causes[to] == nil {
			return errors.New("edge to nowhere")
		}
		causes[from] = append(causes[from], to)
	}
	state := map[string]int{}
	var visit func(string) bool
	visit = func(id string) bool {
		switch state[id] {
		case 1:
			return false
		case 2:
			return true
		}
		state[id] = 1
		for _, c := range causes[id] {
			if !visit(c) {
				return false
			}
		}
		state[id] = 2
		return true
	}
	for id := range causes {
		if !visit(id) {
			return errors.New("cycle")
		}
	}
	return nil
}

// agree holds the Reader against the reference. Date-times are the Reader's
// own: those of the schema library take more than RFC 3339 does.
func agree(t *testing.T, text []byte) {
	t.Helper()
	r := Reader{Foreign: true}
	err := r.Read(text)
	want := naive(text)
	var e *Error
	switch {
	case err == nil && want != nil:
		t.Errorf("accepted, the reference says %v: %q", want, text)
	case err != nil && want == nil && (!errors.As(err, &e) || !strings.Contains(e.Detail, "time")):
		t.Errorf("refused (%v), the reference accepts: %q", err, text)
	}
	if err == nil && len(text) > 0 {
		// What is signed and what is hashed are made of these bytes alone.
		head, tail := r.UnsignedParts()
		if again, err := jcs.Canonicalize(nil, r.AppendSigningBytes(nil)); err != nil || !bytes.Equal(again, r.AppendSigningBytes(nil)) {
			t.Errorf("the signing bytes are not canonical: %q", text)
		}
		if un := append(bytes.Clone(head), tail...); bytes.Contains(un, []byte(`,"signature":{"algorithm"`)) && r.Signed && len(un) >= len(text) {
			t.Errorf("the signature is still there: %q", text)
		}
	}
}

// mutations are documents near a good one.
func mutations(text []byte, step int) [][]byte {
	out := [][]byte{text}
	tokens := []string{`,`, `"`, `{`, `}`, `[`, `]`, `:`, ` `, `\u0000`, `\n`, `é`, "\xc3", "\xed\xa0\x80", `1e3`, `0`, `-0`, `1.50`, `null`, `"a":1,`, `\/`, `\u00e9`, `\u001F`, "\x7f", "\x1f", "\U0001F600"}
	for i := 0; i < len(text); i += step {
		out = append(out, slices.Delete(bytes.Clone(text), i, i+1), append(append(bytes.Clone(text[:i]), text[i]^1), text[i+1:]...))
		t := tokens[(i/step)%len(tokens)]
		out = append(out, slices.Concat(text[:i], []byte(t), text[i:]))
	}
	return out
}

func small() []byte {
	attributes := `{"_":1e-7,"a":[1,-1,0.1,1e+21,333333333.3333333,"\u000f\n€",true,false,null],"b":{"":[],"é":{},"😀":1,"דּ":2},"n":123456789012345680000}`
	nodes := `[{"attributes":` + attributes + `,"id":"a","kind":"input","timestamp":"2026-01-02T03:04:05.678Z"},{"actor":"x","contentHash":"sha256:` +
		strings.Repeat("0f", 32) + `","contentRef":"","id":"b\"","kind":"wait","modelVersion":"m","policyDecisionId":"","timestamp":"2026-01-02t00:59:60.1+01:00"}]`
	text, err := jcs.Canonicalize(nil, []byte(`{"createdAt":"2026-01-02T03:04:05Z","edges":[{"from":"b\"","kind":"waited-on","to":"a"}],"flowRef":{"id":"","version":"2"},"id":"x","nodes":`+nodes+
		`,"runId":"r","signature":{"algorithm":"ed25519","keyId":"","signedAt":"2026-01-02T03:04:05Z","value":"AA=="},"tenantId":"t\\","version":"1.0.0"}`))
	if err != nil {
		panic(err)
	}
	return text
}

func TestReadAgreesWithTheReference(t *testing.T) {
	for step, text := range map[int][]byte{2: small(), 29: sample()} {
		if err := naive(text); err != nil {
			t.Fatalf("the sample itself: %v", err)
		}
		for _, m := range mutations(text, step) {
			agree(t, m)
		}
	}
	deep := func(n int) []byte {
		return bytes.Replace(small(), []byte(`{"_":1e-7,`), []byte(`{"A":`+strings.Repeat("[", n)+strings.Repeat("]", n)+`,"_":1e-7,`), 1)
	}
	for n := 120; n < 128; n++ {
		agree(t, deep(n))
	}
}

func FuzzRead(f *testing.F) {
	f.Add(small())
	f.Add(sample())
	for _, m := range mutations(small(), 3)[:300] {
		f.Add(m)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		agree(t, text)
		var r Reader
		if r.Read(text) == nil {
			foreign := Reader{Foreign: true}
			if err := foreign.Read(text); err != nil {
				t.Errorf("a DAG of ours is no DAG: %v", err)
			}
		}
	})
}

// Member order, escapes and numbers of the shared canonicalisation cases, as
// values of an attribute.
func TestCanonicalCases(t *testing.T) {
	text, err := os.ReadFile("testdata/canonical.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct{ ID, Canonical string }
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		doc := bytes.Replace(small(), []byte(`{"_":1e-7,`), fmt.Appendf(nil, `{"A":%s,"_":1e-7,`, c.Canonical), 1)
		r := Reader{Foreign: true}
		if err := r.Read(doc); err != nil {
			t.Errorf("%s: %v", c.ID, err)
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	good := string(small())
	for _, c := range []struct {
		class    Class
		path     string
		old, new string
	}{
		{ClassStrict, "", `"tenantId"`, `"tenantId":1,"tenantId"`},
		{ClassCanonical, "", `{"createdAt"`, `{ "createdAt"`},
		{ClassVersion, "/version", `"version":"1.0.0"`, `"version":"1.0.1"`},
		{ClassSchema, "/nodes/0/kind", `"kind":"input"`, `"kind":"output"`},
		{ClassSchema, "/nodes/1", `"actor":"x"`, `"acting":"x"`},
		{ClassSchema, "/edges/0/kind", `"waited-on"`, `"waits"`},
		{ClassSchema, "/signature/algorithm", `"ed25519"`, `"ed448"`},
		{ClassSchema, "/runId", `"runId":"r"`, `"runId":""`},
		{ClassGraph, "/edges/0/to", `"to":"a"`, `"to":"c"`},
		{ClassGraph, "/nodes/1/id", `"id":"b\""`, `"id":"a"`},
	} {
		r := Reader{Foreign: true}
		err := r.Read([]byte(strings.Replace(good, c.old, c.new, 1)))
		var e *Error
		if !errors.As(err, &e) || e.Class != c.class || e.Path != c.path {
			t.Errorf("%s: class %d at %q: %v", c.new, c.class, c.path, err)
		}
	}
}

func TestTimes(t *testing.T) {
	for s, want := range map[string][2]bool{ // ours, RFC 3339
		"2026-11-29T21:46:49.000Z": {true, true}, "2024-02-29T00:00:00.999Z": {true, true}, "2023-02-29T00:00:00.000Z": {},
		"2026-13-01T00:00:00.000Z": {}, "2026-00-01T00:00:00.000Z": {}, "2026-01-32T00:00:00.000Z": {}, "2026-01-00T00:00:00.000Z": {},
		"2026-01-01T24:00:00.000Z": {}, "2026-01-01T00:60:00.000Z": {}, "2026-01-01T00:00:60.000Z": {}, "2026-01-01T23:59:60.000Z": {false, true}, "2026-01-01T00:29:60+00:30": {false, true}, "2026-01-01T22:59:60-01:00": {false, true}, "2026-01-01T23:59:60-01:00": {}, "2026-01-01T00:00:61.000Z": {},
		"2026-01-01T00:00:00Z": {false, true}, "2026-01-01T00:00:00.0Z": {false, true}, "2026-01-01t00:00:00.000z": {false, true},
		"2026-01-01T00:00:00.000+01:00": {false, true}, "2026-01-01T00:00:00.Z": {}, "2026-01-01T00:00:00,000Z": {}, "2026-01-01 00:00:00.000Z": {},
		"2026-01-01T0:00:00.000Z": {}, "2026-01-01T00:00:00.000": {}, "2026-01-01T00:00:00.000+24:00": {}, "2100-02-29T00:00:00.000Z": {}, "2000-02-29T00:00:00.000Z": {true, true},
		"": {}, "2026-01-01T00:00:00.000é": {},
	} {
		if got := [2]bool{validTime([]byte(s)), rfc3339([]byte(s))}; got != want {
			t.Errorf("%s: %v, want %v", s, got, want)
		}
	}
}

// A long document with a fault in every node costs no more than its length.
func TestLongFaultyDocument(t *testing.T) {
	text := kindgitest.DAG(kindgitest.Options{Seed: 1, Turns: 90, Tools: 2})
	if len(text) < maxDiagnosed {
		t.Fatalf("%d bytes", len(text))
	}
	bad := bytes.ReplaceAll(text, []byte(`"kind":"event"`), []byte(`"kind":"thing"`))
	var r Reader
	err := r.Read(bad)
	var e *Error
	if !errors.As(err, &e) || e.Class != ClassSchema || e.Path != "/nodes/0" {
		t.Errorf("%v", err)
	}
	bad = bytes.Replace(text, []byte(`"kind":"caused-by"`), []byte(`"kind":"thing"`), 1)
	if err := r.Read(bad); !errors.As(err, &e) || e.Class != ClassSchema || e.Path != "/edges/0" {
		t.Errorf("%v", err)
	}
}
