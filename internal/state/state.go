// Package state is the byte encoding of what the aggregator keeps of open runs
// in prov.aggregator.state: unsigned varints, and strings with their lengths.
//
// It is an internal format: a service reads what a service of the same Version
// wrote, and refuses what another wrote. Before an upgrade that changes it the old
// version drains: without open runs there is nothing that the new one must read.
package state

import (
	"encoding/binary"
	"errors"
	"math"
)

// Version is the first byte of every snapshot.
const Version = 2

// ErrCorrupt is returned for bytes that no Writer wrote.
var ErrCorrupt = errors.New("corrupt snapshot")

// Writer appends values to B.
type Writer struct{ B []byte }

// Uint appends an unsigned number.
func (w *Writer) Uint(v uint64) { w.B = binary.AppendUvarint(w.B, v) }

// Int appends a signed number.
func (w *Writer) Int(v int64) { w.B = binary.AppendVarint(w.B, v) }

// Bool appends a truth value.
func (w *Writer) Bool(v bool) {
	if v {
		w.B = append(w.B, 1)
	} else {
		w.B = append(w.B, 0)
	}
}

// String appends a string.
func (w *Writer) String(s string) {
	w.Uint(uint64(len(s)))
	w.B = append(w.B, s...)
}

// Float appends a double, bit by bit.
func (w *Writer) Float(f float64) { w.B = binary.LittleEndian.AppendUint64(w.B, math.Float64bits(f)) }

// Fixed appends bytes whose number the reader knows.
func (w *Writer) Fixed(b []byte) { w.B = append(w.B, b...) }

// Reader takes values from B. After the first value that is not there, every
// value is zero and Err tells.
type Reader struct {
	B   []byte
	bad bool
}

// Err returns ErrCorrupt when some value was not there.
func (r *Reader) Err() error {
	if r.bad {
		return ErrCorrupt
	}
	return nil
}

// Done returns an error unless everything was read and nothing is left.
func (r *Reader) Done() error {
	if len(r.B) > 0 {
		r.bad = true
	}
	return r.Err()
}

func (r *Reader) fail() {
	r.bad, r.B = true, nil
}

// Uint takes an unsigned number.
func (r *Reader) Uint() uint64 {
	v, n := binary.Uvarint(r.B)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Int takes a signed number.
func (r *Reader) Int() int64 {
	v, n := binary.Varint(r.B)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.B = r.B[n:]
	return v
}

// Bool takes a truth value.
func (r *Reader) Bool() bool {
	b := r.Fixed(1)
	return len(b) == 1 && b[0] == 1
}

// String takes a string.
func (r *Reader) String() string { return string(r.Fixed(r.Len(1))) }

// Float takes a double.
func (r *Reader) Float() float64 {
	b := r.Fixed(8)
	if len(b) < 8 {
		return 0
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// Fixed takes n bytes.
func (r *Reader) Fixed(n int) []byte {
	if n < 0 || n > len(r.B) {
		r.fail()
		return nil
	}
	b := r.B[:n]
	r.B = r.B[n:]
	return b
}

// Len takes the length of a list whose items have at least size bytes each, so
// that corrupt bytes cannot ask for more memory than they have.
func (r *Reader) Len(size int) int {
	n := r.Uint()
	if n > uint64(len(r.B)/size) {
		r.fail()
		return 0
	}
	return int(n)
}
