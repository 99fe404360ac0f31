package fleet

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Transform makes another fleet out of a fleet: fresh ids and another time. It
// works on the text of the envelopes, so broken ones stay as broken as they are.
type Transform struct {
	// Salt renames every UUID in key, headers and value: session ids, request
	// ids, turn ids, subagents and all references to them get new ids that
	// depend on the salt and the old id alone, so what belonged together still
	// does. "" renames nothing. A UUID that is spelt with JSON escapes is not
	// seen.
	Salt string
	// ShiftMs is added to the record's timestamp and to params.timestamp.
	ShiftMs int64
}

// Apply returns the transformed record. The parts that do not change are shared
// with r.
func (t Transform) Apply(r *Record) Record {
	out := *r
	out.TimeMs += t.ShiftMs
	if t.ShiftMs != 0 {
		out.Value = shiftEventTimes(out.Value, t.ShiftMs)
	}
	if t.Salt == "" {
		return out
	}
	out.Key = renameUUIDs(out.Key, t.Salt)
	out.Value = renameUUIDs(out.Value, t.Salt)
	for i := range out.Headers {
		if v := renameUUIDs(out.Headers[i].Value, t.Salt); !bytes.Equal(v, out.Headers[i].Value) {
			if &out.Headers[0] == &r.Headers[0] {
				out.Headers = slices.Clone(r.Headers)
			}
			out.Headers[i].Value = v
		}
	}
	return out
}

// uuidLen is the length of a UUID's text.
const uuidLen = 36

// renameUUIDs returns b with every UUID replaced, b itself when there is none.
func renameUUIDs(b []byte, salt string) []byte {
	var out []byte
	from := 0
	for at := 8; ; {
		i := bytes.IndexByte(b[min(at, len(b)):], '-')
		if i < 0 {
			break
		}
		at += i
		start := at - 8
		if start < from || start+uuidLen > len(b) || !isUUID(b[start:start+uuidLen]) {
			at++
			continue
		}
		if out == nil {
			out = make([]byte, 0, len(b))
		}
		out = append(out, b[from:start]...)
		out = appendRenamed(out, b[start:start+uuidLen], salt)
		from = start + uuidLen
		at = from + 8
	}
	if out == nil {
		return b
	}
	return append(out, b[from:]...)
}

func isUUID(b []byte) bool {
	for i, c := range b {
		switch i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
				return false
			}
		}
	}
	return true
}

// appendRenamed appends the UUID that stands for old under the salt. Ids that
// differ in case only are different ids and stay so.
func appendRenamed(dst, old []byte, salt string) []byte {
	h := sha256.New()
	_, _ = io.WriteString(h, salt)
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(old)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80 // version 8: custom (RFC 9562 §5.8)
	u[8] = u[8]&0x3f | 0x80
	var text [32]byte
	hex.Encode(text[:], u)
	for i, n := range []int{8, 12, 16, 20, 32} {
		if i > 0 {
			dst = append(dst, '-')
		}
		from := 0
		if i > 0 {
			from = []int{8, 12, 16, 20, 32}[i-1]
		}
		dst = append(dst, text[from:n]...)
	}
	return dst
}

