// Package kindgi reads the Kindgi Provenance DAG 1.0.0 in the one form in
// which provstream writes it: the RFC 8785 text of the document, members in
// order, nothing between them. A [Reader] goes over the bytes once and either
// has seen that every rule holds or says which one does not.
//
// The document (`…` stands for more of the same; `signature` is absent before
// signing, `flowRef` in all our DAGs):
//
//	{"createdAt":"2026-11-29T21:46:49.000Z",
//	 "edges":[{"from":"model-output:3","kind":"influenced-by","to":"input:2"},…],
//	 "flowRef":{"id":"…","version":"…"},
//	 "id":"<runId>.<32 hex>",
//	 "nodes":[{"actor":"…","attributes":{…},"contentHash":"sha256:<64 hex>","contentRef":"…","id":"input:2",
//	           "kind":"input","modelVersion":"…","policyDecisionId":"…","timestamp":"2026-11-29T21:46:40.120Z"},…],
//	 "runId":"…",
//	 "signature":{"algorithm":"ed25519","keyId":"…","signedAt":"…","value":"<base64>"},
//	 "tenantId":"…",
//	 "version":"1.0.0"}
//
// What is checked: the schema (every object but attributes is closed), and
// the graph (ids unique, ends of edges exist, no edge twice or onto itself,
// acyclic). A DAG of provstream, which is what a Reader takes unless told
// otherwise, also keeps the order of its nodes and edges, numbers its nodes
// without a hole, has an id that names its run, and stands behind what its
// attributes say: a step with inferred lineage has the edge, a segment node
// names a DAG of its run with the hash that is part of its id.
package kindgi

import (
	"encoding/binary"
	"strconv"
)

// Version is the only schema version that is read and written.
const Version = "1.0.0"

// edgeKinds in the order of their names, which is also their order in a DAG.
var edgeKinds = []string{
	"caused-by", "checked-against", "influenced-by", "invoked", "produced", "resumed-from", "retrieved-from", "waited-on",
}

// Span is a piece of the document. Of a string it is the text between the
// quotation marks.
type Span struct{ Start, End int32 }

// Node is what the Reader keeps of a node.
type Node struct {
	ID          Span
	Kind        Span
	ContentHash Span // with sha256:, empty when absent
	// What attributes say about the place in the graph; empty when absent.
	Lineage, Call, Segment, DAGID Span
}

// Edge is what the Reader keeps of an edge. From and To are positions in
// Nodes.
type Edge struct {
	from, to Span
	From, To int32
	kind     uint8
}

// Kind returns the edge's kind.
func (e *Edge) Kind() string { return edgeKinds[e.kind] }

// Reader reads documents, one after the other; it keeps its storage. It is
// not safe for concurrent use. Its fields are valid until the next Read, and
// so are the bytes that were read.
type Reader struct {
	// Foreign takes any well-formed DAG of the schema: nodes and edges in any
	// order, ids of any form, any RFC 3339 timestamps.
	Foreign bool

	Nodes                        []Node
	Edges                        []Edge
	CreatedAt, ID, RunID         Span
	TenantID                     Span
	FlowRef                      Span // the object; empty when absent
	Signed                       bool
	Algorithm, KeyID             Span
	SignedAt, Signature          Span
	nodes, edges                 Span // the arrays, brackets included
	signatureStart, signatureEnd int32
	versionStart                 int32
	buf                          []byte
	outOf                        []int32
	degree, queue                []int32
	byID                         map[string]int32
	first                        int64 // number of the first node
	problem                      *Error
}

// Bytes returns the bytes of a span.
func (r *Reader) Bytes(s Span) []byte { return r.buf[s.Start:s.End] }

// Text returns the string that a span stands for.
func (r *Reader) Text(s Span) string { return unescape(r.buf[s.Start:s.End]) }

// UnsignedParts returns the document without its signature, in two pieces:
// together they are the canonical text of the unsigned DAG, the leaf of the
// log.
func (r *Reader) UnsignedParts() (head, tail []byte) {
	if !r.Signed {
		return r.buf, nil
	}
	return r.buf[:r.signatureStart], r.buf[r.signatureEnd:]
}

