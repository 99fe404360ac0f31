package codec

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"provstream/internal/acs"
	"provstream/internal/jcs"

	"pgregory.net/rapid"
)

// drawStep draws a step with any of its fields set.
func drawStep(t *rapid.T) *acs.Step {
	text := rapid.Map(rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9"\\/-]{0,40}`)),
		func(s string) string { return strings.ToValidUTF8(s, "") })
	number := rapid.Custom(func(t *rapid.T) acs.Number {
		if !rapid.Bool().Draw(t, "set") {
			return acs.Number{}
		}
		return acs.Number{Set: true, Value: drawFloat(t)}
	})
	jsonText := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return ""
		case 1:
			return "null"
		case 2:
			return string(jcs.AppendNumber(nil, drawFloat(t)))
		}
		return string(jcs.AppendString(nil, text.Draw(t, "text")))
	})
	instant := rapid.Int64Range(-1<<53, 1<<53)
	hash := func() (h acs.Hash) {
		copy(h[:], rapid.SliceOfN(rapid.Byte(), len(h), len(h)).Draw(t, "hash"))
		return h
	}
	s := new(acs.Step)
	v := reflect.ValueOf(s).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		switch f := v.Field(i).Addr().Interface().(type) {
		case *string:
			*f = text.Draw(t, name)
			if name == "ID" || name == "InnerID" {
				*f = jsonText.Draw(t, name)
			}
			if (name == "Tenant" || name == "Session") && *f == "" {
				*f = "x"
			}
		case *bool:
			*f = rapid.Bool().Draw(t, name)
		case *acs.Number:
			*f = number.Draw(t, name)
		case *acs.Hash:
			*f = hash()
		case *int64:
			*f = instant.Draw(t, name)
		case *int:
			*f = rapid.IntRange(0, 1000).Draw(t, name)
		case *[]string:
			*f = rapid.SliceOfN(text, 0, 4).Draw(t, name)
		case *acs.RecordType:
			*f = rapid.SampledFrom([]acs.RecordType{acs.TypeStep, acs.TypeDecision}).Draw(t, name)
		case *acs.Coordinates:
			*f = acs.Coordinates{
				Topic: "t" + text.Draw(t, "topic"), Partition: rapid.Int32().Draw(t, "partition"),
				Offset: instant.Draw(t, "offset"), Index: rapid.Int32Range(-1, math.MaxInt32).Draw(t, "index"),
			}
		case *[]acs.Provenance:
			for range rapid.IntRange(0, 3).Draw(t, name) {
				*f = append(*f, acs.Provenance{
					ID: text.Draw(t, "id"), Origin: text.Draw(t, "origin"), SourceID: text.Draw(t, "source"),
					DerivedFrom: rapid.SliceOfN(text, 0, 3).Draw(t, "derived"),
				})
			}
		case **acs.DeclaredSummary:
			if rapid.Bool().Draw(t, name) {
				*f = drawSummary(t, text)
			}
		default:
			t.Fatalf("no generator for field %s", name)
		}
	}
	return s
}

func drawFloat(t *rapid.T) float64 {
	f := rapid.OneOf(rapid.Float64(), rapid.Map(rapid.IntRange(-10, 1000), func(n int) float64 { return float64(n) })).Draw(t, "f")
	if math.IsNaN(f) || math.IsInf(f, 0) || f == 0 {
		return 0
	}
	return f
}

