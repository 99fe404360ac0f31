package kindgi

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"provstream/internal/jcs"
)

// The scanners below read RFC 8785 text: JSON as it is written by a
// canonicaliser, and nothing else. Each takes the position where the value
// begins and returns the position behind it, or -1 when what stands there is
// no canonical JSON. What exactly is wrong is found out by diagnose; the
// scanners only have to be right and fast.

// maxDepth bounds nested containers, the outermost counted as 1.
const maxDepth = 128

const (
	lsb = 0x0101010101010101
	msb = 0x8080808080808080
)

// special marks the bytes of x that a string scanner must look at: quotation
// mark, backslash, control characters, and anything that is not ASCII. The
// lowest mark is always right; higher ones may be borrows. Flipping bit 1
// moves the quotation mark (0x22) right behind the control characters (to
// 0x20), so that one comparison finds both.
func special(x uint64) uint64 {
	return (((x ^ 0x02*lsb) - 0x21*lsb) | ((x ^ '\\'*lsb) - lsb) | x) & msb
}

// str reads the rest of a string whose opening quotation mark stands before
// i, and returns the position of the closing one.
func str(b []byte, i int) int {
	if i < 0 || i > len(b) {
		return -1
	}
	for {
		// Sixteen bytes at a time, then eight: most strings are ids and hashes.
		rest := b[i:]
		for len(rest) >= 16 {
			m := special(binary.LittleEndian.Uint64(rest))
			n := special(binary.LittleEndian.Uint64(rest[8:]))
			if m|n != 0 {
				at := len(b) - len(rest)
				if m != 0 {
					at += bits.TrailingZeros64(m) >> 3
				} else {
					at += 8 + bits.TrailingZeros64(n)>>3
				}
				if b[at] == '"' {
					return at
				}
				i = at
				goto look
			}
			rest = rest[16:]
		}
		i = len(b) - len(rest)
		for i < len(b) && b[i] >= 0x20 && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
			i++
		}
		if i >= len(b) {
			return -1
		}
	look:
		switch c := b[i]; {
		case c == '"':
			return i
		case c == '\\':
			n := escape(b[i:])
			if n == 0 {
				return -1
			}
			i += n
		case c < 0x20:
			return -1
		default:
			r, n := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && n == 1 {
				return -1
			}
			i += n
		}
	}
}

// escape returns the length of the canonical escape that b begins with: the
// short forms, and \u00xx in lower case for the other control characters.
func escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', 'b', 't', 'n', 'f', 'r':
		return 2
	case 'u':
		if len(b) < 6 || b[2] != '0' || b[3] != '0' {
			return 0
		}
		var c byte
		switch b[4] {
		case '0':
		case '1':
			c = 16
		default:
			return 0
		}
		switch d := b[5]; {
		case d >= '0' && d <= '9':
			c += d - '0'
		case d >= 'a' && d <= 'f':
			c += d - 'a' + 10
		default:
			return 0
		}
		switch c {
		case '\b', '\t', '\n', '\f', '\r':
			return 0
		}
		return 6
	}
	return 0
}

// number reads a number that is written as ECMAScript writes its double.
func number(b []byte, i int) int {
	start := i
	if i < len(b) && b[i] == '-' {
		i++
	}
	digits := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	n := i - digits
	if n == 0 {
		return -1
	}
	if i < len(b) && (b[i] == '.' || b[i] == 'e') || n > 15 {
		return numberSlow(b, start)
	}
	if b[digits] == '0' && (n > 1 || digits > start) {
		return -1
	}
	return i
}

func numberSlow(b []byte, start int) int {
	i := start
	for i < len(b) && (b[i]-'0' <= 9 || b[i] == '-' || b[i] == '+' || b[i] == '.' || b[i] == 'e') {
		i++
	}
	f, err := strconv.ParseFloat(string(b[start:i]), 64)
	if err != nil || math.IsInf(f, 0) {
		return -1
	}
	var buf [32]byte
	if !bytes.Equal(jcs.AppendNumber(buf[:0], f), b[start:i]) {
		return -1
	}
	return i
}

// value reads any value.
func value(b []byte, i, depth int) int {
	if i >= len(b) {
		return -1
	}
	switch c := b[i]; c {
	case '"':
		if i = str(b, i+1); i < 0 {
			return -1
		}
		return i + 1
	case '{':
		return object(b, i, depth)
	case '[':
		return array(b, i, depth)
	case 't':
		return literal(b, i, "true")
	case 'f':
		return literal(b, i, "false")
	case 'n':
		return literal(b, i, "null")
	default:
		return number(b, i)
	}
}

func literal(b []byte, i int, text string) int {
	if has(b, i, text) {
		return i + len(text)
	}
	return -1
}

func has(b []byte, i int, text string) bool {
	return len(b)-i >= len(text) && string(b[i:i+len(text)]) == text
}

func array(b []byte, i, depth int) int {
	if depth >= maxDepth {
		return -1
	}
	i++
	if i < len(b) && b[i] == ']' {
		return i + 1
	}
	for {
		if i = value(b, i, depth+1); i < 0 || i >= len(b) {
			return -1
		}
		switch b[i] {
		case ',':
			i++
		case ']':
			return i + 1
		default:
			return -1
		}
	}
}

// object reads an object whose members stand in order, each once.
func object(b []byte, i, depth int) int {
	if depth >= maxDepth {
		return -1
	}
	i++
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	var last []byte
	first := true
	for {
		if i >= len(b) || b[i] != '"' {
			return -1
		}
		end := str(b, i+1)
		if end < 0 || end+1 >= len(b) || b[end+1] != ':' {
			return -1
		}
		name := b[i+1 : end]
		if !first && !less(last, name) {
			return -1
		}
		first, last = false, name
		if i = value(b, end+2, depth+1); i < 0 || i >= len(b) {
			return -1
		}
		switch b[i] {
		case ',':
			i++
		case '}':
			return i + 1
		default:
			return -1
		}
	}
}

// less tells whether member name x stands before y: by UTF-16 code units of
// the names themselves (RFC 8785 §3.2.3), not of their escaped text.
func less(x, y []byte) bool {
	n := min(len(x), len(y))
	for i := range n {
		if x[i] != y[i] {
			if x[i] < utf8.RuneSelf && y[i] < utf8.RuneSelf && x[i] != '\\' && y[i] != '\\' && (i == 0 || x[i-1] != '\\') {
				return x[i] < y[i]
			}
			return jcs.CompareNames(unescape(x), unescape(y)) < 0
		}
	}
	if len(x) == len(y) {
		return false
	}
	// One is a prefix of the other, at an escape's end or not at all.
	return len(x) < len(y)
}

// unescape returns the string that canonical string text stands for.
func unescape(raw []byte) string {
	i := bytes.IndexByte(raw, '\\')
	if i < 0 {
		return string(raw)
	}
	out := append(make([]byte, 0, len(raw)), raw[:i]...)
	for i < len(raw) {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			i++
			continue
		}
		switch c := raw[i+1]; c {
		case 'b':
			out = append(out, '\b')
		case 't':
			out = append(out, '\t')
		case 'n':
			out = append(out, '\n')
		case 'f':
			out = append(out, '\f')
		case 'r':
			out = append(out, '\r')
		case 'u':
			n, _ := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
			out = append(out, byte(n))
			i += 4
		default:
			out = append(out, c)
		}
		i += 2
	}
	return string(out)
}
