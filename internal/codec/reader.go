package codec

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"provstream/internal/acs"
	"provstream/internal/acs/schema"
	"provstream/internal/jcs"
)

// Record is one Kafka record of a hook topic or of the decisions topic.
type Record struct {
	Topic     string
	Partition int32
	Offset    int64
	Timestamp int64 // milliseconds since the Unix epoch
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Header is one header of a Record.
type Header struct {
	Key   string
	Value []byte
}

// The headers of a decision.
const (
	HeaderSession = "acs-session-id"
	HeaderTenant  = "acs-tenant-id"
)

// The dead-letter kinds, in the order in which they are checked.
const (
	KindOversize       = "oversize"
	KindNotJSON        = "not_json"
	KindNotStrict      = "not_strict"
	KindVersion        = "version"
	KindEnvelope       = "envelope"
	KindPayload        = "payload"
	KindUnknownMethod  = "unknown_method"
	KindTenantMismatch = "tenant_mismatch"
	KindUnroutable     = "unroutable"
	KindProvenance     = "provenance"
)

// Kinds returns the dead-letter kinds in the order in which they are checked.
func Kinds() []string {
	return []string{
		KindOversize, KindNotJSON, KindNotStrict, KindVersion, KindEnvelope, KindPayload, KindUnknownMethod,
		KindTenantMismatch, KindUnroutable, KindProvenance,
	}
}

// The defaults of Config.
const (
	DefaultMaxValueBytes = 1 << 20
	DefaultMaxClockSkew  = 300 * time.Second // ACS's own window
	DefaultTenant        = "default"
	DefaultDecisions     = "acs.decisions"
)

// Config is what a Reader judges by. The zero value of a member that has a
// default stands for it.
type Config struct {
	UnknownHooksReject bool              // a steps/* outside the inventory is a dead letter
	ProvenanceRequired bool              // a data-bearing field without provenance is a dead letter
	TenantTopics       map[string]string // topic → the tenant it belongs to
	DefaultTenant      string
	MaxValueBytes      int
	MaxClockSkew       time.Duration
	DecisionsTopic     string // the topic whose records are response envelopes; every other holds requests
}

// DeadLetter says why a record is one. Pointer is a JSON pointer from the root
// of the envelope (of a batch: of the element). Keyword and Schema are set only
// where a schema decided; Index only in a batch. Message echoes nothing of the
// record.
type DeadLetter struct {
	Kind    string
	Pointer string
	Keyword string
	Schema  string // the $id
	Index   string // the failing elements, comma-joined
	Message string
}

// Result is what became of a record.
type Result struct {
	Steps      int         // steps that were emitted, rejected ones among them
	Rejected   int         // rejected steps that were emitted
	Dropped    int         // elements dropped by rule: pings, their answers, ServerHello results
	Slow       int         // elements that the fast path left to jsonschema/v5
	DeadLetter *DeadLetter // nil where nothing failed
	RawHash    [32]byte    // SHA-256 of the value
}

// Reader reads records into steps. It is not safe for concurrent use.
type Reader struct {
	cfg     Config
	schemas *schema.Set

	fast *fastPath

	explainer   explainer
	v5PerRecord int
	jcs         jcs.Canonicalizer
	canonical   []byte
	elements    []span
	failing     []int32
	step        acs.Step
	key         []byte
	value       []byte
	tenant      []byte

	// Of the record that is being read.
	rec      *Record
	asked    int // how often jsonschema/v5 was asked
	recorded int64
	emit     func(runKey, value []byte)
	result   Result
}

// NewReader returns a Reader, or says what is wrong with the configuration.
func NewReader(cfg Config) (*Reader, error) {
	if cfg.DefaultTenant == "" {
		cfg.DefaultTenant = DefaultTenant
	}
	if cfg.MaxValueBytes == 0 {
		cfg.MaxValueBytes = DefaultMaxValueBytes
	}
	if cfg.MaxClockSkew == 0 {
		cfg.MaxClockSkew = DefaultMaxClockSkew
	}
	if cfg.DecisionsTopic == "" {
		cfg.DecisionsTopic = DefaultDecisions
	}
	var faults []error
	if cfg.MaxValueBytes < 0 || cfg.MaxValueBytes > 1<<30 {
		faults = append(faults, errors.New("the largest value must have between one byte and one GiB"))
	}
	if cfg.MaxClockSkew < 0 {
		faults = append(faults, errors.New("the largest clock skew must not be negative"))
	}
	if !utf8.ValidString(cfg.DefaultTenant) {
		faults = append(faults, errors.New("the default tenant is no valid UTF-8"))
	}
	tenants := make(map[string]string, len(cfg.TenantTopics))
	for topic, tenant := range cfg.TenantTopics {
		if topic == "" || tenant == "" || !utf8.ValidString(tenant) {
			faults = append(faults, fmt.Errorf("tenant topics: topic %q needs the name of a tenant", topic))
		}
		tenants[topic] = acs.Clamp(tenant)
	}
	cfg.TenantTopics = tenants
	cfg.DefaultTenant = acs.Clamp(cfg.DefaultTenant)
	set, err := schema.ACS()
	faults = append(faults, err)
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("reader: %w", err)
	}
	return &Reader{cfg: cfg, schemas: set, fast: newFastPath(set, cfg.ProvenanceRequired), v5PerRecord: v5PerRecord}, nil
}

