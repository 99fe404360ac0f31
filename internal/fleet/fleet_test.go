package fleet

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestLineRoundTrip(t *testing.T) {
	for name, r := range map[string]Record{
		"envelope":           {Topic: "acs.hooks.user-message", Key: []byte("k"), TimeMs: 5, Value: []byte(`{"a":1,"a":2, "n":1e400}`)},
		"batch":              {Topic: "t", Key: []byte("k"), TimeMs: 5, Value: []byte(`[{},{}]`)},
		"no key, no value":   {Topic: "t", TimeMs: 5},
		"empty key, value":   {Topic: "t", Key: []byte{}, TimeMs: 5, Value: []byte{}},
		"cut":                {Topic: "t", Key: []byte("k"), Value: []byte(`{"a":`)},
		"a JSON string":      {Topic: "t", Key: []byte("k"), Value: []byte(`"text"`)},
		"the text null":      {Topic: "t", Key: []byte("k"), Value: []byte(`null`)},
		"two lines":          {Topic: "t", Key: []byte("k"), Value: []byte("{\n}")},
		"no UTF-8":           {Topic: "t", Key: []byte{0xff}, Value: []byte("{\"a\":\"\xff\"}")},
		"control characters": {Topic: "t", Key: []byte("\x00\x1f"), Value: []byte("\x00")},
		"lone surrogate":     {Topic: "t", Key: []byte("k"), Value: []byte(`{"a":"\ud834"}`)},
		"deep":               {Topic: "t", Key: []byte("k"), Value: []byte(strings.Repeat("[", 20000) + strings.Repeat("]", 20000))},
		"headers": {Topic: "t", Key: []byte("k"), Value: []byte("{}"), Headers: []Header{
			{"a", []byte("1")}, {"a", []byte("<2>")}, {"b", []byte{0xfe}}, {"c", []byte("x")}, {"n", nil}, {"z", []byte{}}}},
	} {
		text := AppendLine(nil, &r)
		if bytes.Count(text, []byte("\n")) != 1 {
			t.Errorf("%s: not one line: %q", name, text)
		}
		got, err := ParseLine(text)
		if err != nil {
			t.Errorf("%s: %v\n%.300s", name, err, text)
			continue
		}
		if !reflect.DeepEqual(got, r) {
			t.Errorf("%s: got %+v, want %+v", name, got, r)
		}
		kept, err := ParseLine(AppendKept(nil, &r, 3, 17))
		if err != nil || !reflect.DeepEqual(kept, r) {
			t.Errorf("%s: kept: got %+v (%v), want %+v", name, kept, err, r)
		}
	}
}