// AppendSigningBytes appends the bytes that the signature is over: the
// canonical text of the document without signature and version.
func (r *Reader) AppendSigningBytes(dst []byte) []byte {
	head, tail := r.buf[:r.versionStart], []byte(nil)
	if r.Signed {
		head, tail = r.buf[:r.signatureStart], r.buf[r.signatureEnd:r.versionStart]
	}
	dst = append(dst, head...)
	dst = append(dst, tail...)
	return append(dst, '}')
}

// SplitForSignature returns the two pieces of an unsigned document between
// which the member signature belongs.
func (r *Reader) SplitForSignature() (head, tail []byte) {
	return r.buf[:r.signatureStart], r.buf[r.signatureStart:]
}

// GraphParts returns the pieces of the canonical text of [nodes, edges],
// whose SHA-256 is part of the id.
func (r *Reader) GraphParts() (nodes, edges []byte) {
	return r.Bytes(r.nodes), r.Bytes(r.edges)
}

// Read reads one document. The error is an *Error.
func (r *Reader) Read(b []byte) error {
	if len(b) > 1<<30 {
		return &Error{Class: ClassSchema, Detail: "longer than 1 GiB"}
	}
	r.reset(b)
	pos := r.document()
	if pos < 0 || pos != len(b) {
		return r.diagnose()
	}
	if e := r.graph(); e != nil {
		return e
	}
	return nil
}

func (r *Reader) reset(b []byte) {
	*r = Reader{
		Foreign: r.Foreign, Nodes: r.Nodes[:0], Edges: r.Edges[:0], buf: b,
		outOf: r.outOf[:0], degree: r.degree[:0], queue: r.queue[:0], byID: r.byID,
	}
}

// document reads the record. It returns -1 as soon as something is not as it
// should be; r.problem may say what.
func (r *Reader) document() int {
	b := r.buf
	i := r.literal(0, `{"createdAt":"`)
	if i, r.CreatedAt = r.timestamp(i); i < 0 {
		return -1
	}
	if i = r.literal(i, `,"edges":`); i < 0 {
		return -1
	}
	if i = r.edgeArray(i); i < 0 {
		return -1
	}
	if has(b, i, `,"flowRef":`) {
		i += len(`,"flowRef":`)
		start := i
		if i = r.flowRef(i); i < 0 {
			return -1
		}
		r.FlowRef = Span{int32(start), int32(i)}
	}
	if i, r.ID = r.text(r.literal(i, `,"id":"`)); i < 0 {
		return -1
	}
	if i = r.literal(i, `,"nodes":`); i < 0 {
		return -1
	}
	if i = r.nodeArray(i); i < 0 {
		return -1
	}
	if i, r.RunID = r.text(r.literal(i, `,"runId":"`)); i < 0 {
		return -1
	}
	r.signatureStart = int32(i)
	if has(b, i, `,"signature":`) {
		r.Signed = true
		if i = r.signature(i + len(`,"signature":`)); i < 0 {
			return -1
		}
		r.signatureEnd = int32(i)
	}
	if i, r.TenantID = r.text(r.literal(i, `,"tenantId":"`)); i < 0 {
		return -1
	}
	r.versionStart = int32(i)
	var version Span
	if i, version = r.text(r.literal(i, `,"version":"`)); i < 0 {
		return -1
	}
	if string(r.Bytes(version)) != Version {
		r.problem = &Error{Class: ClassVersion, Path: "/version", Detail: "schema version " + strconv.Quote(r.Text(version)) + ", only " + Version + " is read"}
		return -1
	}
	return r.literal(i, `}`)
}

func (r *Reader) literal(i int, text string) int {
	if i < 0 || !has(r.buf, i, text) {
		return -1
	}
	return i + len(text)
}

// text reads the rest of a string that is not empty, and its closing mark.
func (r *Reader) text(i int) (int, Span) {
	if i < 0 {
		return -1, Span{}
	}
	end := str(r.buf, i)
	if end <= i { // empty is not allowed anywhere in the schema
		return -1, Span{}
	}
	return end + 1, Span{int32(i), int32(end)}
}

// open reads the rest of a string that may be empty.
func (r *Reader) open(i int) (int, Span) {
	if i < 0 {
		return -1, Span{}
	}
	end := str(r.buf, i)
	if end < 0 {
		return -1, Span{}
	}
	return end + 1, Span{int32(i), int32(end)}
}

