package codec

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"provstream/internal/acs/schema"
	"provstream/internal/jcs"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// explainer applies a compiled schema to a canonical text, keyword by keyword
// as jsonschema/v5 does, without a tree of values: it counts the assertions
// that fail and keeps the smallest. v5 holds an object for every assertion that
// fails, which for a record made of faults is thousands of times its size; so
// the explainer looks first, and decides where v5 would have to.
type explainer struct {
	text      []byte
	path      []byte // the pointer of the value that is being looked at
	faults    int
	least     leaf
	unhandled bool // a keyword came up that is not known here
	quiet     int  // > 0 inside an if or a oneOf, whose faults are no faults
	facts     map[*jsonschema.Schema]*schemaFacts
}

// schemaFacts is what an explainer works out of a schema once.
type schemaFacts struct {
	unhandled bool
	id        string
	types     typeSet
	constants [][]byte // the canonical texts of const or enum
	test      *jsonschema.Schema
	negate    bool
	min, max  float64
}

func (x *explainer) factsOf(s *jsonschema.Schema) *schemaFacts {
	if f := x.facts[s]; f != nil {
		return f
	}
	f := &schemaFacts{min: math.Inf(-1), max: math.Inf(1)}
	f.unhandled = unhandled(s) != "" || len(s.Constant) > 0 && len(s.Enum) > 0 ||
		s.Format != "" && s.Format != "uuid" && s.Format != "date-time"
	f.id, _, _ = strings.Cut(s.Location, "#")
	for _, t := range s.Types {
		f.types |= typeNames[t]
	}
	for _, v := range slices.Concat(s.Constant, s.Enum) {
		text, err := json.Marshal(v)
		if err == nil {
			text, err = jcs.Canonicalize(nil, text)
		}
		f.unhandled = f.unhandled || err != nil
		f.constants = append(f.constants, text)
	}
	if s.If != nil {
		var ok bool
		f.test, f.negate, ok = ifTest(s.If)
		f.unhandled = f.unhandled || !ok
	}
	var err error
	if s.Minimum != nil {
		f.min, err = double(s.Minimum)
		f.unhandled = f.unhandled || err != nil
	}
	if s.Maximum != nil {
		f.max, err = double(s.Maximum)
		f.unhandled = f.unhandled || err != nil
	}
	if x.facts == nil {
		x.facts = make(map[*jsonschema.Schema]*schemaFacts)
	}
	x.facts[s] = f
	return f
}

// explain applies s to the canonical text of a value.
func (x *explainer) explain(s *jsonschema.Schema, text []byte) {
	x.text, x.path = text, x.path[:0]
	x.faults, x.least, x.unhandled, x.quiet = 0, leaf{}, false, 0
	x.check(s, between(0, len(text)))
}

// fault takes in a failing assertion at the current place.
func (x *explainer) fault(s *jsonschema.Schema, keyword string) bool {
	x.faults++
	if x.quiet > 0 {
		return false
	}
	l := &x.least
	if l.found {
		if order := bytes.Compare(x.path, []byte(l.pointer)); order > 0 || order == 0 && keyword > l.keyword {
			return false
		}
	}
	l.add(string(x.path), keyword, x.factsOf(s).id)
	return false
}

// quietly applies s where a fault is only an answer.
func (x *explainer) quietly(s *jsonschema.Schema, at span) bool {
	faults := x.faults
	x.quiet++
	ok := x.check(s, at)
	x.quiet--
	x.faults = faults
	return ok
}

// check applies s to the value at a place.
func (x *explainer) check(s *jsonschema.Schema, at span) bool {
	facts := x.factsOf(s)
	if facts.unhandled {
		x.unhandled = true
		return true
	}
	if s.Always != nil {
		return true
	}
	is, number := x.typeOf(at)
	if len(s.Types) > 0 && facts.types&is == 0 {
		return x.fault(s, "type")
	}
	ok := true
	if len(facts.constants) > 0 && !x.among(facts.constants, at) {
		if len(s.Constant) > 0 {
			ok = x.fault(s, "const")
		} else {
			ok = x.fault(s, "enum")
		}
	}
	switch is {
	case typeString:
		ok = x.stringChecks(s, at) && ok
	case typeArray:
		ok = x.arrayChecks(s, at) && ok
	case typeObject:
		ok = x.objectChecks(s, at) && ok
	case typeInteger, typeFraction:
		if number < facts.min {
			ok = x.fault(s, "minimum")
		}
		if number > facts.max {
			ok = x.fault(s, "maximum")
		}
	}
	if s.Ref != nil {
		ok = x.check(s.Ref, at) && ok
	}
	for _, sub := range s.AllOf {
		ok = x.check(sub, at) && ok
	}
	if len(s.OneOf) > 0 {
		met := 0
		for _, sub := range s.OneOf {
			if x.quietly(sub, at) {
				met++
			}
		}
		if met != 1 {
			ok = x.fault(s, "oneOf")
		}
	}
	if s.If != nil && s.Then != nil && x.quietly(facts.test, at) != facts.negate {
		ok = x.check(s.Then, at) && ok
	}
	return ok
}