// What other writers make of it: numbers as keys and headers, times with a point.
func TestLenientLine(t *testing.T) {
	got, err := ParseLine([]byte(`{"topic":"t","key":7,"headers":{"a":1,"b":[null,true]},"time_ms":1.764e12,"value":{}}`))
	want := Record{Topic: "t", Key: []byte("7"), TimeMs: 1764000000000, Value: []byte("{}"),
		Headers: []Header{{"a", []byte("1")}, {"b", nil}, {"b", []byte("true")}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v", got, err)
	}
}

func TestKeptForm(t *testing.T) {
	r := Record{Topic: "prov.dags", Key: []byte("a/b"), TimeMs: 9, Value: []byte(`{"x":"ü"}`), Headers: []Header{{"ce_id", []byte("1")}}}
	const want = `{"topic":"prov.dags","partition":2,"offset":4,"timestamp_ms":9,"key":"a/b","headers":{"ce_id":"1"},"value":"{\"x\":\"ü\"}"}` + "\n"
	if got := string(AppendKept(nil, &r, 2, 4)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

func TestReaderNamesTheLine(t *testing.T) {
	for in, want := range map[string]string{
		"\n{\"topic\":\"t\",\"time_ms\":1}\n{":              "line 3",
		`{"time_ms":1}`:                                     "line 1: member topic is missing",
		`{"topic":"t"}`:                                     "line 1: member time_ms is missing",
		`{"topic":"t","time_ms":1,"headers":{"a":{}}}`:      `line 1: header "a"`,
		`{"topic":"t","time_ms":1.5}`:                       "line 1: member time_ms: 1.5 is no whole number",
		`{"topic":"t","time_ms":1,"key":[]}`:                "line 1: member key",
		`{"topic":"t","time_ms":1,"value_b64":"%"}`:         "line 1",
		`{"topic":"t","time_ms":1,"headers_b64":{"a":"%"}}`: `line 1: header "a"`,
	} {
		r, err := NewReader(strings.NewReader(in))
		for err == nil {
			_, err = r.Next()
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

func TestReaderTakesGzip(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, `{"topic":"t","time_ms":1,"value":{}}`+"\n\n"+`{"topic":"t","time_ms":2,"value":{}}`)
	_ = z.Close()
	r, err := NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		if _, err = r.Next(); err != nil {
			break
		}
		n++
	}
	if n != 2 || !errors.Is(err, io.EOF) {
		t.Errorf("%d records, then %v", n, err)
	}
}

func TestRenameKeepsWhatBelongsTogether(t *testing.T) {
	const a, upper, b = "34b81ca0-b92f-5432-b4ba-bc420e8abc3c", "34B81CA0-B92F-5432-B4BA-BC420E8ABC3C", "95e1dcfd-37cc-595e-b3ad-e8da68a56ef2"
	r := Record{Key: []byte(a), Headers: []Header{{"acs-session-id", []byte(a)}, {"x", []byte("y")}},
		Value: []byte(`{"s":"` + a + `","u":"` + upper + `","t":"` + b + `","x":"-` + a + `-","no":"34b81ca0-b92f-5432-b4ba-bc420e8abc3"`)}
	before := string(r.Value)
	got := Transform{Salt: "1"}.Apply(&r)
	newA := string(got.Key)
	if len(newA) != 36 || newA == a || !isUUID(got.Key) {
		t.Fatalf("key became %q", newA)
	}
	if string(got.Headers[0].Value) != newA || string(got.Headers[1].Value) != "y" || string(r.Headers[0].Value) != a {
		t.Errorf("headers became %q", got.Headers)
	}
	text := string(got.Value)
	if strings.Count(text, newA) != 2 || strings.Contains(text, a) || strings.Contains(text, b) || strings.Contains(text, upper) {
		t.Errorf("value became %s", text)
	}
	if !strings.HasSuffix(text, `"no":"34b81ca0-b92f-5432-b4ba-bc420e8abc3"`) || len(text) != len(before) || string(r.Value) != before {
		t.Errorf("value became %s", text)
	}
	if again := (Transform{Salt: "1"}).Apply(&r); !bytes.Equal(again.Value, got.Value) {
		t.Error("the same salt gave other ids")
	}
	if other := (Transform{Salt: "2"}).Apply(&r); bytes.Equal(other.Value, got.Value) {
		t.Error("another salt gave the same ids")
	}
}

func TestShiftMovesBothTimes(t *testing.T) {
	for in, want := range map[string]string{
		`{"params":{"timestamp":"2025-11-24T16:00:00.052Z","payload":{"timestamp":"2025-11-24T16:00:00Z"}}}`: `{"params":{"timestamp":"2025-11-24T16:00:01.052Z","payload":{"timestamp":"2025-11-24T16:00:00Z"}}}`,
		`[{"timestamp":"2025-11-24T16:00:00Z"}, {"params": {"timestamp" : "2025-11-24T17:00:00.5+01:00"}}]`:  `[{"timestamp":"2025-11-24T16:00:00Z"}, {"params": {"timestamp" : "2025-11-24T16:00:01.500Z"}}]`,
		`{"params":{"timestamp":"2025-11-24T16:00:00Z","payload":`:                                           `{"params":{"timestamp":"2025-11-24T16:00:01.000Z","payload":`,
		`{"params":{"timestamp":"yesterday"}}`:                                                               `{"params":{"timestamp":"yesterday"}}`,
		`{"jsonrpc":"2.0","result":{}}`:                                                                      `{"jsonrpc":"2.0","result":{}}`,
		`[`:                                                                                                  `[`, ``: ``, `x`: `x`, `7`: `7`,
	} {
		r := Record{TimeMs: 10, Value: []byte(in)}
		got := Transform{ShiftMs: 1000}.Apply(&r)
		if string(got.Value) != want || got.TimeMs != 1010 {
			t.Errorf("%s\n got %s (%d)\nwant %s", in, got.Value, got.TimeMs, want)
		}
	}
}

func TestCopies(t *testing.T) {
	const id = "34b81ca0-b92f-5432-b4ba-bc420e8abc3c"
	text := `{"topic":"t","key":"` + id + `","time_ms":1000,"value":{"params":{"timestamp":"1970-01-01T00:00:01Z"}}}` + "\n" +
		`{"topic":"t","key":"` + id + `","time_ms":3000,"value":{}}` + "\n"
	src := FileSource("-", strings.NewReader(text))
	var times []int64
	keys := map[string]int{}
	err := Copies{N: 3, Parallel: 2, LastMs: 100_000}.Each(src, func(r *Record) error {
		times = append(times, r.TimeMs)
		keys[string(r.Key)]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Two rounds of 2 s and a second between them; the last record at 100 s.
	if want := []int64{95000, 95000, 97000, 97000, 98000, 100000}; !reflect.DeepEqual(times, want) {
		t.Errorf("times %v, want %v", times, want)
	}
	if len(keys) != 3 || keys[id] != 2 {
		t.Errorf("keys %v", keys)
	}
	keys = map[string]int{}
	if err := (Copies{N: 2, Salt: "x"}).Each(src, func(r *Record) error { keys[string(r.Key)]++; return nil }); err != nil {
		t.Fatal(err)
	}
	if len(keys) != 2 || keys[id] != 0 {
		t.Errorf("with a salt: keys %v", keys)
	}
}