// shiftEventTimes moves params.timestamp of an envelope, or of each envelope of
// a batch. Text that cannot be read is left as it is from there on.
func shiftEventTimes(v []byte, ms int64) []byte {
	if len(v) == 0 {
		return v
	}
	dec := jsontext.NewDecoder(bytes.NewBuffer(v), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var out []byte
	from := 0
	replace := func(start, end int, text []byte) {
		out = append(append(out, v[from:start]...), text...)
		from = end
	}
	envelope := func() error {
		return members(dec, "params", func() error {
			return members(dec, "timestamp", func() error {
				raw, err := dec.ReadValue()
				if err != nil {
					return err
				}
				end := int(dec.InputOffset())
				if moved, ok := shiftInstant(raw, ms); ok {
					replace(end-len(raw), end, moved)
				}
				return nil
			})
		})
	}
	if dec.PeekKind() == '[' {
		if _, err := dec.ReadToken(); err == nil {
			for dec.PeekKind() != ']' {
				if envelope() != nil {
					break
				}
			}
		}
	} else {
		_ = envelope() // what was read before the fault has moved; the rest stays
	}
	if out == nil {
		return v
	}
	return append(out, v[from:]...)
}

// members reads one value; of an object it calls f at each member of that name
// and skips the others.
func members(dec *jsontext.Decoder, name string, f func() error) error {
	if dec.PeekKind() != '{' {
		return dec.SkipValue()
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() != '}' {
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		if tok.Kind() == '"' && tok.String() == name {
			err = f()
		} else {
			err = dec.SkipValue()
		}
		if err != nil {
			return err
		}
	}
	_, err := dec.ReadToken()
	return err
}

// shiftInstant moves an RFC 3339 instant in a JSON string; what is none stays.
func shiftInstant(raw []byte, ms int64) ([]byte, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return nil, false
	}
	t, err := time.Parse(time.RFC3339Nano, string(raw[1:len(raw)-1]))
	if err != nil {
		return nil, false
	}
	t = t.Add(time.Duration(ms) * time.Millisecond).UTC()
	return t.AppendFormat(nil, `"2006-01-02T15:04:05.000Z"`), true
}

// Span is the first and last timestamp of a fleet and its size.
type Span struct {
	Records         int64
	FirstMs, LastMs int64
}

// Add takes a record in.
func (s *Span) Add(r *Record) {
	if s.Records == 0 || r.TimeMs < s.FirstMs {
		s.FirstMs = r.TimeMs
	}
	if s.Records == 0 || r.TimeMs > s.LastMs {
		s.LastMs = r.TimeMs
	}
	s.Records++
}

// Source yields the records of a fleet in order; it can be asked again.
type Source func(f func(*Record) error) error

// FileSource is a fleet file, "-" is stdin. Stdin is kept in memory when it is
// asked for a second time.
func FileSource(name string, stdin io.Reader) Source {
	if name != "-" {
		return func(f func(*Record) error) error {
			return ReadFile(name, nil, func(r Record) error { return f(&r) })
		}
	}
	var kept []Record
	read := false
	return func(f func(*Record) error) error {
		if !read {
			read = true
			if err := ReadFile(name, stdin, func(r Record) error { kept = append(kept, r); return nil }); err != nil {
				return err
			}
		}
		for i := range kept {
			if err := f(&kept[i]); err != nil {
				return err
			}
		}
		return nil
	}
}

// Copies says how to make several fleets out of one.
type Copies struct {
	N int // 0 is 1
	// Parallel copies run side by side; the next ones start where they end, so
	// that event time goes on as in a long day. 0 is 10.
	Parallel int
	// Salt renames the ids of every copy; without it the first copy keeps its
	// own.
	Salt string
	// LastMs, if not 0, is where the last record shall stand in time: the whole
	// is shifted, Kafka and event times together.
	LastMs int64
}

// Each calls f with every record of every copy.
func (c Copies) Each(src Source, f func(*Record) error) error {
	n, parallel := max(c.N, 1), c.Parallel
	if parallel <= 0 {
		parallel = 10
	}
	rounds := (n + parallel - 1) / parallel
	var span Span
	if rounds > 1 || c.LastMs != 0 {
		if err := src(func(r *Record) error { span.Add(r); return nil }); err != nil {
			return err
		}
	}
	length := span.LastMs - span.FirstMs + 1000
	var shift int64
	if c.LastMs != 0 && span.Records > 0 {
		shift = c.LastMs - span.LastMs - int64(rounds-1)*length
	}
	for round := range rounds {
		var transforms []Transform
		for k := round * parallel; k < min(n, (round+1)*parallel); k++ {
			t := Transform{ShiftMs: shift + int64(round)*length}
			if k > 0 || c.Salt != "" {
				t.Salt = c.Salt + "/" + strconv.Itoa(k)
			}
			transforms = append(transforms, t)
		}
		err := src(func(r *Record) error {
			for _, t := range transforms {
				out := t.Apply(r)
				if err := f(&out); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