// timestamp reads the rest of a date-time.
func (r *Reader) timestamp(i int) (int, Span) {
	if !r.Foreign {
		end := i + len("2006-01-02T15:04:05.000Z")
		if i < 0 || end >= len(r.buf) || r.buf[end] != '"' || !validTime(r.buf[i:end]) {
			return -1, Span{}
		}
		return end + 1, Span{int32(i), int32(end)}
	}
	next, s := r.text(i)
	if next < 0 {
		return -1, Span{}
	}
	if !rfc3339(r.Bytes(s)) {
		return -1, Span{}
	}
	return next, s
}

func (r *Reader) flowRef(i int) int {
	i, _ = r.open(r.literal(i, `{"id":"`))
	i, _ = r.open(r.literal(i, `,"version":"`))
	return r.literal(i, `}`)
}

func (r *Reader) signature(i int) int {
	i, r.Algorithm = r.text(r.literal(i, `{"algorithm":"`))
	if i < 0 || string(r.Bytes(r.Algorithm)) != "ed25519" {
		return -1
	}
	i, r.KeyID = r.open(r.literal(i, `,"keyId":"`))
	i, r.SignedAt = r.timestamp(r.literal(i, `,"signedAt":"`))
	i, r.Signature = r.text(r.literal(i, `,"value":"`))
	if i < 0 || !base64Text(r.Bytes(r.Signature)) {
		return -1
	}
	return r.literal(i, `}`)
}

// base64Text is the schema's pattern of a signature value; how long it is and
// what its unused bits are is for the verifier.
func base64Text(b []byte) bool {
	for pad := 0; pad < 2 && len(b) > 0 && b[len(b)-1] == '='; pad++ {
		b = b[:len(b)-1]
	}
	for _, c := range b {
		if (c|0x20) < 'a' || (c|0x20) > 'z' {
			if (c < '0' || c > '9') && c != '+' && c != '/' {
				return false
			}
		}
	}
	return len(b) > 0
}

