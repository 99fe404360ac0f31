package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"provstream/internal/evidence/evidencetest"
	"provstream/verify"
)

// hooks is one hook partition: its first offset, and its records. Offsets that
// are not in it are control records.
type hooks struct {
	start   int64
	records map[int64]string
}

func (h hooks) Start(context.Context, string, int32) (int64, error) { return h.start, nil }

func (h hooks) Read(_ context.Context, _ string, _ int32, from, to int64, fn func(int64, []byte) error) error {
	for o := from; o < to; o++ {
		if v, ok := h.records[o]; ok {
			if err := fn(o, []byte(v)); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestValues(t *testing.T) {
	h := hooks{records: map[int64]string{}}
	v := func() *Values {
		x := NewValues()
		for from := int64(0); from < 40; from += 10 {
			c := verify.Coverage{Topic: "acs.hooks.a", From: from, To: from + 10}
			d := sha256.New()
			for o := from; o < from+10; o++ {
				if o%7 == 3 {
					continue // a control record
				}
				value := fmt.Sprint("value ", o)
				h.records[o] = value
				sum := sha256.Sum256([]byte(value))
				d.Write(sum[:])
				c.Records++
			}
			d.Sum(c.ValuesHash[:0])
			x.Add(c)
		}
		x.Add(verify.Coverage{Topic: "acs.hooks.a", From: 40, To: 50, Gap: true})
		return x
	}
	values := v()
	rep, err := values.Compare(context.Background(), h)
	if err != nil || rep.Ranges != 4 || rep.Records != int64(len(h.records)) || rep.Gone != 0 {
		t.Errorf("%+v %v", rep, err)
	}
	// Retention has taken the first records.
	h.start = 12
	for o := range h.start {
		delete(h.records, o)
	}
	if rep, err := values.Compare(context.Background(), h); err != nil || rep.Ranges != 2 || rep.Gone != 2 {
		t.Errorf("%+v %v", rep, err)
	}
	for name, change := range map[string]func(){
		"changed":  func() { h.records[25] = "value 26" },
		"dropped":  func() { delete(h.records, 25) },
		"inserted": func() { h.records[24] = "x" },
		"swapped":  func() { h.records[25], h.records[26] = h.records[26], h.records[25] },
		"emptied":  func() { h.records[25] = "" },
	} {
		h.start, h.records = 0, map[int64]string{}
		x := v()
		change()
		if _, err := x.Compare(context.Background(), h); verify.KindOf(err) != verify.WrongValues || !strings.Contains(err.Error(), "offsets 20 to 29") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A record without a value, and one whose value is no UTF-8, are records.
func TestKeptValues(t *testing.T) {
	var got []string
	in := `{"topic":"t","partition":1,"offset":2,"key":null,"headers":{},"value":null}
{"topic":"t","partition":1,"offset":3,"key":"k","headers":{"a":"b"},"value_b64":"/w=="}
{"topic":"t","partition":1,"offset":4,"key":"k","headers":{"a":"b"},"value":"é\n"}
`
	err := Each(context.Background(), Lines(strings.NewReader(in)), func(r *Record) error {
		got = append(got, fmt.Sprintf("%s %t %q %q", r.Where(), r.Keyed, r.Value, r.Headers["a"]))
		return nil
	})
	want := "t/1@2 (line 1) false \"\" \"\"|t/1@3 (line 2) true \"\\xff\" \"b\"|t/1@4 (line 3) true \"é\\n\" \"b\""
	if err != nil || strings.Join(got, "|") != want {
		t.Errorf("%v %v", strings.Join(got, "|"), err)
	}
	d := evidencetest.New(t, 1, 1)
	_, err = Run(context.Background(), Config{Keys: must(d.Ring.Verifier())}, Lines(bytes.NewReader([]byte(in[:strings.IndexByte(in, '\n')]))))
	if verify.KindOf(err) != verify.NotStrict {
		t.Errorf("a DAG without a value: %v", err)
	}
}
