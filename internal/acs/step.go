package acs

// RecordType says which of the two kinds of record a Step is.
type RecordType uint8

// A record of prov.steps is a step (one request envelope) or a decision (one
// response envelope). Ticks are no Steps.
const (
	TypeStep RecordType = iota
	TypeDecision
)

// Hash is a SHA-256 digest. It is hexadecimal (lower case) in JSON.
type Hash [32]byte

// Coordinates say where the raw record of a Step stands in Kafka.
type Coordinates struct {
	Topic     string
	Partition int32
	Offset    int64
	// Index is the element's index in a batch record, -1 for a record that is
	// no batch.
	Index int32
}

// Provenance is one Provenance object (ACS §7, provenance.json).
type Provenance struct {
	ID          string // may be empty: the schema has no minLength
	Origin      string // as written; ParseOrigin tells whether it is known
	SourceID    string
	DerivedFrom []string // in wire order, repeats kept, empty items kept
}

// OriginValue is one member of a map that is keyed by origin.
type OriginValue struct {
	Origin string // as written
	Count  float64
	StepID string
}

// DeclaredSummary is the ProvenanceSummary that a preCompact sent. Has… tell
// which members were present.
type DeclaredSummary struct {
	HasOriginsSeen            bool
	HasEntryCount             bool
	HasEntryCountByOrigin     bool
	HasEarliestStepIDByOrigin bool
	HasMaxLineageDepth        bool

	OriginsSeen            []string
	EntryCount             float64
	EntryCountByOrigin     []OriginValue // Origin and Count, in JCS order
	EarliestStepIDByOrigin []OriginValue // Origin and StepID, in JCS order
	MaxLineageDepth        float64
}

// Number is an optional JSON number, as the IEEE double it is read as.
type Number struct {
	Set   bool
	Value float64
}

// Step is what ingest keeps of one envelope: the value of a prov.steps record.
// Times are milliseconds since the Unix epoch.
//
// Of a rejected envelope (Rejected != "") only these are set: Type, Tenant,
// Session, StepID, Method, AgentID, TurnID, times, Coordinates, Rejected and
// both hashes (which are raw_hash then).
type Step struct {
	Type        RecordType
	Tenant      string // always set
	Session     string // metadata.session_id, or the session of a decision
	StepID      string // params.request_id; of a decision result.request_id, "" of an error response
	ID          string // JSON-RPC id: its JCS text (`"abc"`, `7`, `null`); "" when not read
	EventTime   int64  // of a decision and of a rejected step: RecordedAt
	RecordedAt  int64  // min(Kafka timestamp, ingest's clock)
	Skewed      bool   // EventTime and RecordedAt more than --max-clock-skew apart (steps only)
	Coordinates Coordinates
	RequestHash Hash   // SHA-256 of JCS of params; of a decision of result or error
	ContentHash Hash   // SHA-256 of JCS of payload; of a decision as RequestHash
	Rejected    string // the dead-letter kind

	// Steps.
	Method              string
	AgentID             string
	AgentName           string
	TurnID              string // metadata.turn_id
	ParentTurnID        string // metadata.parent_turn_id
	Environment         string
	Platform            string
	PlatformVersion     string
	UserID              string // metadata.user_context.user_id
	ChainHash           string // metadata.session_state.chain_hash
	SignatureKeyID      string
	SignatureAlgorithm  string
	Provenance          []Provenance // in extraction order; of a decision that of ask_details.intent_extension
	ProvenanceMissing   int          // data-bearing fields without a Provenance object
	ProvenanceProducer  string       // handshake: deterministic or none
	PayloadTurnID       string       // turnStart, turnEnd
	PayloadParentTurnID string       // turnStart
	TriggeredBy         string       // turnStart, preCompact
	Outcome             string       // turnEnd, subagentStop
	StepCount           Number       // turnEnd
	ToolCallCount       Number       // turnEnd
	HasSummary          bool         // turnEnd, subagentStop: the payload has a summary
	Tool                string       // toolCallRequest, toolCallResult: tool.name
	Capability          string       // toolCallRequest
	ExitStatus          string       // toolCallResult
	RequestIDRef        string       // toolCallResult
	EntriesToCompact    []string     // preCompact
	DeclaredSummary     *DeclaredSummary
	EntriesCompacted    []string // postCompact
	PreCompactChainHash string   // postCompact
	LineageDepthAfter   Number   // postCompact
	SubagentSessionID   string   // subagentStart, subagentStop
	ParentStepID        string   // subagentStart, skillLoad
	SkillID             string   // skillRegister, skillLoad, skillUnload
	DigestAlgorithm     string   // skillRegister (definition.digest), skillLoad
	DigestValue         string
	TriggerStepID       string // agbom/changed
	Answer              bool   // wrapped message: result or error, and no method
	InnerID             string // wrapped message: JCS text of its id; "" when absent or null

	// Decisions.
	Decision          string // allow, deny, modify, ask, defer; "" of an error response
	ErrorResponse     bool   // the envelope has error
	ErrorCode         Number // error.code
	ReasonCodes       []string
	Cited             []string // cited_provenance_ids
	Evaluator         string   // metadata.evaluator
	DecisionChainHash string   // result.chain_hash: the head that the decision publishes
}

// EffectiveTurnID is the turn a step belongs to: payload.turn_id of a
// turnStart or turnEnd wins over metadata.turn_id (rules.md §1).
func (s *Step) EffectiveTurnID() string {
	if s.PayloadTurnID != "" {
		return s.PayloadTurnID
	}
	return s.TurnID
}

// Reset empties s and keeps the storage of its lists for the next record.
func (s *Step) Reset() {
	p := s.Provenance
	*s = Step{
		Provenance:       p[:0],
		EntriesToCompact: s.EntriesToCompact[:0],
		EntriesCompacted: s.EntriesCompacted[:0],
		ReasonCodes:      s.ReasonCodes[:0],
		Cited:            s.Cited[:0],
	}
}

// AddProvenance appends an empty Provenance, reusing the storage of an earlier
// record's, and returns it.
func (s *Step) AddProvenance() *Provenance {
	if n := len(s.Provenance); n < cap(s.Provenance) {
		s.Provenance = s.Provenance[:n+1]
		p := &s.Provenance[n]
		*p = Provenance{DerivedFrom: p.DerivedFrom[:0]}
		return p
	}
	s.Provenance = append(s.Provenance, Provenance{})
	return &s.Provenance[len(s.Provenance)-1]
}
