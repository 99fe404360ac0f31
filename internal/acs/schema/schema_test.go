package schema

import (
	"strings"
	"testing"
	"time"

	"provstream/internal/acs"

	"github.com/santhosh-tekuri/jsonschema/v5"
	"pgregory.net/rapid"
)

func TestCompile(t *testing.T) {
	set, err := ACS()
	if err != nil {
		t.Fatal(err)
	}
	if got := len(set.Methods()); got != 23 { // 19 steps, 2 agbom, ping, handshake
		t.Errorf("%d methods have a payload schema: %v", got, set.Methods())
	}
	strict := 0
	for _, m := range set.Methods() {
		if acs.HookOf(m) == acs.HookUnknown || acs.HookOf(m) == acs.HookWrapped {
			t.Errorf("%s is outside the inventory", m)
		}
		if set.Strict(m) != nil {
			strict++
		}
	}
	if strict != 7 {
		t.Errorf("%d strict siblings, want 7", strict)
	}
	for _, m := range []string{"steps/other", "protocols/MCP/tools/call", "trace/x", ""} {
		if set.Payload(m) != nil || set.Strict(m) != nil {
			t.Errorf("%s has a payload schema", m)
		}
	}
	if jsonschema.Formats["date-time"]("2026-01-01T+1:00:00Z") != true {
		t.Error("the formats of jsonschema/v5 were changed for the whole process (or v5 got stricter)")
	}
}

func TestListAndRead(t *testing.T) {
	names := List()
	if len(names) < 40 {
		t.Errorf("only %d schemas: %v", len(names), names)
	}
	for _, name := range names {
		text, err := Read(name)
		if err != nil || len(text) == 0 {
			t.Errorf("%s: %v", name, err)
		}
		if strings.HasPrefix(name, "outputs/") {
			if _, err := CompileOutput(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if !strings.Contains(string(text), `"$id": "`+Base+name+`"`) {
			t.Errorf("%s: its $id is not %s%s", name, Base, name)
		}
	}
}

func TestParseInstant(t *testing.T) {
	for text, want := range map[string]string{
		"2026-11-29T10:00:00Z":              "2026-11-29T10:00:00.000Z",
		"2026-11-29t10:00:00z":              "2026-11-29T10:00:00.000Z",
		"2026-11-29T10:00:00.1Z":            "2026-11-29T10:00:00.100Z",
		"2026-11-29T10:00:00.1239999Z":      "2026-11-29T10:00:00.123Z",
		"2026-11-29T10:00:00.000000001Z":    "2026-11-29T10:00:00.000Z",
		"2026-11-29T10:00:00+05:30":         "2026-11-29T04:30:00.000Z",
		"2026-11-29T10:00:00-00:00":         "2026-11-29T10:00:00.000Z",
		"2024-02-29T00:00:00Z":              "2024-02-29T00:00:00.000Z",
		"2000-02-29T23:59:59.999-23:59":     "2000-03-01T23:58:59.999Z",
		"1969-12-31T23:59:59.9999Z":         "1969-12-31T23:59:59.999Z",
		"0000-01-01T00:00:00Z":              "0000-01-01T00:00:00.000Z",
		"0000-03-01T00:00:00Z":              "0000-03-01T00:00:00.000Z",
		"9999-12-31T23:59:59.999Z":          "9999-12-31T23:59:59.999Z",
		"1990-12-31T23:59:60Z":              "1991-01-01T00:00:00.000Z",
		"1990-12-31T15:59:60.5-08:00":       "1991-01-01T00:00:00.500Z",
		"1991-01-01T07:59:60+08:00":         "1991-01-01T00:00:00.000Z",
		"2026-11-29T10:00:00.123456789012Z": "2026-11-29T10:00:00.123Z",
	} {
		ms, ok := ParseInstant(text)
		if got := time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z"); !ok || got != want {
			t.Errorf("%s: got %s, %v; want %s", text, got, ok, want)
		}
		if b, ok := ParseInstant([]byte(text)); b != ms || !ok {
			t.Errorf("%s: read otherwise as bytes", text)
		}
	}
	for _, text := range []string{
		"", "yesterday", "2026-11-29", "2026-11-29T10:00:00", "2026-11-29 10:00:00Z", "2026-11-29T10:00Z",
		"2026-11-29T10:00:00.Z", "2026-11-29T10:00:00,5Z", "2026-11-29T10:00:00ZZ", "2026-11-29T10:00:00Z ",
		"2026-11-29T+1:00:00Z", "2026-11-29T1:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z",
		"2026-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-01-00T00:00:00Z",
		"2026-11-29T24:00:00Z", "2026-11-29T10:60:00Z", "2026-11-29T10:00:61Z", "2026-11-29T10:00:60Z",
		"2026-11-29T23:59:60+01:00", "2026-11-29T23:59:60-00:01", "2026-11-29T10:00:00+24:00", "2026-11-29T10:00:00+01:60",
		"2026-11-29T10:00:00+0100", "2026-11-29T10:00:00+1:00", "+026-11-29T10:00:00Z", "2026-+1-29T10:00:00Z",
		"2026-11-29T10:00:00.12", "2026-11-29T10:00:00.12a", "2026-11-29T10:00:0\xb2Z", "2026-11-29T10:00:00\u2212 01:00",
	} {
		if ms, ok := ParseInstant(text); ok {
			t.Errorf("%s: read as %d", text, ms)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMilli(rapid.Int64Range(-62167219200000, 253402300799999).Draw(t, "ms")).In(
			time.FixedZone("", 60*rapid.IntRange(-23*60-59, 23*60+59).Draw(t, "offset")))
		text := at.Format("2006-01-02T15:04:05.999Z07:00")
		if len(text) < 20 || text[4] != '-' { // the offset led out of the four-digit years
			t.Skip()
		}
		if ms, ok := ParseInstant(text); !ok || ms != at.UnixMilli() {
			t.Fatalf("%s: got %d, %v; want %d", text, ms, ok, at.UnixMilli())
		}
	})
}

func FuzzParseInstant(f *testing.F) {
	f.Add("2026-11-29T10:00:00.123+05:30")
	f.Add("1990-12-31T15:59:60-08:00")
	f.Fuzz(func(t *testing.T, s string) {
		ms, ok := ParseInstant(s)
		if ok != jsonschema.Formats["date-time"](s) && ok {
			t.Fatalf("%q: accepted here, and not by jsonschema/v5", s)
		}
		if at, err := time.Parse(time.RFC3339Nano, s); err == nil && ok && at.UnixMilli() != ms {
			t.Fatalf("%q: %d, time has %d", s, ms, at.UnixMilli())
		}
	})
}
