package codec

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"provstream/internal/acs"
	"provstream/internal/jcs"
)

// errNoStep is told of the value of a prov.steps record that is no step.
var errNoStep = errors.New("decode step: not the value of a prov.steps step")

// DecodeStep reads the value of a prov.steps record into dst, which is emptied
// first; the storage of its lists is used again. Every string of dst is a part
// of one copy of value.
//
// The form that AppendStep writes is read in one pass. Anything else that is
// JSON (other white space, another order, members of a later version) is
// brought into canonical form first; members that are not known are skipped.
func DecodeStep(dst *acs.Step, value []byte) error {
	return decodeStep(dst, decoder{text: value}, value)
}

// DecodeStepInPlace is DecodeStep without the copy: strings of dst are parts of
// value, which must not be changed as long as they are in use.
func DecodeStepInPlace(dst *acs.Step, value []byte) error {
	return decodeStep(dst, decoder{text: value, whole: unsafe.String(unsafe.SliceData(value), len(value))}, value)
}

func decodeStep(dst *acs.Step, d decoder, value []byte) error {
	if d.step(dst) {
		return nil
	}
	canonical, err := jcs.Canonicalize(nil, value)
	if err != nil {
		dst.Reset()
		return fmt.Errorf("decode step: %w", err)
	}
	d = decoder{text: canonical, canonical: true}
	if !d.step(dst) {
		dst.Reset()
		return errNoStep
	}
	return nil
}

var tickPrefix = []byte(`{"tick":`)

// DecodeTick reads the value of a tick record; ok is false for any other value.
func DecodeTick(value []byte) (t int64, ok bool) {
	rest, ok := bytes.CutPrefix(value, tickPrefix)
	if !ok {
		return 0, false
	}
	d := decoder{text: rest}
	t = d.integer()
	if d.bad || d.i != len(rest)-1 || rest[d.i] != '}' {
		return 0, false
	}
	return t, true
}

// decoder reads compact JSON from text. A text that is not as expected sets
// bad, and nothing is read from then on.
type decoder struct {
	text      []byte
	i         int
	bad       bool
	canonical bool // text is known to be canonical, so that unknown members can be skipped
	// copied holds the copy of text, if there is one, then the strings that had
	// escapes.
	copied strings.Builder
	whole  string // text
}

// next consumes c.
func (d *decoder) next(c byte) {
	if d.i < len(d.text) && d.text[d.i] == c {
		d.i++
		return
	}
	d.fail()
}

func (d *decoder) fail() {
	d.bad = true
	d.i = len(d.text)
}

// more is called before each member of an object or item of an array, and
// tells whether there is one. closing ends the container.
func (d *decoder) more(closing byte, first *bool) bool {
	if d.i >= len(d.text) {
		d.fail()
		return false
	}
	if d.text[d.i] == closing {
		d.i++
		return false
	}
	if !*first {
		d.next(',')
	}
	*first = false
	return !d.bad
}

// str reads a string.
func (d *decoder) str() string {
	start := d.i + 1
	if d.i >= len(d.text) || d.text[d.i] != '"' {
		d.fail()
		return ""
	}
	i := jcs.EndOfPlain(d.text, start)
	if i < len(d.text) && d.text[i] == '"' {
		d.i = i + 1
		return d.whole[start:i]
	}
	return d.otherString(start, i)
}

// otherString reads a string with escapes or multi-byte characters; i is the
// first of them.
func (d *decoder) otherString(start, i int) string {
	escapes := false
	for i < len(d.text) && d.text[i] != '"' {
		switch c := d.text[i]; {
		case c == '\\':
			escapes = true
			i += 2
		case c >= utf8.RuneSelf:
			i++
		default:
			d.fail()
			return ""
		}
		i = jcs.EndOfPlain(d.text, min(i, len(d.text)))
	}
	if i >= len(d.text) || !utf8.Valid(d.text[start:i]) {
		d.fail()
		return ""
	}
	d.i = i + 1
	if !escapes {
		return d.whole[start:i]
	}
	var short [64]byte
	s, ok := jcs.AppendUnescaped(short[:0], d.text[start:i])
	if !ok {
		d.fail()
		return ""
	}
	at := d.copied.Len()
	d.copied.Write(s)
	return d.copied.String()[at:]
}

