package codec

import "bytes"

// skip returns the position after the value that begins at i. text must be
// canonical from i on, so there is no white space and nothing to check.
func skip(text []byte, i int) int {
	switch text[i] {
	case '"':
		return skipString(text, i)
	case '{', '[':
		depth := 1
		for i++; depth > 0; {
			switch text[i] {
			case '"':
				i = skipString(text, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			i++
		}
		return i
	}
	for i++; i < len(text); i++ {
		switch text[i] {
		case ',', '}', ']':
			return i
		}
	}
	return i
}

// skipString returns the position after the string that begins at i.
func skipString(text []byte, i int) int {
	for i++; ; {
		end := i + bytes.IndexByte(text[i:], '"')
		// A quote ends the string unless an odd number of backslashes stands
		// before it.
		back := end
		for back > i && text[back-1] == '\\' {
			back--
		}
		if (end-back)&1 == 0 {
			return end + 1
		}
		i = end + 1
	}
}
