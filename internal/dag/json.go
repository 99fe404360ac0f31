package dag

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"provstream/internal/acs"
	"provstream/internal/jcs"
	"provstream/internal/segment"
)

// Version is the schema version of every DAG.
const Version = "1.0.0"

// Document is an unsigned DAG, ready to be produced.
type Document struct {
	ID string
	// Hash is the SHA-256 of the JCS of [nodes, edges]; ID ends with its first
	// 16 bytes.
	Hash acs.Hash
	// Value is the JCS of the record of prov.runs.
	Value []byte
}

// Document writes the graph. codes gives the anomaly codes of a record, sorted;
// createdAt is the clock at the seal in milliseconds, and alloc returns the storage
// of the value.
func (g *Graph) Document(tenant, session string, createdAt int64, codes func(segment.Ref) []string, alloc func(n int) []byte) Document {
	g.asked = segment.Resize(g.asked, g.Order.Seg.Syms.Len())
	w := writer{g: g, codes: codes, b: g.text[:0], syms: g.syms}
	// The hashed text [nodes,edges] and the record hold the same two arrays:
	// they are written once, nodes first, and put together.
	w.b = append(w.b, '[')
	w.nodes()
	split := len(w.b)
	w.b = append(w.b, ',')
	w.edges()
	w.b = append(w.b, ']')
	nodes, edges := w.b[1:split], w.b[split+1:len(w.b)-1]
	doc := Document{Hash: sha256.Sum256(w.b)}
	doc.ID = session + "." + hex.EncodeToString(doc.Hash[:16])

	v := alloc(len(w.b) + len(session)*2 + len(tenant) + 160)[:0]
	v = append(v, `{"createdAt":"`...)
	v = AppendTime(v, createdAt)
	v = append(v, `","edges":`...)
	v = append(v, edges...)
	v = append(v, `,"id":`...)
	v = jcs.AppendString(v, doc.ID)
	v = append(v, `,"nodes":`...)
	v = append(v, nodes...)
	v = append(v, `,"runId":`...)
	v = jcs.AppendString(v, session)
	v = append(v, `,"tenantId":`...)
	v = jcs.AppendString(v, tenant)
	v = append(v, `,"version":"`+Version+`"}`...)
	doc.Value = v
	g.text, g.syms = w.b, w.syms
	return doc
}

// AppendTime appends an instant as rules.md §0 prints it: RFC 3339, UTC,
// exactly three fraction digits.
func AppendTime(b []byte, ms int64) []byte {
	t := time.UnixMilli(ms).UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(b, "2006-01-02T15:04:05.000Z")
	}
	hour, minute, second := t.Clock()
	b = append(b, byte('0'+year/1000), byte('0'+year/100%10), byte('0'+year/10%10), byte('0'+year%10), '-')
	b = append2(b, int(month), '-')
	b = append2(b, day, 'T')
	b = append2(b, hour, ':')
	b = append2(b, minute, ':')
	b = append2(b, second, '.')
	milli := t.Nanosecond() / 1e6
	return append(b, byte('0'+milli/100), byte('0'+milli/10%10), byte('0'+milli%10), 'Z')
}

// append2 appends two digits and what follows them.
func append2(b []byte, n int, then byte) []byte {
	return append(b, byte('0'+n/10), byte('0'+n%10), then)
}

// writer appends the parts of a DAG as JCS: members sorted, sets sorted.
type writer struct {
	g     *Graph
	codes func(segment.Ref) []string
	b     []byte
	syms  []segment.Sym
	first bool // the next attribute is the object's first
}

func (w *writer) nodes() {
	w.b = append(w.b, '[')
	for i, r := range w.g.refs {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		switch {
		case r == segment.NoRef:
			w.segmentNode()
		case r.IsStep():
			w.stepNode(int32(i), r)
		default:
			w.decisionNode(int32(i), r)
		}
	}
	w.b = append(w.b, ']')
}

func (w *writer) edges() {
	w.b = append(w.b, '[')
	for i, e := range w.g.edges {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = append(w.b, `{"from":"`...)
		w.b = w.g.AppendNodeID(w.b, e.from())
		w.b = append(w.b, `","kind":"`...)
		w.b = append(w.b, e.kind().String()...)
		w.b = append(w.b, `","to":"`...)
		w.b = w.g.AppendNodeID(w.b, e.to())
		w.b = append(w.b, `"}`...)
	}
	w.b = append(w.b, ']')
}

