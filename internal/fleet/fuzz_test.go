package fleet

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// What can be read is written and read again as the same record, in both forms.
func FuzzLine(f *testing.F) {
	for _, s := range []string{
		`{"topic":"t","key":"k","headers":{"a":"1","b":["x",null]},"time_ms":1,"value":{"a":1,"a":2}}`,
		`{"topic":"t","key_b64":"/w==","headers_b64":{"a":"/w=="},"timestamp_ms":1e3,"value":"\ud834"}`,
		`{"topic":"t","time_ms":1,"value_b64":"AA=="}`, `{"topic":"t","time_ms":1,"value":[ [ 1e400 ] ]}`, `{`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseLine(text)
		if err != nil {
			return
		}
		for name, line := range map[string][]byte{"line": AppendLine(nil, &r), "kept": AppendKept(nil, &r, 0, 0)} {
			again, err := ParseLine(line)
			if err != nil {
				t.Fatalf("%s: %v: %q", name, err, line)
			}
			if bytes.Count(line, []byte("\n")) != 1 {
				t.Fatalf("%s is not one line: %q", name, line)
			}
			if !reflect.DeepEqual(norm(again), norm(r)) {
				t.Fatalf("%s: %+v became %+v", name, r, again)
			}
		}
	})
}

// norm makes what is written alike equal: no headers and an empty list of them,
// and names that are no UTF-8.
func norm(r Record) Record {
	r.Topic = string(bytes.ToValidUTF8([]byte(r.Topic), []byte("\uFFFD")))
	if len(r.Headers) == 0 {
		r.Headers = nil
	}
	return r
}

// A transform keeps the length of the ids and the form of the text: what was
// JSON stays JSON with the same shape, what was not stays what it was.
func FuzzTransform(f *testing.F) {
	for _, s := range []string{
		`{"params":{"timestamp":"2025-11-24T16:00:00.052Z","request_id":"34b81ca0-b92f-5432-b4ba-bc420e8abc3c"}}`,
		`[{"params":{"timestamp":"2025-11-24T16:00:00+01:00"}}, 7]`, `{"params":`, `--------------------------------------`, ``,
	} {
		f.Add([]byte(s), int64(1000))
	}
	f.Fuzz(func(t *testing.T, value []byte, shift int64) {
		r := Record{Value: bytes.Clone(value)}
		renamed := Transform{Salt: "s"}.Apply(&r)
		if len(renamed.Value) != len(value) || !bytes.Equal(r.Value, value) {
			t.Fatalf("%q became %q, the record %q", value, renamed.Value, r.Value)
		}
		moved := Transform{ShiftMs: shift % (1 << 40)}.Apply(&r)
		if json.Valid(value) != json.Valid(moved.Value) || json.Valid(value) != json.Valid(renamed.Value) {
			t.Fatalf("%q became %q and %q", value, renamed.Value, moved.Value)
		}
		if !bytes.Equal(r.Value, value) {
			t.Fatalf("the record became %q", r.Value)
		}
	})
}