// list reads an array of strings.
func (d *decoder) list(dst []string) []string {
	d.next('[')
	for first := true; d.more(']', &first); {
		dst = append(dst, d.str())
	}
	return dst
}

// integer reads an integer.
func (d *decoder) integer() int64 {
	i := d.i
	neg := i < len(d.text) && d.text[i] == '-'
	if neg {
		i++
	}
	start := i
	n := int64(0)
	for i < len(d.text) && d.text[i]-'0' <= 9 && i < start+18 {
		n = n*10 + int64(d.text[i]-'0')
		i++
	}
	if i == start || i-start > 1 && d.text[start] == '0' || i < len(d.text) && bytes.IndexByte([]byte("0123456789.eE"), d.text[i]) >= 0 {
		d.fail()
		return 0
	}
	d.i = i
	if neg {
		return -n
	}
	return n
}

// small reads an integer that fits an int32.
func (d *decoder) small() int32 {
	n := d.integer()
	if n < math.MinInt32 || n > math.MaxInt32 {
		d.fail()
	}
	return int32(n)
}

// number reads a number.
func (d *decoder) number() acs.Number {
	end, _, ok := jcs.ScanNumber(d.text, d.i)
	if !ok {
		d.fail()
		return acs.Number{}
	}
	f, err := strconv.ParseFloat(string(d.text[d.i:end]), 64)
	if err != nil {
		d.fail()
		return acs.Number{}
	}
	d.i = end
	return acs.Number{Set: true, Value: f}
}

// yes reads true, the only value of a flag that is there.
func (d *decoder) yes() bool {
	if !bytes.HasPrefix(d.text[d.i:], []byte("true")) {
		d.fail()
		return false
	}
	d.i += len("true")
	return true
}

// hash reads a SHA-256 digest in lower-case hexadecimal.
func (d *decoder) hash(h *acs.Hash) {
	const size = 2*len(h) + 2
	if d.i+size > len(d.text) || d.text[d.i] != '"' || d.text[d.i+size-1] != '"' {
		d.fail()
		return
	}
	digits := d.text[d.i+1 : d.i+size-1]
	bad := byte(0)
	for i := range h {
		high, low := hexValue[digits[2*i]], hexValue[digits[2*i+1]]
		bad |= high | low
		h[i] = high<<4 | low
	}
	if bad > 0xf {
		d.fail()
		return
	}
	d.i += size
}

// hexValue is the value of a lower-case hexadecimal digit, 0xff of any other byte.
var hexValue = func() (v [256]byte) {
	for i := range v {
		v[i] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		v[c] = byte(i)
	}
	return v
}()

// raw reads a value as its canonical text. What is not plainly canonical is
// left to the second pass, over the canonical text.
func (d *decoder) raw() string {
	start := d.i
	switch {
	case d.bad || d.i >= len(d.text):
		d.fail()
	case d.canonical:
		d.i = skip(d.text, d.i)
	case d.text[d.i] == '"':
		end := jcs.EndOfPlain(d.text, d.i+1)
		if end == len(d.text) || d.text[end] != '"' {
			d.fail()
			break
		}
		d.i = end + 1
	case bytes.HasPrefix(d.text[d.i:], []byte("null")):
		d.i += len("null")
	default:
		end, simple, ok := jcs.ScanNumber(d.text, d.i)
		if !ok || !simple {
			d.fail()
			break
		}
		d.i = end
	}
	if d.bad {
		return ""
	}
	return d.whole[start:d.i]
}

func (d *decoder) copyText() {
	extra := 0
	if bytes.IndexByte(d.text, '\\') >= 0 {
		extra = 64
	}
	d.copied.Grow(len(d.text) + extra)
	d.copied.Write(d.text)
	d.whole = d.copied.String()
}