// segmentNode stands for the DAG of the segment before.
func (w *writer) segmentNode() {
	m := w.g.Order.Mem
	w.b = append(w.b, `{"attributes":{"dag_id":`...)
	w.b = jcs.AppendString(w.b, m.DAGID)
	w.b = append(w.b, `,"segment":`...)
	w.b = strconv.AppendInt(w.b, int64(m.Segments-1), 10)
	w.b = append(w.b, `},"contentHash":"sha256:`...)
	w.b = hex.AppendEncode(w.b, m.DAGHash[:])
	w.b = append(w.b, `","id":"`...)
	w.b = w.g.AppendNodeID(w.b, 0)
	w.b = append(w.b, `","kind":"artifact","timestamp":"`...)
	w.b = AppendTime(w.b, m.DAGRecordedAt)
	w.b = append(w.b, `"}`...)
}

func (w *writer) stepNode(node int32, r segment.Ref) {
	seg := w.g.Order.Seg
	s := &seg.Steps[r.Step()]
	kind := w.g.kind(node)
	w.b = append(w.b, '{')
	w.actor(s, kind)
	w.b = append(w.b, `"attributes":`...)
	w.stepAttributes(r, s)
	hash := &s.ContentHash
	w.contentAndID(node, kind, hash, s.Topic, s.Partition, s.Offset, s.Index)
	if kind == ModelOutput && w.g.Order.Standing[r.Step()] == segment.Counted {
		for i := range seg.Provs(s) {
			if p := &seg.Provs(s)[i]; p.Origin == acs.OriginAgentGenerated {
				if p.SourceID != segment.None {
					w.b = append(w.b, `"modelVersion":`...)
					w.b = append(jcs.AppendString(w.b, seg.Syms.Bytes(p.SourceID)), ',')
				}
				break
			}
		}
	}
	w.timestamp(s.EventTime)
}

// actor is who made the node: the tool, the user, or the agent of the envelope.
func (w *writer) actor(s *segment.Step, kind NodeKind) {
	seg := w.g.Order.Seg
	prefix, name := "agent:", s.AgentID
	switch {
	case (kind == ToolCall || kind == ToolResult) && s.Tool != segment.None:
		prefix, name = "tool:", s.Tool
	case kind == Input:
		prefix, name = "user:", seg.More(s).UserID
	}
	if name == segment.None {
		return
	}
	w.b = append(w.b, `"actor":"`...)
	w.b = append(w.b, prefix...)
	w.b = append(appendRest(w.b, seg.Syms.Bytes(name)), ',')
}

// appendRest appends the JSON text of a string that goes on behind a prefix:
// without its first quote.
func appendRest(b, s []byte) []byte {
	start := len(b)
	b = jcs.AppendString(b, s)
	copy(b[start:], b[start+1:])
	return b[:len(b)-1]
}

func (w *writer) contentAndID(node int32, kind NodeKind, hash *acs.Hash, topic segment.Sym, partition int32, offset int64, index int32) {
	w.b = append(w.b, `,"contentHash":"sha256:`...)
	w.b = hex.AppendEncode(w.b, hash[:])
	w.b = append(w.b, `","contentRef":"blob://kafka/`...)
	w.b = appendRest(w.b, w.g.Order.Seg.Syms.Bytes(topic))
	w.b[len(w.b)-1] = '/'
	w.b = strconv.AppendInt(w.b, int64(partition), 10)
	w.b = append(w.b, '/')
	w.b = strconv.AppendInt(w.b, offset, 10)
	if index >= 0 {
		w.b = append(w.b, '/')
		w.b = strconv.AppendInt(w.b, int64(index), 10)
	}
	w.b = append(w.b, `","id":"`...)
	w.b = w.g.AppendNodeID(w.b, node)
	w.b = append(w.b, `","kind":"`...)
	w.b = append(w.b, kind.String()...)
	w.b = append(w.b, `",`...)
}

func (w *writer) timestamp(ms int64) {
	w.b = append(w.b, `"timestamp":"`...)
	w.b = AppendTime(w.b, ms)
	w.b = append(w.b, `"}`...)
}

