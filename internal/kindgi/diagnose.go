package kindgi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v5"

	"provstream/internal/jcs"
)

// Class says which rule a document breaks.
type Class uint8

// The classes, in the order in which they are looked at.
const (
	ClassStrict    Class = iota + 1 // no strict JSON: syntax, UTF-8, repeated names
	ClassCanonical                  // strict JSON, but not its RFC 8785 text
	ClassVersion                    // another schema version
	ClassSchema                     // not a DAG of the schema
	ClassGraph                      // no sound graph
)

// Error says what is wrong with a document, and where: Path is a JSON Pointer,
// Offset a byte position (of ClassCanonical, the first byte that differs).
type Error struct {
	Class  Class
	Path   string
	Offset int
	Detail string
}

func (e *Error) Error() string { return e.Detail }

//go:embed provenance.schema.json
var schemaText []byte

// Schema returns the JSON Schema (2020-12) of the document.
func Schema() []byte { return slices.Clone(schemaText) }

var compiled = sync.OnceValue(func() *jsonschema.Schema {
	c := jsonschema.NewCompiler()
	c.Draft = jsonschema.Draft2020
	c.AssertFormat = true
	c.LoadURL = nil
	const name = "https://kindgi.com/schemas/v1/provenance.schema.json"
	if err := c.AddResource(name, bytes.NewReader(schemaText)); err != nil {
		panic("kindgi: " + err.Error())
	}
	return c.MustCompile(name)
})

// diagnose finds out why the Reader gave up. It is slow and thorough: another
// canonicaliser and a JSON Schema validator look at the document.
func (r *Reader) diagnose() *Error {
	canonical, err := jcs.Canonicalize(nil, r.buf)
	if err != nil {
		return &Error{Class: ClassStrict, Detail: "not strict JSON: " + err.Error()}
	}
	if at := firstDifference(canonical, r.buf); at >= 0 {
		return &Error{Class: ClassCanonical, Offset: at, Detail: fmt.Sprintf("not the RFC 8785 text of its content: differs at byte %d", at)}
	}
	if r.problem != nil {
		return r.problem
	}
	if len(r.buf) > maxDiagnosed {
		path := r.where()
		return &Error{Class: ClassSchema, Path: path, Detail: fmt.Sprintf("not a Kindgi DAG %s: what stands at or behind %s is not of the schema", Version, path)}
	}
	var doc any
	if err := json.Unmarshal(r.buf, &doc); err != nil {
		return &Error{Class: ClassStrict, Detail: "not strict JSON: " + err.Error()}
	}
	if m, ok := doc.(map[string]any); ok && isOtherVersion(m["version"]) {
		v := m["version"].(string)
		return &Error{Class: ClassVersion, Path: "/version", Detail: "schema version " + strconv.Quote(v) + ", only " + Version + " is read"}
	}
	if err := compiled().Validate(doc); err != nil {
		var ve *jsonschema.ValidationError
		if errors.As(err, &ve) {
			return schemaError(ve)
		}
		return &Error{Class: ClassSchema, Detail: "schema: " + err.Error()}
	}
	if path, ok := badTime(doc); ok {
		return &Error{Class: ClassSchema, Path: path, Detail: "time at " + path + ": want RFC 3339 in UTC with three fraction digits and Z"}
	}
	return &Error{Class: ClassSchema, Detail: "not a DAG that this version writes"}
}

// maxDiagnosed bounds the documents that the schema validator looks at: it
// holds an object for every fault, and somebody may have made millions. Of
// longer ones only the place is told.
const maxDiagnosed = 256 << 10

// where is the last part of the document that the Reader began with.
func (r *Reader) where() string {
	switch {
	case r.nodes.End > 0:
		return "/runId"
	case len(r.Nodes) > 0:
		return "/nodes/" + strconv.Itoa(len(r.Nodes)-1)
	case r.edges.End > 0:
		return "/id"
	case r.CreatedAt.End > 0:
		return "/edges/" + strconv.Itoa(len(r.Edges))
	}
	return "/createdAt"
}

func isOtherVersion(v any) bool {
	s, ok := v.(string)
	return ok && s != Version
}

func firstDifference(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	if len(a) != len(b) {
		return min(len(a), len(b))
	}
	return -1
}

// schemaError picks the failing leaf with the smallest pointer. The words are
// ours: those of the validator echo values.
func schemaError(ve *jsonschema.ValidationError) *Error {
	var leaves []*jsonschema.ValidationError
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(e.Causes) == 0 {
			leaves = append(leaves, e)
		}
		for _, c := range e.Causes {
			walk(c)
		}
	}
	walk(ve)
	keyword := func(e *jsonschema.ValidationError) string {
		return e.KeywordLocation[strings.LastIndexByte(e.KeywordLocation, '/')+1:]
	}
	slices.SortStableFunc(leaves, func(a, b *jsonschema.ValidationError) int {
		if c := strings.Compare(a.InstanceLocation, b.InstanceLocation); c != 0 {
			return c
		}
		return strings.Compare(keyword(a), keyword(b))
	})
	e := leaves[0]
	where := e.InstanceLocation
	if where == "" {
		where = "the document"
	}
	return &Error{Class: ClassSchema, Path: e.InstanceLocation, Detail: fmt.Sprintf("not a Kindgi DAG %s: %s breaks %q", Version, where, keyword(e))}
}

// badTime finds a date-time that is none of ours.
func badTime(doc any) (string, bool) {
	m, _ := doc.(map[string]any)
	bad := func(v any) bool {
		s, ok := v.(string)
		return !ok || !validTime([]byte(s))
	}
	if bad(m["createdAt"]) {
		return "/createdAt", true
	}
	nodes, _ := m["nodes"].([]any)
	for i, n := range nodes {
		if n, ok := n.(map[string]any); ok && bad(n["timestamp"]) {
			return "/nodes/" + strconv.Itoa(i) + "/timestamp", true
		}
	}
	if s, ok := m["signature"].(map[string]any); ok && bad(s["signedAt"]) {
		return "/signature/signedAt", true
	}
	return "", false
}
