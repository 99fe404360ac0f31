package jcs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"unicode/utf8"
)

// What a text is refused for. An error of this package wraps one of these and
// names the byte offset.
var (
	ErrSyntax    = errors.New("no JSON text")
	ErrDepth     = fmt.Errorf("containers nested deeper than %d", MaxDepth)
	ErrUTF8      = errors.New("invalid UTF-8")
	ErrSurrogate = errors.New("lone surrogate")
	ErrDuplicate = errors.New("duplicate member name")
	ErrNumber    = errors.New("number out of the range of an IEEE 754 double")
)

// Canonicalizer is the reusable working memory of Canonicalize. The zero value
// is ready; it is not safe for concurrent use.
//
// It is a single pass over the text. The members of an object are written as
// they come; only where they did not come in order are they put in order, by
// moving the finished members. Names are compared with the name before them
// (and, after sorting, with their new neighbour), so that finding a repeated
// name costs n log n at worst.
type Canonicalizer struct {
	src     []byte
	dst     []byte
	members []member // of the objects that are open, outermost first
	scratch []byte   // an object's members while they are moved
}

// member is the place of one finished member in dst.
type member struct {
	start, nameEnd, end int
	plain               bool // the name is ASCII without escapes: its bytes compare as its code units
}

// Append appends the canonical form of src to dst, as [Canonicalize] does.
func (c *Canonicalizer) Append(dst, src []byte) ([]byte, error) {
	c.src, c.dst, c.members = src, dst, c.members[:0]
	i, err := c.value(c.space(0), 0)
	if err == nil {
		if i = c.space(i); i < len(src) {
			err = fail(ErrSyntax, i)
		}
	}
	out := c.dst
	c.src, c.dst = nil, nil
	if err != nil {
		return dst, err
	}
	return out, nil
}

func fail(err error, offset int) error {
	return fmt.Errorf("byte %d: %w", offset, err)
}

// space returns the first position from i on that is no white space.
func (c *Canonicalizer) space(i int) int {
	for i < len(c.src) {
		switch c.src[i] {
		case ' ', '\n', '\r', '\t':
			i++
		default:
			return i
		}
	}
	return i
}

// value copies the value that begins at i and returns the position after it.
// depth is the number of open containers.
func (c *Canonicalizer) value(i, depth int) (int, error) {
	if i >= len(c.src) {
		return i, fail(ErrSyntax, i)
	}
	switch b := c.src[i]; {
	case b == '"':
		i, _, err := c.string(i)
		return i, err
	case b == '{':
		if depth == MaxDepth {
			return i, fail(ErrDepth, i)
		}
		return c.object(i, depth+1)
	case b == '[':
		if depth == MaxDepth {
			return i, fail(ErrDepth, i)
		}
		return c.array(i, depth+1)
	case b == 't':
		return c.literal(i, "true")
	case b == 'f':
		return c.literal(i, "false")
	case b == 'n':
		return c.literal(i, "null")
	case b == '-' || b-'0' <= 9:
		return c.number(i)
	}
	return i, fail(ErrSyntax, i)
}

func (c *Canonicalizer) literal(i int, word string) (int, error) {
	if !bytes.HasPrefix(c.src[i:], []byte(word)) {
		return i, fail(ErrSyntax, i)
	}
	c.dst = append(c.dst, word...)
	return i + len(word), nil
}

func (c *Canonicalizer) array(i, depth int) (int, error) {
	c.dst = append(c.dst, '[')
	i = c.space(i + 1)
	if i < len(c.src) && c.src[i] == ']' {
		c.dst = append(c.dst, ']')
		return i + 1, nil
	}
	for {
		var err error
		if i, err = c.value(i, depth); err != nil {
			return i, err
		}
		if i = c.space(i); i >= len(c.src) {
			return i, fail(ErrSyntax, i)
		}
		switch c.src[i] {
		case ']':
			c.dst = append(c.dst, ']')
			return i + 1, nil
		case ',':
			c.dst = append(c.dst, ',')
			i = c.space(i + 1)
		default:
			return i, fail(ErrSyntax, i)
		}
	}
}

