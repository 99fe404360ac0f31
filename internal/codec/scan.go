package codec

import (
	"bytes"
	"slices"

	"provstream/internal/jcs"
)

// span is a part of a text. Of some texts there are many, so a span is small;
// no value is as long as 2 GiB.
type span struct{ start, end int32 }

func between(start, end int) span { return span{int32(start), int32(end)} }

func (s span) of(text []byte) []byte { return text[s.start:s.end] }

// checkJSON reports why src is no JSON text (jcs.ErrSyntax), or is nested too
// deeply (jcs.ErrDepth). It looks at the grammar of RFC 8259 only: what makes
// a text not strict (invalid UTF-8 inside a string, lone surrogates, repeated
// names, numbers out of range) it lets pass. Of an array it appends the places
// of the elements to elements.
func checkJSON(src []byte, elements []span) ([]span, error) {
	var (
		objects [2]uint64 // bit d: the container at depth d is an object
		depth   int
		start   int // of the element at depth 1
	)
	inObject := func() bool { return objects[(depth-1)>>6]>>((depth-1)&63)&1 == 1 }
	i := space(src, 0)
	for {
		// A value begins at i.
		if i >= len(src) {
			return elements, jcs.ErrSyntax
		}
		if depth == 1 && !inObject() {
			start = i
		}
		if b := src[i]; b == '{' || b == '[' {
			if depth == jcs.MaxDepth {
				return elements, jcs.ErrDepth
			}
			bit := uint64(1) << (depth & 63)
			objects[depth>>6] &^= bit
			if b == '{' {
				objects[depth>>6] |= bit
			}
			depth++
			i = space(src, i+1)
			if i < len(src) && src[i] == b+2 { // '{'+2 is '}', '['+2 is ']'
				i++
				depth--
			} else {
				if b == '{' {
					if i = memberName(src, i); i < 0 {
						return elements, jcs.ErrSyntax
					}
				}
				continue
			}
		} else if i = scalar(src, i); i < 0 {
			return elements, jcs.ErrSyntax
		}
		// A value ended before i: close containers until another value follows.
		for {
			if depth == 0 {
				if space(src, i) != len(src) {
					return elements, jcs.ErrSyntax
				}
				return elements, nil
			}
			object := inObject()
			if depth == 1 && !object {
				elements = appendSpan(elements, between(start, i))
			}
			if i = space(src, i); i >= len(src) {
				return elements, jcs.ErrSyntax
			}
			if src[i] == ',' {
				i = space(src, i+1)
				if object {
					if i = memberName(src, i); i < 0 {
						return elements, jcs.ErrSyntax
					}
				}
				break
			}
			closing := byte(']')
			if object {
				closing = '}'
			}
			if src[i] != closing {
				return elements, jcs.ErrSyntax
			}
			i++
			depth--
		}
	}
}

// appendSpan is append for lists as long as a hostile record makes them: it
// doubles, where append would grow a long list by a quarter and copy it so much
// more often.
func appendSpan(list []span, s span) []span {
	if len(list) == cap(list) {
		list = slices.Grow(list, len(list)+8)
	}
	return append(list, s)
}

// memberName passes a name and its colon; -1 where there is none.
func memberName(src []byte, i int) int {
	if i >= len(src) || src[i] != '"' {
		return -1
	}
	if i = looseString(src, i); i < 0 {
		return -1
	}
	if i = space(src, i); i >= len(src) || src[i] != ':' {
		return -1
	}
	return space(src, i+1)
}

// scalar returns the position after a string, number or literal, -1 where
// there is none.
func scalar(src []byte, i int) int {
	switch src[i] {
	case '"':
		return looseString(src, i)
	case 't':
		return literal(src, i, "true")
	case 'f':
		return literal(src, i, "false")
	case 'n':
		return literal(src, i, "null")
	}
	if end, _, ok := jcs.ScanNumber(src, i); ok {
		return end
	}
	return -1
}

func literal(src []byte, i int, word string) int {
	if !bytes.HasPrefix(src[i:], []byte(word)) {
		return -1
	}
	return i + len(word)
}

// looseString returns the position after the string that begins at i, -1 where
// it breaks the grammar. Bytes that are no UTF-8 and lone surrogates pass.
func looseString(src []byte, i int) int {
	for i++; ; {
		if i = jcs.EndOfPlain(src, i); i >= len(src) {
			return -1
		}
		switch b := src[i]; {
		case b == '"':
			return i + 1
		case b >= 0x80:
			i++
		case b != '\\' || i+1 >= len(src):
			return -1
		case src[i+1] == 'u':
			for k := range 4 {
				if i+2+k >= len(src) || !isHex(src[i+2+k]) {
					return -1
				}
			}
			i += 6
		case bytes.IndexByte([]byte(`"\/bfnrt`), src[i+1]) < 0:
			return -1
		default:
			i += 2
		}
	}
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}

// space returns the first position from i on that is no white space.
func space(src []byte, i int) int {
	for i < len(src) && (src[i] == ' ' || src[i] == '\n' || src[i] == '\r' || src[i] == '\t') {
		i++
	}
	return i
}

// looseSkip returns the position after the value that begins at i. src must
// have passed checkJSON.
func looseSkip(src []byte, i int) int {
	if src[i] != '{' && src[i] != '[' {
		return scalar(src, i)
	}
	depth := 0
	for {
		switch src[i] {
		case '"':
			i = looseString(src, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
}

// looseMember returns where the value of the first member name of the object
// at i begins, -1 where there is none or where i is no object. src must have
// passed checkJSON.
func looseMember(src []byte, i int, name string) int {
	if i < 0 || src[i] != '{' {
		return -1
	}
	for i = space(src, i+1); src[i] != '}'; i = space(src, i) {
		if src[i] == ',' {
			i = space(src, i+1)
		}
		s, ok := looseText(src, i)
		i = space(src, looseString(src, i))
		i = space(src, i+1) // the colon
		if ok && s == name {
			return i
		}
		i = looseSkip(src, i)
	}
	return -1
}

// looseText reads the string at i; ok is false where there is none, or where
// it is no valid Unicode.
func looseText(src []byte, i int) (s string, ok bool) {
	if i < 0 || src[i] != '"' {
		return "", false
	}
	out, ok := jcs.AppendUnescaped(nil, src[i+1:looseString(src, i)-1])
	if !ok {
		return "", false
	}
	return string(out), true
}