func drawSummary(t *rapid.T, text *rapid.Generator[string]) *acs.DeclaredSummary {
	d := &acs.DeclaredSummary{
		HasOriginsSeen: rapid.Bool().Draw(t, "o"), HasEntryCount: rapid.Bool().Draw(t, "c"),
		HasEntryCountByOrigin: rapid.Bool().Draw(t, "co"), HasEarliestStepIDByOrigin: rapid.Bool().Draw(t, "e"),
		HasMaxLineageDepth: rapid.Bool().Draw(t, "m"),
	}
	keys := rapid.SliceOfNDistinct(text, 0, 3, rapid.ID[string]).Draw(t, "keys")
	slices.SortFunc(keys, jcs.CompareNames)
	if d.HasOriginsSeen {
		d.OriginsSeen = keys
	}
	if d.HasEntryCount {
		d.EntryCount = drawFloat(t)
	}
	if d.HasMaxLineageDepth {
		d.MaxLineageDepth = drawFloat(t)
	}
	for _, k := range keys {
		if d.HasEntryCountByOrigin {
			d.EntryCountByOrigin = append(d.EntryCountByOrigin, acs.OriginValue{Origin: k, Count: drawFloat(t)})
		}
		if d.HasEarliestStepIDByOrigin {
			d.EarliestStepIDByOrigin = append(d.EarliestStepIDByOrigin, acs.OriginValue{Origin: k, StepID: text.Draw(t, "step")})
		}
	}
	return d
}

// same compares two steps; an empty list and none are the same.
func same(a, b *acs.Step) bool {
	return reflect.DeepEqual(withoutEmpty(*a), withoutEmpty(*b))
}

func withoutEmpty(s acs.Step) acs.Step {
	s.Provenance = slices.Clone(s.Provenance)
	for i := range s.Provenance {
		s.Provenance[i].DerivedFrom = noneIfEmpty(s.Provenance[i].DerivedFrom)
	}
	s.Provenance = noneIfEmpty(s.Provenance)
	s.EntriesToCompact = noneIfEmpty(s.EntriesToCompact)
	s.EntriesCompacted = noneIfEmpty(s.EntriesCompacted)
	s.ReasonCodes = noneIfEmpty(s.ReasonCodes)
	s.Cited = noneIfEmpty(s.Cited)
	if s.DeclaredSummary != nil {
		d := *s.DeclaredSummary
		d.OriginsSeen = noneIfEmpty(d.OriginsSeen)
		s.DeclaredSummary = &d
	}
	return s
}

func noneIfEmpty[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}

func TestStepRoundTrip(t *testing.T) {
	var back acs.Step // one for all, as the aggregator uses it
	rapid.Check(t, func(t *rapid.T) {
		s := drawStep(t)
		value := AppendStep([]byte("x"), s)[1:]
		canonical, err := jcs.Canonicalize(nil, value)
		if err != nil || !bytes.Equal(canonical, value) {
			t.Fatalf("not canonical: %s, %v", value, err)
		}
		if err := DecodeStep(&back, value); err != nil {
			t.Fatalf("%v: %s", err, value)
		}
		if !same(s, &back) {
			t.Fatalf("in  %+v\nout %+v\ntext %s", s, &back, value)
		}
		if again := AppendStep(nil, &back); !bytes.Equal(again, value) {
			t.Fatalf("in  %s\nout %s", value, again)
		}
		// Another spelling of the same JSON reads the same.
		var v any
		if err := json.Unmarshal(value, &v); err != nil {
			t.Fatal(err)
		}
		spelt, _ := json.MarshalIndent(v, " ", "  ")
		if err := DecodeStep(&back, spelt); err != nil || !same(s, &back) {
			t.Fatalf("%v: %s", err, spelt)
		}
		if _, ok := DecodeTick(value); ok {
			t.Fatal("a step is no tick")
		}
	})
}

func exampleStep() *acs.Step {
	return &acs.Step{
		Tenant: "acme-air", Session: "34b81ca0-b92f-5432-b4ba-bc420e8abc3c", StepID: "faba2273-f423-5a25-9da9-3c06199c46fb",
		ID: `"faba2273-f423-5a25-9da9-3c06199c46fb"`, EventTime: 1764000001523, RecordedAt: 1764000001523,
		Coordinates: acs.Coordinates{Topic: "acs.hooks.tool-call-request", Partition: 3, Offset: 123456, Index: -1},
		RequestHash: sha256.Sum256([]byte("a")), ContentHash: sha256.Sum256([]byte("b")),
		Method: acs.MethodToolCallRequest, AgentID: "airline-agent-0", TurnID: "t-1", Environment: "production",
		Platform: "tau-airline", PlatformVersion: "1.4.0", Tool: "get_user_details", Capability: "crm.read",
		Provenance: []acs.Provenance{{ID: "p2", Origin: "agent_generated", SourceID: "gpt-4o", DerivedFrom: []string{"p1"}}},
	}
}