// stepAttributes writes the attributes that are set, in member order. Losers
// carry no ids; of a rejected step little more than its kind is known.
func (w *writer) stepAttributes(r segment.Ref, s *segment.Step) {
	g, seg := w.g, w.g.Order.Seg
	i := r.Step()
	m := seg.More(s)
	var provs []segment.Prov
	if g.Order.Standing[i] == segment.Counted {
		provs = seg.Provs(s)
	}
	w.first = true
	w.b = append(w.b, '{')
	w.strings(`,"anomalies":`, w.codes(r))
	if g.inferredCall[i] {
		w.text(`,"call":`, "inferred")
	}
	w.sym(`,"capability":`, s.Capability)
	if s.Hook == acs.HookSubagentStop && len(provs) > 0 {
		w.parents(`,"child_derived_from":`, provs)
	}
	w.sym(`,"exit_status":`, s.ExitStatus)
	if g.inferredLineage[i] {
		w.text(`,"lineage":`, "inferred")
	}
	w.depth(provs)
	w.sym(`,"method":`, s.Method)
	w.origins(provs)
	w.sym(`,"outcome":`, outcome(seg, s))
	w.ids(provs)
	if s.Skewed {
		w.name(`,"recorded_at":`)
		w.b = append(w.b, '"')
		w.b = append(AppendTime(w.b, s.RecordedAt), '"')
	}
	w.sym(`,"rejected":`, m.RejectedKind)
	w.name(`,"request_hash":`)
	w.b = append(w.b, '"')
	w.b = append(hex.AppendEncode(w.b, s.RequestHash[:]), '"')
	w.sym(`,"signature_key_id":`, m.SignatureKeyID)
	w.sym(`,"skill_id":`, m.Skill)
	w.sources(provs)
	w.sym(`,"step_id":`, s.StepID)
	w.sym(`,"subagent_session_id":`, m.Subagent)
	w.sym(`,"tool":`, s.Tool)
	w.sym(`,"turn_id":`, s.Turn)
	if s.Hook != acs.HookSubagentStop {
		w.unresolved(r, provs)
	}
	w.b = append(w.b, '}')
}

// outcome is that of a turnEnd, or of what else has one.
func outcome(seg *segment.Segment, s *segment.Step) segment.Sym {
	if s.Hook == acs.HookTurnEnd && !s.Rejected {
		return seg.Boundary(s).Outcome
	}
	return seg.More(s).Outcome
}

// parents writes derived_from of all objects as a set.
func (w *writer) parents(name string, provs []segment.Prov) {
	w.startSet()
	for i := range provs {
		w.syms = append(w.syms, w.g.Order.Seg.Parents(&provs[i])...)
	}
	w.set(name)
}

func (w *writer) decisionNode(node int32, r segment.Ref) {
	seg := w.g.Order.Seg
	d := &seg.Decisions[r.Decision()]
	provs := seg.DecisionProvs(d)
	requestID := w.g.Order.RequestID[r.Decision()]
	w.first = true
	w.b = append(w.b, `{"attributes":{`...)
	w.strings(`,"anomalies":`, w.codes(r))
	w.startSet()
	w.syms = append(w.syms, seg.Cited(d)...)
	w.set(`,"cited":`)
	w.sym(`,"decision":`, d.Decision)
	if d.HasErrorCode {
		w.name(`,"error_code":`)
		w.b = jcs.AppendNumber(w.b, d.ErrorCode)
	}
	w.sym(`,"evaluator":`, d.Evaluator)
	w.depth(provs)
	w.origins(provs)
	w.ids(provs)
	w.startSet()
	w.syms = append(w.syms, seg.ReasonCodes(d)...)
	w.set(`,"reason_codes":`)
	w.sym(`,"rejected":`, d.RejectedKind)
	w.sources(provs)
	w.sym(`,"step_id":`, requestID)
	w.unresolved(r, provs)
	w.b = append(w.b, '}')
	w.contentAndID(node, PolicyDecision, &d.Hash, d.Topic, d.Partition, d.Offset, d.Index)
	w.b = append(w.b, `"policyDecisionId":`...)
	w.b = jcs.AppendString(w.b, seg.Syms.Bytes(requestID))
	if n := w.count(requestID); n > 1 {
		w.b = append(w.b[:len(w.b)-1], '#')
		w.b = strconv.AppendInt(w.b, int64(n), 10)
		w.b = append(w.b, '"')
	}
	w.b = append(w.b, ',')
	w.timestamp(d.RecordedAt)
}

