package codec

import (
	"errors"
	"net/url"
	"strings"

	"provstream/internal/acs"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// jsonschema/v5 decides about a text of up to v5MaxBytes with up to v5MaxFaults
// failing assertions, v5PerRecord times a record (of a batch only the first
// failing element is told). Beyond that it would take memory and time far out
// of proportion to the record, and the explainer decides.
const (
	v5MaxBytes  = 64 << 10
	v5MaxFaults = 100
	v5PerRecord = 8
)

// validate applies a schema to a canonical text. Of the assertions that fail
// it tells the one with the smallest instance pointer, then the smallest
// keyword. prefix is the pointer of the text in its envelope.
//
// Whether anything fails is v5's word. Which assertion is told is the
// explainer's, because v5 leaves empty member names out of its locations; only
// where the two disagree about the verdict, or a schema has a keyword that the
// explainer does not know, is v5's smallest leaf told.
func (r *Reader) validate(sch *jsonschema.Schema, text []byte, kind, prefix string) DeadLetter {
	x := &r.explainer
	x.explain(sch, text)
	least := x.least
	if x.unhandled || len(text) <= v5MaxBytes && x.faults <= v5MaxFaults && r.asked < r.v5PerRecord {
		r.asked++
		switch theirs, ok := validateV5(sch, tree(text)); {
		case !ok: // what is left is the explainer's word
		case !theirs.found:
			return DeadLetter{}
		case x.unhandled || !least.found:
			least = theirs
		}
	}
	if !least.found {
		return DeadLetter{}
	}
	return schemaFault(kind, prefix+least.pointer, least.keyword, least.schema)
}

// validateV5 asks jsonschema/v5, and returns the smallest leaf of its error. ok
// is false where v5 gives no answer: it is known to panic on numbers that
// callers here never give it, and a record must not stop the service.
func validateV5(sch *jsonschema.Schema, v any) (least leaf, ok bool) {
	defer func() {
		if recover() != nil {
			least, ok = leaf{}, false
		}
	}()
	err := sch.Validate(v)
	if err == nil {
		return leaf{}, true
	}
	var fault *jsonschema.ValidationError
	if !errors.As(err, &fault) {
		return leaf{}, false
	}
	least.collect(fault)
	return least, true
}

func schemaFault(kind, pointer, keyword, id string) DeadLetter {
	message, ok := keywordMessages[keyword]
	if !ok {
		message = "the value at the pointer breaks the keyword of the schema"
	}
	return DeadLetter{Kind: kind, Pointer: pointer, Keyword: keyword, Schema: id, Message: message}
}

// keywordMessages say what is wrong without repeating anything of the record.
var keywordMessages = map[string]string{
	"additionalProperties": "the object at the pointer has a member that is not allowed",
	"const":                "the value at the pointer is not the one that is allowed",
	"enum":                 "the value at the pointer is none of those that are allowed",
	"format":               "the string at the pointer does not have the required format",
	"maxLength":            "the string at the pointer is too long",
	"maximum":              "the number at the pointer is too large",
	"minItems":             "the array at the pointer has too few items",
	"minLength":            "the string at the pointer is too short",
	"minProperties":        "the object at the pointer has too few members",
	"minimum":              "the number at the pointer is too small",
	"oneOf":                "the object at the pointer must match exactly one of the alternatives",
	"pattern":              "the string at the pointer does not match the required pattern",
	"required":             "the object at the pointer lacks a required member",
	"type":                 "the value at the pointer has another type than the required one",
	"uniqueItems":          "the array at the pointer has an item twice",
}

// leaf is the smallest failing assertion that was seen.
type leaf struct {
	found                    bool
	pointer, keyword, schema string
}

// add takes in one more failing assertion.
func (l *leaf) add(pointer, keyword, schema string) {
	if l.found && (pointer > l.pointer || pointer == l.pointer && (keyword > l.keyword || keyword == l.keyword && schema >= l.schema)) {
		return
	}
	*l = leaf{true, pointer, keyword, schema}
}

// collect takes in the leaves of a v5 error. It descends through the nodes that
// only lead on: those of $ref, allOf and then, and those that merely group. What
// fails inside the branches of another applicator (oneOf, anyOf, not) is no
// leaf: the applicator itself is.
func (l *leaf) collect(e *jsonschema.ValidationError) {
	id, fragment, _ := strings.Cut(e.AbsoluteKeywordLocation, "#")
	keyword := fragment[strings.LastIndexByte(fragment, '/')+1:]
	group := e.Message == ""
	if len(e.Causes) > 0 && (group || keyword != "oneOf" && keyword != "anyOf" && keyword != "contains" && keyword != "minContains") {
		for _, cause := range e.Causes {
			l.collect(cause)
		}
		return
	}
	l.add(plainPointer(e.InstanceLocation), keyword, id)
}

// plainPointer turns v5's percent-encoded instance location into a plain RFC
// 6901 pointer. Names are clamped like every other string taken over from an
// envelope.
func plainPointer(location string) string {
	plain, err := url.PathUnescape(location)
	if err != nil || len(plain) <= acs.MaxString {
		return plain
	}
	tokens := strings.Split(plain, "/")
	for i, token := range tokens {
		if len(token) > acs.MaxString {
			tokens[i] = pointerToken(unpointer.Replace(token))
		}
	}
	return strings.Join(tokens, "/")
}

var unpointer = strings.NewReplacer("~1", "/", "~0", "~")
var topointer = strings.NewReplacer("~", "~0", "/", "~1")

// pointerToken writes a member name as a token of a JSON pointer.
func pointerToken(name string) string {
	return topointer.Replace(acs.Clamp(name))
}