func TestDecodeStepRefuses(t *testing.T) {
	good := string(AppendStep(nil, exampleStep()))
	var s acs.Step
	if err := DecodeStep(&s, []byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"empty": "", "null": "null", "array": "[]", "tick": `{"tick":1}`, "no members": "{}",
		"trailing":        good + "x",
		"two":             good + good,
		"hash upper case": strings.ReplaceAll(good, "ca9", "CA9"),
		"hash short":      strings.Replace(good, `"content_hash":"3`, `"content_hash":"`, 1),
		"no session":      strings.Replace(good, `"session":"34b81ca0-b92f-5432-b4ba-bc420e8abc3c",`, "", 1),
		"no type":         strings.Replace(good, `,"type":"step"`, "", 1),
		"another type":    strings.Replace(good, `"type":"step"`, `"type":"stop"`, 1),
		"wrong type":      strings.Replace(good, `"tool":"get_user_details"`, `"tool":7`, 1),
		"a fraction":      strings.Replace(good, `"offset":123456`, `"offset":1.5`, 1),
		"huge":            strings.Replace(good, `"offset":123456`, `"offset":1e300`, 1),
		"twice":           strings.Replace(good, `"tool":`, `"tool":"x","tool":`, 1),
		"bad UTF-8":       strings.Replace(good, "acme", "\xff", 1),
		"control":         strings.Replace(good, "acme", "\n", 1),
		"false flag":      strings.Replace(good, `"type"`, `"skewed":false,"type"`, 1),
		"no id inside":    strings.Replace(good, `"provenance_id":"p2",`, "", 1),
	} {
		if err := DecodeStep(&s, []byte(value)); err == nil {
			t.Errorf("%s: accepted: %s", name, value)
		}
	}
	for i := range good {
		if err := DecodeStep(&s, []byte(good[:i])); err == nil {
			t.Errorf("truncated to %d bytes: accepted", i)
		}
	}
	later := strings.Replace(good, `"tool":`, `"thing":{"a":[1,"]"]},"tool":`, 1)
	if err := DecodeStep(&s, []byte(later)); err != nil || s.Tool != "get_user_details" || s.Tenant != "acme-air" {
		t.Errorf("a member of a later version: %v", err)
	}
}

func TestTick(t *testing.T) {
	for _, n := range []int64{0, 1, -1, 1764000001523} {
		value := AppendTick(nil, n)
		if got, ok := DecodeTick(value); !ok || got != n {
			t.Errorf("%s: %d, %v", value, got, ok)
		}
	}
	for _, value := range []string{"", "{}", `{"tick":}`, `{"tick":1`, `{"tick":1}}`, `{"tick":1.5}`, `{"tick":"1"}`, `{"tick":1e3}`, `{"tick":01}`} {
		if got, ok := DecodeTick([]byte(value)); ok {
			t.Errorf("%s: read as %d", value, got)
		}
	}
}

func FuzzDecodeStep(f *testing.F) {
	f.Add(AppendStep(nil, exampleStep()))
	f.Add([]byte(`{"content_hash":"","id":"\u0061"}`))
	var s, again acs.Step
	f.Fuzz(func(t *testing.T, value []byte) {
		DecodeTick(value)
		if DecodeStep(&s, value) != nil {
			return
		}
		out := AppendStep(nil, &s)
		if err := DecodeStep(&again, out); err != nil || !same(&s, &again) {
			t.Fatalf("%q reads as %+v, which is written %q: %v", value, &s, out, err)
		}
	})
}

func BenchmarkStep(b *testing.B) {
	s := exampleStep()
	value := AppendStep(nil, s)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(value)))
		for b.Loop() {
			value = AppendStep(value[:0], s)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(len(value)))
		var s acs.Step
		for b.Loop() {
			if err := DecodeStep(&s, value); err != nil {
				b.Fatal(err)
			}
		}
	})
}