// step reads a whole step. Members must come in order, each once: that is what
// tells the canonical form from what has to be brought into it.
func (d *decoder) step(s *acs.Step) bool {
	s.Reset()
	s.Coordinates.Index = -1
	if d.whole == "" {
		d.copyText()
	}
	d.next('{')
	seen, last := 0, ""
	for first := true; d.more('}', &first); {
		name := d.str()
		d.next(':')
		if d.bad || name <= last && !d.canonical {
			return false
		}
		last = name
		seen += d.member(s, name)
	}
	const required = 10 // members that member counts
	return !d.bad && d.i == len(d.text) && seen == required &&
		s.Tenant != "" && s.Session != "" && s.Coordinates.Topic != ""
}

// member reads the value of the member name. It returns 1 for a member that
// every step has.
func (d *decoder) member(s *acs.Step, name string) int {
	switch name {
	case "content_hash":
		d.hash(&s.ContentHash)
	case "request_hash":
		d.hash(&s.RequestHash)
	case "event_time":
		s.EventTime = d.integer()
	case "recorded_at":
		s.RecordedAt = d.integer()
	case "offset":
		s.Coordinates.Offset = d.integer()
	case "partition":
		s.Coordinates.Partition = d.small()
	case "session":
		s.Session = d.str()
	case "tenant":
		s.Tenant = d.str()
	case "topic":
		s.Coordinates.Topic = d.str()
	case "type":
		switch d.str() {
		case "step":
			s.Type = acs.TypeStep
		case "decision":
			s.Type = acs.TypeDecision
		default:
			d.fail()
		}
	default:
		d.optional(s, name)
		return 0
	}
	return 1
}

func (d *decoder) optional(s *acs.Step, name string) {
	if field := textField(s, name); field != nil {
		*field = d.str()
		return
	}
	switch name {
	case "answer":
		s.Answer = d.yes()
	case "cited":
		s.Cited = d.list(s.Cited)
	case "declared_summary":
		s.DeclaredSummary = d.declaredSummary()
	case "entries_compacted":
		s.EntriesCompacted = d.list(s.EntriesCompacted)
	case "entries_to_compact":
		s.EntriesToCompact = d.list(s.EntriesToCompact)
	case "error_code":
		s.ErrorCode = d.number()
	case "error_response":
		s.ErrorResponse = d.yes()
	case "has_summary":
		s.HasSummary = d.yes()
	case "id":
		s.ID = d.raw()
	case "index":
		if s.Coordinates.Index = d.small(); s.Coordinates.Index < 0 {
			d.fail()
		}
	case "inner_id":
		s.InnerID = d.raw()
	case "lineage_depth_after":
		s.LineageDepthAfter = d.number()
	case "provenance":
		d.next('[')
		for first := true; d.more(']', &first); {
			d.provenance(s.AddProvenance())
		}
	case "provenance_missing":
		if s.ProvenanceMissing = int(d.small()); s.ProvenanceMissing < 0 {
			d.fail()
		}
	case "reason_codes":
		s.ReasonCodes = d.list(s.ReasonCodes)
	case "skewed":
		s.Skewed = d.yes()
	case "step_count":
		s.StepCount = d.number()
	case "tool_call_count":
		s.ToolCallCount = d.number()
	default:
		d.unknown()
	}
}

// unknown skips the value of a member that this version does not know.
func (d *decoder) unknown() {
	if !d.canonical || d.bad {
		d.fail()
		return
	}
	d.i = skip(d.text, d.i)
}

