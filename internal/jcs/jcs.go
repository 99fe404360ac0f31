// Package jcs writes JSON in the one form that is hashed and signed: the JSON
// Canonicalization Scheme of RFC 8785.
//
//	{ "b": 2.0, "a": "\u20ac" }   becomes   {"a":"€","b":2}
//
// It is strict where RFC 8785 leans on I-JSON (RFC 7493): one JSON text and
// nothing behind it, no member name twice in an object, valid UTF-8, no lone
// surrogate, every number a finite IEEE 754 double, containers nested at most
// [MaxDepth] deep. What is refused is refused with one of the package's error
// values, so that a caller can tell what is no JSON at all ([ErrSyntax],
// [ErrDepth]) from what is JSON but has no canonical form.
//
// One difference to libraries that clamp: 1e400 is refused ([ErrNumber]), it
// does not become the largest double. A number too small for a double is 0,
// as ECMAScript reads it.
package jcs

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// MaxDepth is how deep containers may nest; the outermost is 1.
const MaxDepth = 128

// Canonicalize appends the canonical form of the JSON text src to dst. On an
// error dst is returned as it came. Callers with many texts keep a
// [Canonicalizer].
func Canonicalize(dst, src []byte) ([]byte, error) {
	var c Canonicalizer
	return c.Append(dst, src)
}

const hexDigits = "0123456789abcdef"

// AppendString appends the JSON text of s, quotes included (RFC 8785
// §3.2.2.2). s must be valid UTF-8.
func AppendString[T string | []byte](dst []byte, s T) []byte { return appendString(dst, s) }

// AppendStringBytes is AppendString of a string that stands in a byte slice.
func AppendStringBytes(dst, s []byte) []byte { return appendString(dst, s) }

func appendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	done := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[done:i]...)
		dst = appendEscape(dst, c)
		done = i + 1
	}
	dst = append(dst, s[done:]...)
	return append(dst, '"')
}

// appendEscape appends the escape of a byte that must not stand as itself.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\t':
		return append(dst, '\\', 't')
	case '\n':
		return append(dst, '\\', 'n')
	case '\f':
		return append(dst, '\\', 'f')
	case '\r':
		return append(dst, '\\', 'r')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xf])
}

// AppendNumber appends f as ECMAScript's Number::toString prints it (RFC 8785
// §3.2.2.3): the shortest digits that read back as f, in decimal notation from
// 1e-6 up to below 1e21, -0 as 0. f must be finite.
func AppendNumber(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0')
	}
	if abs := math.Abs(f); abs >= 1e-6 && abs < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// strconv pads the exponent to two digits; ECMAScript does not.
	if n := len(dst); n-start >= 4 && dst[n-4] == 'e' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// CompareNames orders member names as RFC 8785 §3.2.3 does: by UTF-16 code
// units. That is the order of their bytes but for code points from U+E000 to
// U+FFFF, which stand behind those beyond U+FFFF.
func CompareNames(a, b string) int {
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	if i == len(a) || i == len(b) {
		return len(a) - len(b)
	}
	if a[i] < utf8.RuneSelf || b[i] < utf8.RuneSelf {
		return int(a[i]) - int(b[i])
	}
	for i > 0 && !utf8.RuneStart(a[i]) {
		i--
	}
	ra, _ := utf8.DecodeRuneInString(a[i:])
	rb, _ := utf8.DecodeRuneInString(b[i:])
	return utf16Key(ra) - utf16Key(rb)
}

// utf16Key maps a code point to a number in UTF-16 code unit order: a
// surrogate pair begins with D800 to DBFF, before E000 to FFFF.
func utf16Key(r rune) int {
	if r >= 0xe000 && r <= 0xffff {
		return int(r) + 0x110000
	}
	return int(r)
}