// Read reads one record. now is ingest's clock in milliseconds. emit is called
// once for each step that goes to prov.steps, with its run key and its value;
// both are valid only during the call.
func (r *Reader) Read(rec *Record, now int64, emit func(runKey, value []byte)) Result {
	r.rec, r.emit, r.result = rec, emit, Result{RawHash: sha256.Sum256(rec.Value)}
	r.recorded = max(0, min(rec.Timestamp, now))
	r.asked = 0
	if dead := r.record(rec.Value); dead.Kind != "" {
		escapes := dead // only what is told is allocated
		r.result.DeadLetter = &escapes
	}
	result := r.result
	r.rec, r.emit, r.result = nil, nil, Result{}
	if cap(r.elements) > keepElements {
		r.elements, r.failing = nil, nil
	}
	return result
}

// keepElements is the longest list of elements whose storage is kept for the
// next record.
const keepElements = 1 << 12

func (r *Reader) record(value []byte) DeadLetter {
	if len(value) > r.cfg.MaxValueBytes {
		return DeadLetter{Kind: KindOversize, Message: fmt.Sprintf(
			"the value has %d bytes, more than the %d that are allowed", len(value), r.cfg.MaxValueBytes)}
	}
	first := space(value, 0)
	if first == len(value) {
		return DeadLetter{Kind: KindNotJSON, Message: "the value is null or empty"}
	}
	if value[first] == '[' {
		return r.batch(value)
	}
	canonical, err := r.jcs.Append(r.canonical[:0], value)
	r.canonical = canonical
	if err != nil {
		if _, err := checkJSON(value, nil); err != nil {
			return notJSON(err)
		}
		return r.reject(value, -1, notStrict(err))
	}
	return r.element(value, canonical, -1)
}

// maxIndexBytes bounds the list of failing elements, so that a dead letter
// always fits its topic: a failing element may be two bytes of the record, and
// its index seven of the header.
const maxIndexBytes = 256 << 10

// batch reads an array: each element is judged on its own, and the first that
// fails speaks for the record.
func (r *Reader) batch(value []byte) DeadLetter {
	elements, err := checkJSON(value, r.elements[:0])
	r.elements = elements
	if err != nil {
		return notJSON(err)
	}
	if len(elements) == 0 {
		return DeadLetter{Kind: KindEnvelope, Message: "the batch is empty"}
	}
	var dead DeadLetter
	r.failing = r.failing[:0]
	for i, at := range elements {
		raw := at.of(value)
		var fault DeadLetter
		canonical, err := r.jcs.Append(r.canonical[:0], raw)
		r.canonical = canonical
		if err != nil {
			fault = r.reject(raw, i, notStrict(err))
		} else {
			fault = r.element(raw, canonical, i)
		}
		if fault.Kind == "" {
			continue
		}
		if len(r.failing) == cap(r.failing) {
			r.failing = slices.Grow(r.failing, len(r.failing)+8)
		}
		r.failing = append(r.failing, int32(i))
		if dead.Kind == "" {
			dead = fault
		}
	}
	if dead.Kind != "" {
		dead.Index = joinIndices(r.failing)
	}
	return dead
}

// joinIndices writes indices comma-joined; a list that would grow beyond
// maxIndexBytes ends in an ellipsis.
func joinIndices(indices []int32) string {
	var b strings.Builder
	for k, i := range indices {
		if b.Len() > maxIndexBytes-32 {
			b.WriteString(",...")
			break
		}
		if k > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(int(i)))
	}
	return b.String()
}

func notJSON(err error) DeadLetter {
	return DeadLetter{Kind: KindNotJSON, Message: err.Error()}
}

// notStrict tells which of the reasons of package jcs it is, without the
// offset.
func notStrict(err error) DeadLetter {
	for _, reason := range []error{jcs.ErrUTF8, jcs.ErrSurrogate, jcs.ErrDuplicate, jcs.ErrNumber} {
		if errors.Is(err, reason) {
			return DeadLetter{Kind: KindNotStrict, Message: reason.Error()}
		}
	}
	return DeadLetter{Kind: KindNotStrict, Message: "no strict JSON"}
}

// decisions tells whether the record comes from the decisions topic.
func (r *Reader) decisions() bool { return r.rec.Topic == r.cfg.DecisionsTopic }

// write emits a step.
func (r *Reader) write(s *acs.Step) {
	r.value = AppendStep(r.value[:0], s)
	r.key = appendRunKey(r.key[:0], s.Tenant, s.Session)
	r.emit(r.key, r.value)
	r.result.Steps++
	if s.Rejected != "" {
		r.result.Rejected++
	}
}

// appendRunKey is topics.RunKey into a buffer.
func appendRunKey[T string | []byte](dst []byte, tenant, session T) []byte {
	for i := 0; i < len(tenant); i++ {
		if c := tenant[i]; pathSafe[c] {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', upperHex[c>>4], upperHex[c&0xf])
		}
	}
	dst = append(dst, '/')
	return append(dst, session...)
}

const upperHex = "0123456789ABCDEF"

// pathSafe are the bytes that net/url leaves alone in a path segment.
var pathSafe = func() (safe [256]bool) {
	for c := range 0x80 {
		safe[c] = url.PathEscape(string(rune(c))) == string(rune(c))
	}
	return safe
}()

// coordinates of an element of the record; index is -1 of a record that is no
// batch.
func (r *Reader) coordinates(index int) acs.Coordinates {
	return acs.Coordinates{Topic: r.rec.Topic, Partition: r.rec.Partition, Offset: r.rec.Offset, Index: int32(index)}
}
