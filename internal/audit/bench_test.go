package audit

import (
	"bytes"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"provstream/internal/evidence/evidencetest"
	"provstream/internal/kindgi/kindgitest"
)

// BenchmarkKeptLine is what reading a line of `demo --keep` costs beside the
// verification of what is in it.
func BenchmarkKeptLine(b *testing.B) {
	line := bytes.TrimSpace(evidencetest.JSONL([]evidencetest.Line{{Topic: "prov.dags", Key: "k", Headers: map[string]string{"ce_id": "x"}, Value: string(kindgitest.DAG(kindgitest.Options{Seed: 1, Turns: 7, Tools: 2}))}}))
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		i := Item{Line: 1, Text: line}
		if r := i.record(); !r.Placed {
			b.Fatal("not a kept line")
		}
	}
}

// FuzzKeptLine holds the fast reading of a line against the strict one: what
// both take is the same record.
func FuzzKeptLine(f *testing.F) {
	for _, s := range []string{
		`{"topic":"t","partition":1,"offset":2,"timestamp_ms":3,"key":"k","headers":{"a":"b","c":"d\n"},"value":"{\"x\":\"\\u00e9 é\\n\\\"\"}"}`,
		`{"topic":"t","partition":1,"offset":2,"key":null,"headers":{},"value":null}`,
		`{"topic":"t","partition":-1,"offset":2,"key":"","headers":{"a":"\ud83d\ude00"},"value":"\/\b\f\r\t"}`,
		`{"topic":"t","partition":1,"offset":2,"key":"k","headers":{"a":"b","a":"c"},"value":"x"}`,
		`{"topic":"t","value":"x","value":"y"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fast, ok := keptLine(text)
		var k kept
		if err := json.Unmarshal(text, &k); !ok || err != nil || !utf8.Valid(text) {
			return // the fast way takes some that are no JSON; what is in them is verified
		}
		var value string
		if json.Unmarshal(k.Value, &value) != nil {
			t.Fatalf("%q: no value", text)
		}
		want := headers(k.Headers)
		if fast.Topic != *k.Topic || fast.Partition != k.Partition || fast.Offset != k.Offset || string(fast.Value) != value || fast.Keyed != (k.Key != nil) || fast.Keyed && string(fast.Key) != *k.Key {
			t.Errorf("%q: %+v", text, fast)
		}
		if len(want)+len(fast.Headers) > 0 && !reflect.DeepEqual(fast.Headers, want) {
			t.Errorf("%q: headers %q, want %q", text, fast.Headers, want)
		}
	})
}