// typeOf returns the type of a value, and the value of a number.
func (x *explainer) typeOf(at span) (typeSet, float64) {
	switch x.text[at.start] {
	case '"':
		return typeString, 0
	case '{':
		return typeObject, 0
	case '[':
		return typeArray, 0
	case 't', 'f':
		return typeBoolean, 0
	case 'n':
		return typeNull, 0
	}
	f, err := strconv.ParseFloat(string(at.of(x.text)), 64)
	if err != nil {
		x.unhandled = true // canonical numbers are in range
	}
	if f == math.Trunc(f) {
		return typeInteger, f
	}
	return typeFraction, f
}

// among tells whether a value is one of those of const or enum. Equal values
// have the same canonical text.
func (x *explainer) among(texts [][]byte, at span) bool {
	value := at.of(x.text)
	return slices.ContainsFunc(texts, func(text []byte) bool { return bytes.Equal(text, value) })
}

func (x *explainer) stringChecks(s *jsonschema.Schema, at span) bool {
	if s.Format == "" && s.MinLength < 0 && s.MaxLength < 0 && s.Pattern == nil {
		return true
	}
	inside := x.text[at.start+1 : at.end-1]
	if bytes.IndexByte(inside, '\\') >= 0 {
		inside, _ = jcs.AppendUnescaped(nil, inside)
	}
	ok := true
	switch s.Format {
	case "":
	case "uuid":
		if !isUUID(inside) {
			ok = x.fault(s, "format")
		}
	case "date-time":
		if _, valid := schema.ParseInstant(inside); !valid {
			ok = x.fault(s, "format")
		}
	}
	if s.MinLength >= 0 || s.MaxLength >= 0 {
		length := utf8.RuneCount(inside)
		if s.MinLength >= 0 && length < s.MinLength {
			ok = x.fault(s, "minLength")
		}
		if s.MaxLength >= 0 && length > s.MaxLength {
			ok = x.fault(s, "maxLength")
		}
	}
	if s.Pattern != nil && !s.Pattern.Match(inside) {
		ok = x.fault(s, "pattern")
	}
	return ok
}

func (x *explainer) arrayChecks(s *jsonschema.Schema, at span) bool {
	if s.MinItems < 0 && s.MaxItems < 0 && !s.UniqueItems && s.Items2020 == nil {
		return true
	}
	ok := true
	count := 0
	var items []span
	for i := int(at.start) + 1; x.text[i] != ']'; count++ {
		if x.text[i] == ',' {
			i++
		}
		item := between(i, skip(x.text, i))
		i = int(item.end)
		if s.UniqueItems {
			items = appendSpan(items, item)
		}
		if s.Items2020 != nil {
			parent := len(x.path)
			x.path = strconv.AppendInt(append(x.path, '/'), int64(count), 10)
			ok = x.check(s.Items2020, item) && ok
			x.path = x.path[:parent]
		}
	}
	if s.MinItems >= 0 && count < s.MinItems {
		ok = x.fault(s, "minItems")
	}
	if s.MaxItems >= 0 && count > s.MaxItems {
		ok = x.fault(s, "maxItems")
	}
	if s.UniqueItems && !distinct(x.text, items) {
		ok = x.fault(s, "uniqueItems")
	}
	return ok
}

// distinct sorts spans by their texts and tells whether no two are equal.
func distinct(text []byte, items []span) bool {
	slices.SortFunc(items, func(a, b span) int { return bytes.Compare(a.of(text), b.of(text)) })
	for i := 1; i < len(items); i++ {
		if bytes.Equal(items[i-1].of(text), items[i].of(text)) {
			return false
		}
	}
	return true
}

func (x *explainer) objectChecks(s *jsonschema.Schema, at span) bool {
	if len(s.Required) == 0 && s.MinProperties < 0 && len(s.Properties) == 0 && s.AdditionalProperties == nil {
		return true
	}
	ok := true
	count, required, closed := 0, 0, false
	if allowed, isBool := s.AdditionalProperties.(bool); isBool {
		closed = !allowed
	}
	additional, _ := s.AdditionalProperties.(*jsonschema.Schema)
	more := false
	for i := int(at.start) + 1; x.text[i] != '}'; count++ {
		if x.text[i] == ',' {
			i++
		}
		name := x.text[i+1 : skipString(x.text, i)-1]
		i += len(name) + 3
		value := between(i, skip(x.text, i))
		i = int(value.end)
		if bytes.IndexByte(name, '\\') >= 0 {
			name, _ = jcs.AppendUnescaped(nil, name)
		}
		if slices.ContainsFunc(s.Required, func(r string) bool { return r == string(name) }) {
			required++
		}
		sub, known := s.Properties[string(name)]
		if !known {
			sub = additional
			more = more || closed
		}
		if sub != nil {
			parent := len(x.path)
			x.path = appendPointerToken(x.path, name)
			ok = x.check(sub, value) && ok
			x.path = x.path[:parent]
		}
	}
	if more {
		ok = x.fault(s, "additionalProperties")
	}
	if s.MinProperties >= 0 && count < s.MinProperties {
		ok = x.fault(s, "minProperties")
	}
	if required < len(s.Required) {
		ok = x.fault(s, "required")
	}
	return ok
}

// appendPointerToken appends a member name as a token of a JSON pointer.
func appendPointerToken(dst, name []byte) []byte {
	dst = append(dst, '/')
	if bytes.IndexByte(name, '~') >= 0 || bytes.IndexByte(name, '/') >= 0 || len(name) > maxText-2 {
		return append(dst, pointerToken(string(name))...)
	}
	return append(dst, name...)
}