func (c *Canonicalizer) object(i, depth int) (int, error) {
	base, body := len(c.members), len(c.dst)+1
	c.dst = append(c.dst, '{')
	i = c.space(i + 1)
	if i < len(c.src) && c.src[i] == '}' {
		c.dst = append(c.dst, '}')
		return i + 1, nil
	}
	sorted := true
	for {
		if i >= len(c.src) || c.src[i] != '"' {
			return i, fail(ErrSyntax, i)
		}
		m := member{start: len(c.dst)}
		var err error
		name := i
		if i, m.plain, err = c.string(i); err != nil {
			return i, err
		}
		m.nameEnd = len(c.dst)
		if last := len(c.members) - 1; sorted && last >= base {
			switch order := c.compare(&c.members[last], &m); {
			case order == 0:
				return name, fail(ErrDuplicate, name)
			case order > 0:
				sorted = false
			}
		}
		if i = c.space(i); i >= len(c.src) || c.src[i] != ':' {
			return i, fail(ErrSyntax, i)
		}
		c.dst = append(c.dst, ':')
		at := len(c.members)
		c.members = append(c.members, m)
		if i, err = c.value(c.space(i+1), depth); err != nil {
			return i, err
		}
		c.members[at].end = len(c.dst)
		if i = c.space(i); i >= len(c.src) {
			return i, fail(ErrSyntax, i)
		}
		if c.src[i] == ',' {
			c.dst = append(c.dst, ',')
			i = c.space(i + 1)
			continue
		}
		if c.src[i] != '}' {
			return i, fail(ErrSyntax, i)
		}
		break
	}
	if !sorted && !c.sort(c.members[base:], body) {
		return i, fail(ErrDuplicate, i)
	}
	c.members = c.members[:base]
	c.dst = append(c.dst, '}')
	return i + 1, nil
}

// sort puts the members of the object whose body begins at body and ends at
// the end of dst in order. It reports false where two have the same name.
func (c *Canonicalizer) sort(members []member, body int) bool {
	if len(members) <= 16 {
		for i := 1; i < len(members); i++ {
			for j := i; j > 0; j-- {
				order := c.compare(&members[j-1], &members[j])
				if order == 0 {
					return false
				}
				if order < 0 {
					break
				}
				members[j-1], members[j] = members[j], members[j-1]
			}
		}
	} else {
		slices.SortFunc(members, func(a, b member) int { return c.compare(&a, &b) })
		for i := 1; i < len(members); i++ {
			if c.compare(&members[i-1], &members[i]) == 0 {
				return false
			}
		}
	}
	c.scratch = append(c.scratch[:0], c.dst[body:]...)
	out := c.dst[:body]
	for i := range members {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, c.scratch[members[i].start-body:members[i].end-body]...)
	}
	c.dst = out
	return true
}

// compare orders two members by name. Both names stand in dst in canonical
// form, where equal bytes and equal names are the same thing.
func (c *Canonicalizer) compare(a, b *member) int {
	x, y := c.dst[a.start+1:a.nameEnd-1], c.dst[b.start+1:b.nameEnd-1]
	if a.plain && b.plain {
		return bytes.Compare(x, y)
	}
	return compareCanonical(x, y)
}

// compareCanonical is CompareNames over the canonical text of two strings.
func compareCanonical(x, y []byte) int {
	for len(x) > 0 && len(y) > 0 {
		rx, nx := decodeCanonical(x)
		ry, ny := decodeCanonical(y)
		if rx != ry {
			return utf16Key(rx) - utf16Key(ry)
		}
		x, y = x[nx:], y[ny:]
	}
	return len(x) - len(y)
}

// decodeCanonical returns the first code point of the inside of a canonical
// string, and how many bytes it takes.
func decodeCanonical(s []byte) (rune, int) {
	if s[0] != '\\' {
		return utf8.DecodeRune(s)
	}
	switch s[1] {
	case 'b':
		return '\b', 2
	case 't':
		return '\t', 2
	case 'n':
		return '\n', 2
	case 'f':
		return '\f', 2
	case 'r':
		return '\r', 2
	case 'u':
		r, _ := hex4(s[2:])
		return r, 6
	}
	return rune(s[1]), 2
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// EndOfPlain finds the first byte of s from i on that ends a run of plain
// string bytes: a quote, a backslash, a control character or a byte of a
// multi-byte character; len(s) where there is none. It looks at eight bytes at
// a time.
func EndOfPlain(s []byte, i int) int {
	for i+8 <= len(s) {
		x := binary.LittleEndian.Uint64(s[i:])
		q := x ^ ones*'"'
		b := x ^ ones*'\\'
		// The lowest bit that is set is exact; those above it may be borrowed.
		if m := (x | (x - ones*0x20) | ((q - ones) &^ q) | ((b - ones) &^ b)) & highs; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return i
		}
		i++
	}
	return i
}

