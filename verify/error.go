package verify

import (
	"errors"
	"strings"

	"provstream/internal/kindgi"
)

// Kind says which rule does not hold.
type Kind string

// The kinds. The first that fails is told, in about this order.
const (
	NotStrict    Kind = "not_strict"    // no strict JSON: syntax, UTF-8, a repeated name
	NotCanonical Kind = "not_canonical" // strict JSON, but not its RFC 8785 text
	BadVersion   Kind = "version"       // a schema version that is not 1.0.0; the signature does not cover it
	BadSchema    Kind = "schema"        // not a document of the schema
	NotSigned    Kind = "not_signed"    // no signature
	UnknownKey   Kind = "unknown_key"   // signed by a key that is not pinned
	WrongTenant  Kind = "key_tenant"    // signed by a key that is bound to another tenant
	KeyRetired   Kind = "key_retired"   // signed by a key outside the part of the log that it was valid for
	KeyExposed   Kind = "key_compromised"
	BadSignature Kind = "signature" // the content was changed after signing, or another key has signed it
	BadGraph     Kind = "graph"     // the graph contradicts itself
	BadID        Kind = "id"        // the id is not made of the content

	BadProof      Kind = "proof"       // no tlog-proof, or a malformed one
	NotIncluded   Kind = "inclusion"   // the proof does not lead from this record to the root
	BadCheckpoint Kind = "checkpoint"  // a malformed head, or one that its key has not signed
	WrongOrigin   Kind = "origin"      // evidence of another log
	WrongPlace    Kind = "place"       // a record stands where another one belongs: dropped, inserted, repeated or moved
	NotConsistent Kind = "consistency" // a head does not continue an earlier one
	Forked        Kind = "fork"        // two different heads of the same size
	Truncated     Kind = "truncated"   // less than an earlier head covers
	BadCoverage   Kind = "coverage"    // a malformed coverage record
	NotCovered    Kind = "not_covered" // offsets that no coverage record accounts for
	CoveredTwice  Kind = "covered_twice"
	WrongValues   Kind = "values" // the hook records are not the ones that were read
)

// Error says what does not hold.
type Error struct {
	Kind Kind
	// Detail is a sentence for people.
	Detail string
	// Path is a JSON Pointer into the document; "" where the whole is meant.
	Path string
	// Offset is the byte at which text stops being canonical; -1 elsewhere.
	Offset int
	// KeyID is the key in question, Origin the log, Index the leaf or the size
	// (-1: none).
	KeyID  string
	Origin string
	Index  int64
	// Got and Want are hashes that should be equal.
	Got, Want string
	Err       error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(string(e.Kind))
	b.WriteString(": ")
	b.WriteString(e.Detail)
	if e.Want != "" {
		b.WriteString(" (got ")
		b.WriteString(e.Got)
		b.WriteString(", want ")
		b.WriteString(e.Want)
		b.WriteString(")")
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the Kind of an error of this package, "" of any other.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

func fail(kind Kind, detail string) *Error {
	return &Error{Kind: kind, Detail: detail, Offset: -1, Index: -1}
}

var kindOfClass = map[kindgi.Class]Kind{
	kindgi.ClassStrict: NotStrict, kindgi.ClassCanonical: NotCanonical, kindgi.ClassVersion: BadVersion,
	kindgi.ClassSchema: BadSchema, kindgi.ClassGraph: BadGraph,
}

func fromKindgi(e *kindgi.Error) *Error {
	x := fail(kindOfClass[e.Class], e.Detail)
	x.Path = e.Path
	if e.Class == kindgi.ClassCanonical {
		x.Offset = e.Offset
	}
	return x
}