// textField returns the field that is a plain string.
func textField(s *acs.Step, name string) *string {
	switch name {
	case "agent_id":
		return &s.AgentID
	case "agent_name":
		return &s.AgentName
	case "capability":
		return &s.Capability
	case "chain_hash":
		return &s.ChainHash
	case "decision":
		return &s.Decision
	case "decision_chain_hash":
		return &s.DecisionChainHash
	case "digest_algorithm":
		return &s.DigestAlgorithm
	case "digest_value":
		return &s.DigestValue
	case "environment":
		return &s.Environment
	case "evaluator":
		return &s.Evaluator
	case "exit_status":
		return &s.ExitStatus
	case "method":
		return &s.Method
	case "outcome":
		return &s.Outcome
	case "parent_step_id":
		return &s.ParentStepID
	case "parent_turn_id":
		return &s.ParentTurnID
	case "payload_parent_turn_id":
		return &s.PayloadParentTurnID
	case "payload_turn_id":
		return &s.PayloadTurnID
	case "platform":
		return &s.Platform
	case "platform_version":
		return &s.PlatformVersion
	case "pre_compact_chain_hash":
		return &s.PreCompactChainHash
	case "provenance_producer":
		return &s.ProvenanceProducer
	case "rejected":
		return &s.Rejected
	case "request_id_ref":
		return &s.RequestIDRef
	case "signature_algorithm":
		return &s.SignatureAlgorithm
	case "signature_key_id":
		return &s.SignatureKeyID
	case "skill_id":
		return &s.SkillID
	case "step_id":
		return &s.StepID
	case "subagent_session_id":
		return &s.SubagentSessionID
	case "tool":
		return &s.Tool
	case "trigger_step_id":
		return &s.TriggerStepID
	case "triggered_by":
		return &s.TriggeredBy
	case "turn_id":
		return &s.TurnID
	case "user_id":
		return &s.UserID
	}
	return nil
}

func (d *decoder) provenance(p *acs.Provenance) {
	d.next('{')
	hasID := false
	for first, last := true, ""; d.more('}', &first); {
		name := d.str()
		d.next(':')
		if name <= last && !d.canonical {
			d.fail()
			return
		}
		switch last = name; name {
		case "derived_from":
			p.DerivedFrom = d.list(p.DerivedFrom)
		case "origin":
			p.Origin = d.str()
		case "provenance_id":
			p.ID = d.str()
			hasID = true
		case "source_id":
			p.SourceID = d.str()
		default:
			d.unknown()
		}
	}
	if !hasID {
		d.fail()
	}
}

func (d *decoder) declaredSummary() *acs.DeclaredSummary {
	s := new(acs.DeclaredSummary)
	d.next('{')
	for first, last := true, ""; d.more('}', &first); {
		name := d.str()
		d.next(':')
		if name <= last && !d.canonical {
			d.fail()
			return s
		}
		switch last = name; name {
		case "earliest_step_id_by_origin":
			s.HasEarliestStepIDByOrigin = true
			s.EarliestStepIDByOrigin = d.byOrigin(func(v *acs.OriginValue) { v.StepID = d.str() })
		case "entry_count":
			s.HasEntryCount = true
			s.EntryCount = d.number().Value
		case "entry_count_by_origin":
			s.HasEntryCountByOrigin = true
			s.EntryCountByOrigin = d.byOrigin(func(v *acs.OriginValue) { v.Count = d.number().Value })
		case "max_lineage_depth":
			s.HasMaxLineageDepth = true
			s.MaxLineageDepth = d.number().Value
		case "origins_seen":
			s.HasOriginsSeen = true
			s.OriginsSeen = d.list(nil)
		default:
			d.unknown()
		}
	}
	return s
}

// byOrigin reads an object that is keyed by origin.
func (d *decoder) byOrigin(read func(*acs.OriginValue)) []acs.OriginValue {
	var list []acs.OriginValue
	d.next('{')
	for first := true; d.more('}', &first); {
		v := acs.OriginValue{Origin: d.str()}
		d.next(':')
		read(&v)
		list = append(list, v)
	}
	for i := 1; i < len(list); i++ {
		if jcs.CompareNames(list[i-1].Origin, list[i].Origin) >= 0 {
			d.fail()
		}
	}
	return list
}
