package kafka

import (
	"bytes"
	"fmt"
	"testing"
)

// Memory is given out again after a commit, and only then.
func TestSlabReusesWhatHasCommitted(t *testing.T) {
	var s Slab
	fill := func(out *Out, c byte) (first []byte) {
		s.For(out)
		for i := range 3 * slabBytes / 1000 {
			b := s.Bytes(bytes.Repeat([]byte{c}, 1000))
			if i == 0 {
				first = b
			}
			if r := s.Record(); r.Key != nil || r.Headers != nil || r.Topic != "" {
				t.Fatalf("record %+v is not empty", r)
			} else {
				r.Key, r.Topic, r.Headers = b, fmt.Sprint(i), s.Headers(2)
			}
		}
		return first
	}
	same := func(b []byte, c byte) bool { return bytes.Equal(b, bytes.Repeat([]byte{c}, len(b))) }

	failed := new(Out)
	a := fill(failed, 'a')
	committed := new(Out)
	b := fill(committed, 'b')
	if !same(a, 'a') {
		t.Error("the output of a failed transaction was overwritten")
	}
	committed.settled.Store(true)
	fill(new(Out), 'c')
	if same(b, 'b') {
		t.Error("the output of a committed transaction was not used again")
	}
}

func TestSlabLargeValues(t *testing.T) {
	var s Slab
	s.For(new(Out))
	long := bytes.Repeat([]byte("x"), slabBytes)
	if got := s.Bytes(long); !bytes.Equal(got, long) || &got[0] == &long[0] {
		t.Error("not a copy")
	}
	if h := s.Headers(3 * slabRecords); len(h) != 3*slabRecords {
		t.Errorf("%d headers", len(h))
	}
}