func (r *Reader) edgeArray(i int) int {
	b := r.buf
	start := i
	if has(b, i, `[]`) {
		r.edges = Span{int32(i), int32(i + 2)}
		return i + 2
	}
	if i = r.literal(i, `[`); i < 0 {
		return -1
	}
	for {
		var e Edge
		if i, e.from = r.text(r.literal(i, `{"from":"`)); i < 0 {
			return -1
		}
		if i = r.literal(i, `,"kind":"`); i < 0 {
			return -1
		}
		if i, e.kind = edgeKind(b, i); i < 0 {
			return -1
		}
		if i, e.to = r.text(r.literal(i, `,"to":"`)); i < 0 {
			return -1
		}
		if i = r.literal(i, `}`); i < 0 || i >= len(b) {
			return -1
		}
		r.Edges = append(r.Edges, e)
		if b[i] == ']' {
			r.edges = Span{int32(start), int32(i + 1)}
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i++
	}
}

// edgeKind reads the rest of a kind, and its closing mark.
func edgeKind(b []byte, i int) (next int, kind uint8) {
	for k, name := range edgeKinds {
		if b[min(i, len(b)-1)] != name[0] || !has(b, i, name) {
			continue
		}
		if end := i + len(name); end < len(b) && b[end] == '"' {
			return end + 1, uint8(k)
		}
	}
	return -1, 0
}

func nodeKind(k []byte) bool {
	switch string(k) {
	case "artifact", "event", "guardrail-check", "input", "memory-read", "memory-write", "model-call", "model-output",
		"policy-decision", "prompt", "resume", "retrieval", "tool-call", "tool-result", "wait":
		return true
	}
	return false
}

func (r *Reader) nodeArray(i int) int {
	b := r.buf
	start := i
	if has(b, i, `[]`) {
		r.nodes = Span{int32(i), int32(i + 2)}
		return i + 2
	}
	if i = r.literal(i, `[`); i < 0 {
		return -1
	}
	for {
		r.Nodes = append(r.Nodes, Node{})
		if i = r.node(i, &r.Nodes[len(r.Nodes)-1]); i < 0 || i >= len(b) {
			return -1
		}
		if b[i] == ']' {
			r.nodes = Span{int32(start), int32(i + 1)}
			return i + 1
		}
		if b[i] != ',' {
			return -1
		}
		i++
	}
}

func (r *Reader) node(i int, n *Node) int {
	b := r.buf
	if i = r.literal(i, `{`); i < 0 {
		return -1
	}
	if has(b, i, `"actor":"`) {
		i, _ = r.open(i + len(`"actor":"`))
		i = r.literal(i, `,`)
	}
	if i >= 0 && has(b, i, `"attributes":`) {
		i = r.literal(r.attributes(i+len(`"attributes":`), n), `,`)
	}
	if i >= 0 && has(b, i, `"contentHash":"`) {
		i, n.ContentHash = r.contentHash(i + len(`"contentHash":"`))
		i = r.literal(i, `,`)
	}
	if i >= 0 && has(b, i, `"contentRef":"`) {
		i, _ = r.open(i + len(`"contentRef":"`))
		i = r.literal(i, `,`)
	}
	if i, n.ID = r.text(r.literal(i, `"id":"`)); i < 0 {
		return -1
	}
	if i, n.Kind = r.text(r.literal(i, `,"kind":"`)); i < 0 || !nodeKind(b[n.Kind.Start:n.Kind.End]) {
		return -1
	}
	if more(b, i, 'm') && has(b, i, `,"modelVersion":"`) {
		i, _ = r.open(i + len(`,"modelVersion":"`))
	}
	if more(b, i, 'p') && has(b, i, `,"policyDecisionId":"`) {
		i, _ = r.open(i + len(`,"policyDecisionId":"`))
	}
	i, _ = r.timestamp(r.literal(i, `,"timestamp":"`))
	return r.literal(i, `}`)
}

// more tells whether a further member stands at i whose name begins with c:
// cheaper than comparing the whole name of one that is mostly not there.
func more(b []byte, i int, c byte) bool { return i >= 0 && i+2 < len(b) && b[i+2] == c }

// attributes reads an open object and keeps what it says about the graph.
func (r *Reader) attributes(i int, n *Node) int {
	b := r.buf
	if i = r.literal(i, `{`); i < 0 {
		return -1
	}
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	var last []byte
	for first := true; ; first = false {
		if i >= len(b) || b[i] != '"' {
			return -1
		}
		end := str(b, i+1)
		if end < 0 || end+1 >= len(b) || b[end+1] != ':' {
			return -1
		}
		name := b[i+1 : end]
		if !first && !less(last, name) {
			return -1
		}
		last = name
		start := end + 2
		if i = value(b, start, 4); i < 0 || i >= len(b) {
			return -1
		}
		switch string(name) {
		case "call":
			n.Call = Span{int32(start), int32(i)}
		case "dag_id":
			n.DAGID = Span{int32(start), int32(i)}
		case "lineage":
			n.Lineage = Span{int32(start), int32(i)}
		case "segment":
			n.Segment = Span{int32(start), int32(i)}
		}
		switch b[i] {
		case ',':
			i++
		case '}':
			return i + 1
		default:
			return -1
		}
	}
}

// hexOnly tells whether the eight bytes of x are all lower-case hexadecimal
// digits: with bit 7 clear, adding 0x80-c sets it where a byte is at least c.
func hexOnly(x uint64) bool {
	digit := (x + (0x80-'0')*lsb) &^ (x + (0x80-'9'-1)*lsb)
	letter := (x + (0x80-'a')*lsb) &^ (x + (0x80-'f'-1)*lsb)
	return (digit|letter)&^x&msb == msb
}

// isHex is for lengths that are multiples of eight.
func isHex(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		x := binary.LittleEndian.Uint64(b)
		if x&msb != 0 || !hexOnly(x) {
			return false
		}
	}
	return len(b) == 0
}

const contentHashPrefix = "sha256:"

// contentHash reads the rest of a content hash, and its closing mark.
func (r *Reader) contentHash(i int) (int, Span) {
	end := i + len(contentHashPrefix) + 64
	if end >= len(r.buf) || r.buf[end] != '"' || !has(r.buf, i, contentHashPrefix) || !isHex(r.buf[i+len(contentHashPrefix):end]) {
		return -1, Span{}
	}
	return end + 1, Span{int32(i), int32(end)}
}