// count numbers the answers to one request over the run.
func (w *writer) count(requestID segment.Sym) int32 {
	n := &w.g.asked[requestID]
	if *n == 0 {
		if m := w.g.Order.Recall(requestID); m != nil {
			*n = int32(m.Decisions)
		}
	}
	*n++
	return *n
}

// name appends the name of a member, written as it stands behind another one:
// `,"name":`.
func (w *writer) name(name string) {
	if w.first {
		name = name[1:]
	}
	w.first = false
	w.b = append(w.b, name...)
}

func (w *writer) text(name, value string) {
	w.name(name)
	w.b = jcs.AppendString(w.b, value)
}

func (w *writer) sym(name string, s segment.Sym) {
	if s != segment.None {
		w.name(name)
		w.b = jcs.AppendString(w.b, w.g.Order.Seg.Syms.Bytes(s))
	}
}

func (w *writer) strings(name string, values []string) {
	if len(values) == 0 {
		return
	}
	w.name(name)
	w.b = append(w.b, '[')
	for i, v := range values {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = jcs.AppendString(w.b, v)
	}
	w.b = append(w.b, ']')
}

func (w *writer) startSet() { w.syms = w.syms[:0] }

// set writes the collected symbols as a set, sorted by bytes; nothing when
// there are none.
func (w *writer) set(name string) {
	if len(w.syms) == 0 {
		return
	}
	text := w.g.Order.Seg.Syms.Bytes
	if len(w.syms) > 1 {
		slices.SortFunc(w.syms, func(a, b segment.Sym) int {
			if a == b {
				return 0
			}
			return bytes.Compare(text(a), text(b))
		})
		w.syms = slices.Compact(w.syms)
	}
	w.name(name)
	w.b = append(w.b, '[')
	for i, s := range w.syms {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = jcs.AppendString(w.b, text(s))
	}
	w.b = append(w.b, ']')
}

func (w *writer) ids(provs []segment.Prov) {
	w.startSet()
	for i := range provs {
		w.syms = append(w.syms, provs[i].ID)
	}
	w.set(`,"provenance_ids":`)
}

func (w *writer) sources(provs []segment.Prov) {
	w.startSet()
	for i := range provs {
		if provs[i].SourceID != segment.None {
			w.syms = append(w.syms, provs[i].SourceID)
		}
	}
	w.set(`,"source_ids":`)
}

// unresolved are the parents that the record's own mints state and that the
// run carries nowhere.
func (w *writer) unresolved(r segment.Ref, provs []segment.Prov) {
	w.startSet()
	for i := range provs {
		p := &provs[i]
		if !w.g.Index.MintedBy(p.ID, r) {
			continue
		}
		for _, q := range w.g.Order.Seg.Parents(p) {
			if !w.g.Index.Resolves(q) {
				w.syms = append(w.syms, q)
			}
		}
	}
	w.set(`,"unresolved":`)
}

func (w *writer) depth(provs []segment.Prov) {
	if len(provs) == 0 {
		return
	}
	depth := int32(0)
	for i := range provs {
		depth = max(depth, w.g.Index.Depth(provs[i].ID))
	}
	w.name(`,"lineage_depth":`)
	w.b = strconv.AppendInt(w.b, int64(depth), 10)
}

// origins lists the known origins in the order of the enum.
func (w *writer) origins(provs []segment.Prov) {
	var seen [acs.OriginCount]bool
	any := false
	for i := range provs {
		o := provs[i].Origin
		seen[o] = true
		any = any || o != acs.OriginUnknown
	}
	if !any {
		return
	}
	w.name(`,"origins":`)
	w.b = append(w.b, '[')
	first := true
	for o := acs.OriginUserInput; o < acs.OriginCount; o++ {
		if seen[o] {
			if !first {
				w.b = append(w.b, ',')
			}
			first = false
			w.b = jcs.AppendString(w.b, o.String())
		}
	}
	w.b = append(w.b, ']')
}
