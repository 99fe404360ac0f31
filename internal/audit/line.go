package audit

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// keptLine reads a line of `demo --keep` in one pass. The JSON around a record is
// no evidence: what is taken out of it is verified, so this need not be strict.
// It gives up on everything that such a line does not have, and the caller
// parses again.
func keptLine(text []byte) (r *Record, ok bool) {
	r = &Record{Placed: true}
	p := lineParser{b: text}
	if !p.byte('{') {
		return nil, false
	}
	var hasTopic, hasValue bool
	for {
		name, ok := p.plain()
		if !ok || !p.byte(':') {
			return nil, false
		}
		switch string(name) {
		case "topic":
			var t []byte
			if t, ok = p.plain(); hasTopic {
				return nil, false
			}
			r.Topic, hasTopic = string(t), true
		case "partition":
			var n int64
			n, ok = p.integer()
			r.Partition = int32(n)
		case "offset":
			r.Offset, ok = p.integer()
		case "timestamp_ms":
			_, ok = p.integer()
		case "key":
			if r.Key != nil {
				return nil, false
			}
			r.Key, ok = p.text()
			r.Keyed = true
		case "headers":
			ok = r.Headers == nil && p.headers(r)
		case "value":
			if hasValue {
				return nil, false
			}
			r.Value, ok = p.text()
			hasValue = true
		default:
			return nil, false
		}
		if !ok {
			return nil, false
		}
		if p.byte(',') {
			continue
		}
		return r, p.byte('}') && p.i == len(p.b) && hasTopic && hasValue
	}
}

type lineParser struct {
	b []byte
	i int
}

func (p *lineParser) byte(c byte) bool {
	if p.i < len(p.b) && p.b[p.i] == c {
		p.i++
		return true
	}
	return false
}

// plain reads a string without escapes.
func (p *lineParser) plain() ([]byte, bool) {
	if !p.byte('"') {
		return nil, false
	}
	n := bytes.IndexByte(p.b[p.i:], '"')
	if n < 0 {
		return nil, false
	}
	s := p.b[p.i : p.i+n]
	p.i += n + 1
	return s, bytes.IndexByte(s, '\\') < 0
}

func (p *lineParser) integer() (int64, bool) {
	start := p.i
	for p.i < len(p.b) && (p.b[p.i] == '-' || p.b[p.i]-'0' <= 9) {
		p.i++
	}
	n, err := strconv.ParseInt(string(p.b[start:p.i]), 10, 64)
	return n, err == nil
}

func (p *lineParser) headers(r *Record) bool {
	r.Headers = map[string][]byte{}
	if !p.byte('{') {
		return false
	}
	if p.byte('}') {
		return true
	}
	for {
		name, ok := p.plain()
		if !ok || !p.byte(':') {
			return false
		}
		if _, twice := r.Headers[string(name)]; twice {
			return false
		}
		if r.Headers[string(name)], ok = p.text(); !ok {
			return false
		}
		if p.byte(',') {
			continue
		}
		return p.byte('}')
	}
}

// stop marks the quotation marks and backslashes of eight bytes; the lowest
// mark is always right.
func stop(x uint64) uint64 {
	const lsb, msb = 0x0101010101010101, 0x8080808080808080
	q, s := x^'"'*lsb, x^'\\'*lsb
	return ((q - lsb) &^ q & msb) | ((s - lsb) &^ s & msb)
}

// text reads a string and takes its escapes out: eight bytes at a time up to
// the next escape, which in a value that is JSON itself is never far.
func (p *lineParser) text() ([]byte, bool) {
	if !p.byte('"') {
		return nil, false
	}
	b, i := p.b, p.i
	end := bytes.Index(b[i:], []byte(`",`)) // a hint of how long it is: short ones are short
	size := len(b) - i
	if end >= 0 && end < 256 && bytes.IndexByte(b[i:i+end], '\\') < 0 {
		size = end
	}
	out := make([]byte, size+8)
	o := 0
	for {
		for len(b)-i >= 8 && len(out)-o >= 8 {
			x := binary.LittleEndian.Uint64(b[i:])
			binary.LittleEndian.PutUint64(out[o:], x)
			if m := stop(x); m != 0 {
				n := bits.TrailingZeros64(m) >> 3
				i, o = i+n, o+n
				goto look
			}
			i, o = i+8, o+8
		}
		for i < len(b) && b[i] != '"' && b[i] != '\\' {
			if o >= len(out) {
				return nil, false
			}
			out[o] = b[i]
			i, o = i+1, o+1
		}
		if i >= len(b) {
			return nil, false
		}
	look:
		if b[i] == '"' {
			p.i = i + 1
			return out[:o:o], true
		}
		if i+1 >= len(b) || o >= len(out) {
			return nil, false
		}
		switch c := b[i+1]; c {
		case '"', '\\', '/':
			out[o] = c
		case 'n':
			out[o] = '\n'
		case 't':
			out[o] = '\t'
		case 'r':
			out[o] = '\r'
		case 'b':
			out[o] = '\b'
		case 'f':
			out[o] = '\f'
		case 'u':
			n, w := unicodeEscape(b[i:], out[o:])
			if n == 0 {
				return nil, false
			}
			i, o = i+n, o+w
			continue
		default:
			return nil, false
		}
		i, o = i+2, o+1
	}
}

// unicodeEscape decodes \uXXXX or a pair of them; n is 0 for anything else.
func unicodeEscape(b, out []byte) (n, w int) {
	unit := func(b []byte) (rune, bool) {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return 0, false
		}
		v, err := strconv.ParseUint(string(b[2:6]), 16, 16)
		return rune(v), err == nil
	}
	r, ok := unit(b)
	if !ok || len(out) < utf8.UTFMax {
		return 0, 0
	}
	n = 6
	if utf16.IsSurrogate(r) {
		second, ok := unit(b[6:])
		if r = utf16.DecodeRune(r, second); !ok || r == utf8.RuneError {
			return 0, 0
		}
		n = 12
	}
	return n, utf8.EncodeRune(out, r)
}
