package codec

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf8"

	"provstream/internal/acs/schema"
	"provstream/internal/jcs"
)

// walker checks a canonical text against a tree of nodes and notes where the
// members stand that a step keeps. It never says no: a walk that fails leaves
// the decision to jsonschema/v5.
type walker struct {
	text []byte

	// payloadNode returns the node of the payload, once the method is known (in
	// canonical order it stands before params).
	payloadNode func() *node

	spans   [slotCount]span // of what was noted; end 0: not there
	event   int64           // params.timestamp
	objects []object        // the Provenance objects, in the order of the text
	missing int             // data-bearing fields without one
	found   bool            // a Provenance object was walked since the data-bearing field began

	items   []span // of an array that must have no item twice
	scratch []byte
}

// object is a Provenance object that was walked.
type object struct {
	group                       uint8
	id, origin, source, derived span
}

// walk checks the whole text.
func (w *walker) walk(n *node, text []byte) bool {
	w.text = text
	w.spans = [slotCount]span{}
	w.objects = w.objects[:0]
	w.missing = 0
	return w.value(n, 0) == len(text)
}

// value checks the value that begins at i and returns the position after it,
// -1 where it is not accepted.
func (w *walker) value(n *node, i int) int {
	start := i
	switch n.note.role {
	case roleProvenance:
		w.spans[slotProvenanceSource], w.spans[slotProvenanceDerived] = span{}, span{}
	case roleData:
		w.found = false
	}
	switch c := w.text[i]; c {
	case '"':
		i = w.string(n, i)
	case '{':
		i = w.object(n, i)
	case '[':
		i = w.array(n, i)
	default:
		i = w.scalar(n, i)
	}
	if i < 0 {
		return -1
	}
	if n.enum != nil && !w.oneOf(n.enum, w.text[start:i]) {
		return -1
	}
	if n.note == (note{}) {
		return i
	}
	if n.note.slot != slotNone {
		w.spans[n.note.slot] = between(start, i)
	}
	switch n.note.role {
	case rolePayload:
		if p := w.payloadNode(); p != nil && w.value(p, start) < 0 {
			return -1
		}
	case roleProvenance:
		w.found = true
		w.objects = append(w.objects, object{
			group: n.note.group, id: w.spans[slotProvenanceID], origin: w.spans[slotProvenanceOrigin],
			source: w.spans[slotProvenanceSource], derived: w.spans[slotProvenanceDerived],
		})
	case roleData:
		if !w.found {
			w.missing++
		}
	}
	return i
}

func (w *walker) oneOf(texts [][]byte, text []byte) bool {
	for _, t := range texts {
		if bytes.Equal(t, text) {
			return true
		}
	}
	return false
}

func (w *walker) string(n *node, i int) int {
	if n.types&typeString == 0 {
		return -1
	}
	end := skipString(w.text, i)
	inside := w.text[i+1 : end-1]
	switch n.format {
	case "":
	case "uuid":
		if !isUUID(inside) {
			return -1
		}
	default:
		ms, ok := schema.ParseInstant(inside)
		if !ok {
			return -1
		}
		if n.note.slot == slotTimestamp {
			w.event = ms
		}
	}
	if n.matches != nil && !n.matches(inside) {
		return -1
	}
	// A character takes one byte to six.
	if n.minLen > (len(inside)+5)/6 || n.maxLen >= 0 && n.maxLen < len(inside) {
		if bytes.IndexByte(inside, '\\') >= 0 {
			inside, _ = jcs.AppendUnescaped(w.scratch[:0], inside)
			w.scratch = inside
		}
		length := utf8.RuneCount(inside)
		if length < n.minLen || n.maxLen >= 0 && length > n.maxLen {
			return -1
		}
	}
	return end
}

// scalar checks a number or a literal.
func (w *walker) scalar(n *node, i int) int {
	switch w.text[i] {
	case 't', 'f':
		if n.types&typeBoolean == 0 {
			return -1
		}
		return skip(w.text, i)
	case 'n':
		if n.types&typeNull == 0 {
			return -1
		}
		return skip(w.text, i)
	}
	end := skip(w.text, i)
	if n.types&typeNumber == 0 {
		return -1
	}
	if n.types&typeNumber == typeNumber && math.IsInf(n.minimum, -1) && math.IsInf(n.maximum, 1) {
		return end
	}
	f, err := strconv.ParseFloat(string(w.text[i:end]), 64)
	if err != nil || f < n.minimum || f > n.maximum {
		return -1
	}
	is := typeFraction
	if f == math.Trunc(f) {
		is = typeInteger
	}
	if n.types&is == 0 {
		return -1
	}
	return end
}

