package codec

import (
	"bytes"
	"regexp"

	"provstream/internal/jcs"

	"github.com/santhosh-tekuri/jsonschema/v5"
)

// unhandled returns a keyword of s that the fast path does not know.
func unhandled(s *jsonschema.Schema) string {
	switch {
	case s.Always != nil && !*s.Always:
		return "false"
	case s.RecursiveRef != nil || s.DynamicRef != nil:
		return "a dynamic reference"
	case s.Not != nil:
		return "not"
	case len(s.AnyOf) > 0:
		return "anyOf"
	case s.Else != nil:
		return "else"
	case s.MaxProperties >= 0:
		return "maxProperties"
	case s.PropertyNames != nil || s.RegexProperties:
		return "propertyNames"
	case len(s.PatternProperties) > 0:
		return "patternProperties"
	case len(s.Dependencies)+len(s.DependentRequired)+len(s.DependentSchemas) > 0:
		return "dependent…"
	case s.UnevaluatedProperties != nil || s.UnevaluatedItems != nil:
		return "unevaluated…"
	case s.Items != nil || s.AdditionalItems != nil || len(s.PrefixItems) > 0:
		return "prefixItems"
	case s.Contains != nil:
		return "contains"
	case s.ContentEncoding != "" || s.ContentMediaType != "" || s.ContentSchema != nil:
		return "content…"
	case s.ExclusiveMinimum != nil || s.ExclusiveMaximum != nil:
		return "exclusiveMinimum"
	case s.MultipleOf != nil:
		return "multipleOf"
	case len(s.Extensions) > 0:
		return "an extension"
	}
	for _, alternative := range s.OneOf {
		if !onlyRequired(alternative) {
			return "oneOf"
		}
	}
	return ""
}

// used returns a keyword that s asserts anything with, "" where it asserts
// nothing.
func used(s *jsonschema.Schema) string {
	if unknown := unhandled(s); unknown != "" {
		return unknown
	}
	switch {
	case s.Always != nil:
		return "true"
	case s.Ref != nil:
		return "$ref"
	case len(s.Types) > 0:
		return "type"
	case len(s.Constant) > 0:
		return "const"
	case len(s.Enum) > 0:
		return "enum"
	case s.Format != "":
		return "format"
	case len(s.AllOf) > 0:
		return "allOf"
	case len(s.OneOf) > 0:
		return "oneOf"
	case s.If != nil:
		return "if"
	case s.MinProperties >= 0:
		return "minProperties"
	case len(s.Required) > 0:
		return "required"
	case len(s.Properties) > 0 || s.AdditionalProperties != nil:
		return "properties"
	case s.MinItems >= 0 || s.MaxItems >= 0 || s.UniqueItems || s.Items2020 != nil:
		return "items"
	case s.MinLength >= 0 || s.MaxLength >= 0 || s.Pattern != nil:
		return "pattern"
	case s.Minimum != nil || s.Maximum != nil:
		return "minimum"
	}
	return ""
}

// The patterns of the ACS schemas, matched by hand because a regular
// expression costs several times as much. Another pattern is matched as it is.
const (
	patternVersion = `^[0-9]+\.[0-9]+\.[0-9]+$`
	patternHash    = `^[0-9a-f]{64}$`
	patternMethod  = `^(steps/|protocols/|agbom/|trace/|system/|handshake/|wrapped:).+`
)

// matcher returns a function that tells whether a string, given as the inside
// of its canonical text, matches a pattern.
func matcher(pattern *regexp.Regexp) func([]byte) bool {
	var byHand func([]byte) bool
	switch pattern.String() {
	case patternVersion:
		byHand = matchVersion
	case patternHash:
		byHand = matchHash
	case patternMethod:
		byHand = matchMethod
	}
	return func(text []byte) bool {
		if bytes.IndexByte(text, '\\') >= 0 {
			s, ok := jcs.AppendUnescaped(nil, text)
			return ok && pattern.Match(s)
		}
		if byHand != nil {
			return byHand(text)
		}
		return pattern.Match(text)
	}
}

func matchVersion(s []byte) bool {
	for part := range 3 {
		i := 0
		for i < len(s) && s[i]-'0' <= 9 {
			i++
		}
		if i == 0 {
			return false
		}
		if part == 2 {
			return i == len(s)
		}
		if i == len(s) || s[i] != '.' {
			return false
		}
		s = s[i+1:]
	}
	return false
}

func matchHash(s []byte) bool {
	if len(s) != 64 {
		return false
	}
	for _, c := range s {
		if hexValue[c] > 0xf {
			return false
		}
	}
	return true
}

// methodSpaces are the name spaces of ACS methods.
var methodSpaces = [][]byte{
	[]byte("steps/"), []byte("protocols/"), []byte("agbom/"), []byte("trace/"), []byte("system/"), []byte("handshake/"), []byte("wrapped:"),
}

// matchMethod needs one more character behind the name space, which is no line
// feed: there is none in the text of a string without escapes.
func matchMethod(s []byte) bool {
	for _, space := range methodSpaces {
		if len(s) > len(space) && bytes.HasPrefix(s, space) {
			return true
		}
	}
	return false
}