// string copies the string that begins at i. plain tells that it has only
// ASCII and no escape. Bytes whose canonical form is themselves, the two-letter
// escapes among them, are copied in runs.
func (c *Canonicalizer) string(i int) (next int, plain bool, err error) {
	src := c.src
	done := i // src[done:i] is still to be copied, the opening quote first
	i++
	plain = true
	for {
		i = EndOfPlain(src, i)
		if i >= len(src) {
			return i, false, fail(ErrSyntax, i)
		}
		switch b := src[i]; {
		case b == '"':
			i++
			c.dst = append(c.dst, src[done:i]...)
			return i, plain, nil
		case b >= utf8.RuneSelf:
			plain = false
			r, n := utf8.DecodeRune(src[i:])
			if r == utf8.RuneError && n == 1 {
				return i, false, fail(ErrUTF8, i)
			}
			i += n
		case b != '\\':
			return i, false, fail(ErrSyntax, i)
		default:
			plain = false
			if i+1 >= len(src) {
				return i, false, fail(ErrSyntax, i)
			}
			switch src[i+1] {
			case '"', '\\', 'b', 'f', 'n', 'r', 't':
				i += 2
			case '/':
				c.dst = append(c.dst, src[done:i]...)
				done = i + 1
				i += 2
			case 'u':
				r, n, err := unicodeEscape(src[i:])
				if err != nil {
					return i, false, fail(err, i)
				}
				c.dst = append(c.dst, src[done:i]...)
				if r < 0x20 || r == '"' || r == '\\' {
					c.dst = appendEscape(c.dst, byte(r))
				} else {
					c.dst = utf8.AppendRune(c.dst, r)
				}
				i += n
				done = i
			default:
				return i, false, fail(ErrSyntax, i)
			}
		}
	}
}

// AppendUnescaped appends the string whose JSON text, without the quotes, is
// s. ok is false where s holds a quote, a control character, invalid UTF-8, a
// lone surrogate or no proper escape.
func AppendUnescaped(dst, s []byte) (out []byte, ok bool) {
	for i := 0; i < len(s); {
		end := EndOfPlain(s, i)
		dst = append(dst, s[i:end]...)
		if i = end; i == len(s) {
			break
		}
		if s[i] >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			if r == utf8.RuneError && n == 1 {
				return dst, false
			}
			dst = append(dst, s[i:i+n]...)
			i += n
			continue
		}
		if s[i] != '\\' || i+1 == len(s) {
			return dst, false
		}
		n := 2
		switch c := s[i+1]; c {
		case '"', '\\', '/':
			dst = append(dst, c)
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, size, err := unicodeEscape(s[i:])
			if err != nil {
				return dst, false
			}
			dst = utf8.AppendRune(dst, r)
			n = size
		default:
			return dst, false
		}
		i += n
	}
	return dst, true
}

// unicodeEscape reads the \u escape, or the pair of them, at the beginning of s.
func unicodeEscape(s []byte) (r rune, size int, err error) {
	r, ok := hex4(s[2:])
	if !ok {
		return 0, 0, ErrSyntax
	}
	if r < 0xd800 || r > 0xdfff {
		return r, 6, nil
	}
	if r >= 0xdc00 || len(s) < 8 || s[6] != '\\' || s[7] != 'u' {
		return 0, 0, ErrSurrogate
	}
	low, ok := hex4(s[8:])
	if !ok {
		return 0, 0, ErrSyntax
	}
	if low < 0xdc00 || low > 0xdfff {
		return 0, 0, ErrSurrogate
	}
	return (r-0xd800)<<10 + (low - 0xdc00) + 0x10000, 12, nil
}

func hex4(s []byte) (r rune, ok bool) {
	if len(s) < 4 {
		return 0, false
	}
	for _, c := range s[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// ScanNumber returns the end of the number that begins at i; ok is false where
// there is none. simple tells that the text is its own canonical form: no
// exponent, at most 15 digits (those survive a double), not below 1e-6, no
// trailing zero behind the point, no -0.
func ScanNumber(s []byte, i int) (end int, simple, ok bool) {
	start := i
	if i < len(s) && s[i] == '-' {
		i++
	}
	whole := i
	for i < len(s) && s[i]-'0' <= 9 {
		i++
	}
	if i == whole || s[whole] == '0' && i > whole+1 {
		return i, false, false
	}
	digits := i - whole
	simple = s[whole] != '0' || whole == start
	if i < len(s) && s[i] == '.' {
		i++
		fraction := i
		for i < len(s) && s[i]-'0' <= 9 {
			i++
		}
		if i == fraction {
			return i, false, false
		}
		digits += i - fraction
		simple = s[i-1] != '0' && (s[whole] != '0' || !bytes.HasPrefix(s[fraction:i], []byte("000000")))
	}
	simple = simple && digits <= 15
	if i < len(s) && s[i]|0x20 == 'e' {
		simple = false
		i++
		if i < len(s) && (s[i] == '+' || s[i] == '-') {
			i++
		}
		exponent := i
		for i < len(s) && s[i]-'0' <= 9 {
			i++
		}
		if i == exponent {
			return i, false, false
		}
	}
	return i, simple, true
}

func (c *Canonicalizer) number(i int) (int, error) {
	end, simple, ok := ScanNumber(c.src, i)
	if !ok {
		return end, fail(ErrSyntax, end)
	}
	text := c.src[i:end]
	if simple {
		c.dst = append(c.dst, text...)
		return end, nil
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return i, fail(ErrNumber, i)
	}
	c.dst = AppendNumber(c.dst, f)
	return end, nil
}