func (w *walker) array(n *node, i int) int {
	if n.types&typeArray == 0 {
		return -1
	}
	if n.items == nil && n.minItems <= 0 && n.maxItems < 0 && !n.unique {
		return skip(w.text, i)
	}
	count := 0
	if n.unique {
		w.items = w.items[:0]
	}
	for i++; w.text[i] != ']'; count++ {
		if w.text[i] == ',' {
			i++
		}
		start := i
		if n.items == nil {
			i = skip(w.text, i)
		} else if i = w.value(n.items, i); i < 0 {
			return -1
		}
		if n.unique {
			w.items = appendSpan(w.items, between(start, i))
		}
	}
	if count < n.minItems || n.maxItems >= 0 && count > n.maxItems || n.unique && !distinct(w.text, w.items) {
		return -1
	}
	return i + 1
}

func (w *walker) object(n *node, i int) int {
	if n.types&typeObject == 0 {
		return -1
	}
	if len(n.props) == 0 && n.extra == nil && !n.closed && n.minProps <= 0 {
		return skip(w.text, i)
	}
	text := w.text
	present := uint64(0)
	count, next := 0, 0 // next: the first of props that can still come
	var kept [maxKept]span
	for i++; text[i] != '}'; count++ {
		if text[i] == ',' {
			i++
		}
		child, keep := n.extra, 0
		at, known := n.find(text[i+1:], next)
		if next = at; known {
			p := &n.props[at]
			if p.forbidden {
				return -1
			}
			present |= 1 << at
			child, keep = p.node, p.keep
			i += len(p.name) + 3 // its quotes and the colon
			next++
		} else if n.closed {
			return -1
		} else {
			i = skipString(text, i) + 1
		}
		start := i
		if child == nil {
			i = skip(text, i)
		} else if i = w.value(child, i); i < 0 {
			return -1
		}
		if keep > 0 {
			kept[keep-1] = between(start, i)
		}
	}
	if n.required&^present != 0 || count < n.minProps || n.oneOf != nil && !exactlyOne(n.oneOf, present) {
		return -1
	}
	for k := range n.conds {
		if !w.holds(&n.conds[k], present, &kept) {
			return -1
		}
	}
	return i + 1
}

// setHead readies a prop for find.
func (p *prop) setHead() {
	var b [8]byte
	n := copy(b[:], p.name+`"`)
	p.head, p.headMask = binary.BigEndian.Uint64(b[:]), ^uint64(0)<<(64-8*n)
}

// find looks for the member whose name text begins with among props from next
// on. Without it at is the first that a later member can be.
func (n *node) find(text []byte, next int) (at int, known bool) {
	if len(text) < 8 {
		return n.findSlowly(text, next)
	}
	head := binary.BigEndian.Uint64(text)
	if y := head ^ backslashes; (y-ones)&^y&highs != 0 {
		return n.findSlowly(text, next)
	}
	for ; next < len(n.props); next++ {
		p := &n.props[next]
		switch h := head & p.headMask; {
		case h < p.head:
			return next, false
		case h == p.head:
			if len(p.name) < 8 {
				return next, true
			}
			if rest := p.name[8:]; len(text) > len(p.name) && string(text[8:len(p.name)]) == rest && text[len(p.name)] == '"' {
				return next, true
			}
			return n.findSlowly(text, next)
		}
	}
	return next, false
}

// findSlowly is find, a byte at a time.
func (n *node) findSlowly(text []byte, next int) (at int, known bool) {
	end := 0
	for text[end] != '"' && text[end] != '\\' {
		end++
	}
	if text[end] == '\\' { // such a name is none of props, and where it stands among them is not to be seen
		return next, false
	}
	for ; next < len(n.props); next++ {
		if name := n.props[next].name; name >= string(text[:end]) {
			return next, name == string(text[:end])
		}
	}
	return next, false
}

const (
	ones        = 0x0101010101010101
	highs       = 0x8080808080808080
	backslashes = ones * '\\'
)

func exactlyOne(sets []uint64, present uint64) bool {
	met := 0
	for _, set := range sets {
		if set&^present == 0 {
			met++
		}
	}
	return met == 1
}

// holds tells whether a condition is met, or whether it turns out as assumed.
func (w *walker) holds(c *cond, present uint64, kept *[maxKept]span) bool {
	test := c.required&^present == 0
	for i := range c.equal {
		e := &c.equal[i]
		if present&e.bit != 0 && !bytes.Equal(kept[e.keep-1].of(w.text), e.text) {
			test = false
		}
	}
	if c.negate {
		test = !test
	}
	if c.assumed {
		return test == c.want
	}
	return !test || bits.OnesCount64(c.then&^present) == 0
}
