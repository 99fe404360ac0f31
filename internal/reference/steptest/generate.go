package steptest

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"provstream/internal/acs"
)

// Event is one record of a generated log: a step, or with Step nil a tick.
type Event struct {
	Step *acs.Step
	Tick int64
}

// Settings are generated window flags, by name, in milliseconds or numbers.
type Settings map[string]int64

// Duration implements the flags of a configuration.
func (s Settings) Duration(name string, otherwise time.Duration) (time.Duration, error) {
	if v, ok := s[name]; ok {
		return time.Duration(v) * time.Millisecond, nil
	}
	return otherwise, nil
}

// Int implements the flags of a configuration.
func (s Settings) Int(name string, otherwise int64) (int64, error) {
	if v, ok := s[name]; ok {
		return v, nil
	}
	return otherwise, nil
}

// DrawSettings draws flags that make everything happen soon.
func DrawSettings(t *rapid.T) Settings {
	pick := func(name string, values ...int64) int64 { return rapid.SampledFrom(values).Draw(t, name) }
	return Settings{
		"complete-grace": pick("complete-grace", 0, 10, 1000), "grace": pick("grace", 0, 50, 2000),
		"seal-grace": pick("seal-grace", 0, 20, 3000), "turn-idle": pick("turn-idle", 30, 5000),
		"session-idle": pick("session-idle", 200, 10_000), "late-grace": pick("late-grace", 0, 100, 2000),
		"late-retention": pick("late-retention", 0, 500, 100_000), "idle-retention": pick("idle-retention", 300, 200_000),
		"max-run-weight": pick("max-run-weight", 3000, 12_000, 4<<20), "max-open-steps": pick("max-open-steps", 6, 25, 2_000_000),
		"max-run-ids": pick("max-run-ids", 200_000, 200_000, 200_000, 15),
	}
}

// maker draws one record, its times relative to the moment of its arrival.
type maker struct{ t *rapid.T }

// draft is an event before it has a place in the log.
type draft struct {
	pass   int64 // time since the event before
	tick   bool
	step   *acs.Step
	copyOf int // with step nil: of which record, counted back
}

// DrawLog draws a log with ticks, at most n records long before its last three.
func DrawLog(t *rapid.T, n int) []Event {
	sessions := []string{"r1", "r2", "r3"}[:rapid.IntRange(1, 3).Draw(t, "runs")]
	drafts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) draft { return drawDraft(t, sessions) }), n/4, n).Draw(t, "log")
	log := assemble(drafts)
	now := log[len(log)-1].Tick
	for _, pass := range []int64{5000, 50_000, 500_000} {
		now += pass
		log = append(log, Event{Tick: now})
	}
	return log
}

// DrawSegment draws records of one session that come without a tick.
func DrawSegment(t *rapid.T, n int) []*acs.Step {
	var out []*acs.Step
	one := rapid.Custom(func(t *rapid.T) draft {
		d := drawDraft(t, []string{"r1"})
		if d.tick {
			d = draft{step: (&maker{t}).record([]string{"r1"})}
		}
		d.pass = min(d.pass, 700)
		return d
	})
	for _, e := range assemble(rapid.SliceOfN(one, n/4, n).Draw(t, "segment")) {
		if e.Step != nil {
			out = append(out, e.Step)
		}
	}
	return out
}

func drawDraft(t *rapid.T, sessions []string) draft {
	m := &maker{t}
	d := draft{pass: rapid.SampledFrom([]int64{0, 1, 3, 20, 120, 700, 4000, 40_000}).Draw(t, "pass")}
	switch {
	case m.often("tick", 2):
		d.tick = true
		d.pass -= rapid.SampledFrom([]int64{0, 0, 5, 300}).Draw(t, "lag")
	case m.often("copy", 1):
		d.copyOf = rapid.IntRange(1, 20).Draw(t, "of")
	default:
		d.step = m.record(sessions)
	}
	return d
}

// assemble gives every draft its time, coordinates and hashes. The last event
// is a tick.
func assemble(drafts []draft) []Event {
	now := int64(10_000)
	var log []Event
	var made []*acs.Step
	for i, d := range drafts {
		now += max(0, d.pass)
		if d.tick {
			log = append(log, Event{Tick: now + min(0, d.pass)})
			continue
		}
		s := d.step
		if s == nil {
			if len(made) == 0 {
				continue
			}
			c := *made[max(0, len(made)-d.copyOf)]
			s = &c
			s.RecordedAt = now
		} else {
			s.RecordedAt += now
			s.EventTime += now
		}
		if s.Type == acs.TypeDecision || s.Rejected != "" {
			s.EventTime = s.RecordedAt
		}
		skew := s.EventTime - s.RecordedAt
		s.Skewed = s.Type == acs.TypeStep && (skew > skewWindow || skew < -skewWindow)
		s.Coordinates.Offset = int64(i)
		seal(s)
		if d.step != nil {
			made = append(made, s)
		}
		log = append(log, Event{Step: s})
	}
	return append(log, Event{Tick: now})
}

func (m *maker) pick(name string, values ...string) string {
	return rapid.SampledFrom(values).Draw(m.t, name)
}

// often is true n times in ten.
func (m *maker) often(name string, n int) bool { return rapid.IntRange(0, 9).Draw(m.t, name) < n }

// record draws a step or a decision.
func (m *maker) record(sessions []string) *acs.Step {
	s := &acs.Step{Tenant: "default", Session: m.pick("run", sessions...)}
	s.Coordinates = acs.Coordinates{Topic: m.pick("topic", "h", "g"), Index: rapid.SampledFrom([]int32{-1, -1, 0, 3}).Draw(m.t, "index")}
	s.RecordedAt = -rapid.SampledFrom([]int64{0, 0, 0, 2, 90, 5000}).Draw(m.t, "age")
	if m.often("decision", 2) {
		m.decision(s)
	} else {
		m.step(s)
	}
	return s
}

// seal gives a record the hashes of its content: two records with equal hashes
// are the same but for their arrival.
func seal(s *acs.Step) {
	c := *s
	c.RecordedAt, c.Skewed, c.Coordinates, c.ID = 0, false, acs.Coordinates{}, ""
	if c.Type == acs.TypeDecision || c.Rejected != "" {
		c.EventTime = 0
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // a Step is plain data
	}
	s.RequestHash = sha256.Sum256(text)
	s.ContentHash = sha256.Sum256(s.RequestHash[:])
	if s.Type == acs.TypeDecision || s.Rejected != "" {
		s.ContentHash = s.RequestHash
	}
}

func (m *maker) stepID(name string) string {
	return "s" + strconv.Itoa(rapid.IntRange(0, 11).Draw(m.t, name))
}

func (m *maker) provenanceID(name string) string {
	return m.pick(name, "p0", "p1", "p2", "p3", "p4", "p5", "\U0001d4b3\ue000", "")
}

func (m *maker) decision(s *acs.Step) {
	s.Type = acs.TypeDecision
	switch {
	case m.often("error", 2):
		s.ErrorResponse = true
		s.ErrorCode = acs.Number{Set: true, Value: -32000}
	case m.often("rejected answer", 1):
		s.StepID, s.Rejected = m.stepID("answers"), "payload"
	default:
		s.StepID = m.stepID("answers")
		s.Decision = m.pick("verdict", "allow", "deny", "modify", "ask", "defer")
		for range rapid.IntRange(0, 2).Draw(m.t, "citations") {
			s.Cited = append(s.Cited, m.provenanceID("cites"))
		}
		if m.often("head", 3) {
			s.DecisionChainHash = m.pick("published", "h1", "h2", "h3")
		}
		if s.Decision == "ask" && m.often("extension", 5) {
			s.Provenance = append(s.Provenance, m.object())
		}
		if m.often("codes", 3) {
			s.ReasonCodes = []string{"b", "a"}
		}
		s.Evaluator = m.pick("evaluator", "", "deterministic")
	}
	s.ID = m.jsonID(s.StepID)
}

// jsonID is the JSON-RPC id: that of a step is mostly its step_id.
func (m *maker) jsonID(id string) string {
	if id == "" {
		id = m.stepID("id")
	}
	return m.pick("JSON-RPC id", strconv.Quote(id), strconv.Quote(id), "7", "null")
}

func (m *maker) object() acs.Provenance {
	o := acs.Provenance{
		ID: m.provenanceID("id"), SourceID: m.pick("source", "", "", "src", "a\"b\\c\n\u2028</"),
		Origin: m.pick("origin", "user_input", "system", "tool_output", "retrieved", "agent_generated", "external", "memory"),
	}
	for range rapid.IntRange(0, 2).Draw(m.t, "parents") {
		o.DerivedFrom = append(o.DerivedFrom, m.provenanceID("parent"))
	}
	return o
}

var methods = []string{
	acs.MethodHandshakeHello, acs.MethodSessionStart, acs.MethodAgBOMSnapshot, acs.MethodAgentTrigger, acs.MethodTurnStart,
	acs.MethodTurnStart, acs.MethodUserMessage, acs.MethodSkillRegister, acs.MethodSkillLoad, acs.MethodMemoryContextRetrieval,
	acs.MethodKnowledgeRetrieval, acs.MethodSubagentStart, acs.MethodSubagentStop, acs.MethodToolCallRequest,
	acs.MethodToolCallRequest, acs.MethodToolCallResult, acs.MethodToolCallResult, acs.MethodMemoryStore, acs.MethodAgBOMChanged,
	acs.MethodPreCompact, acs.MethodPostCompact, acs.MethodSkillUnload, acs.MethodAgentResponse, acs.MethodTurnEnd,
	acs.MethodTurnEnd, acs.MethodSessionEnd, "steps/dream", "protocols/A2A/x", "protocols/MCP/tools/call", "protocols/MCP/tools/call",
	"wrapped:mcp-2025/resources/read", "protocols/MCP/prompts/get",
}

func (m *maker) step(s *acs.Step) {
	s.StepID = m.stepID("step_id")
	s.Method = rapid.SampledFrom(methods).Draw(m.t, "method")
	s.AgentID = m.pick("agent", "a", "a", "a", "a", "b")
	s.TurnID = m.pick("turn", "", "t1", "t1", "t2", "t3")
	if m.often("rejected", 1) {
		s.Rejected = m.pick("kind", "payload", "not_strict")
		return
	}
	s.EventTime = -rapid.SampledFrom([]int64{0, 0, 1, 7, 30, 900}).Draw(m.t, "before")
	if m.often("skew", 1) {
		s.EventTime += rapid.SampledFrom([]int64{-400_999, 400_999}).Draw(m.t, "skew by")
	}
	if m.often("parent turn", 1) {
		s.ParentTurnID = m.pick("in", "t1", "t2", "t3")
	}
	s.AgentName, s.UserID = m.pick("name", "", "", "Ann"), m.pick("user", "", "u")
	if m.often("claims a head", 1) {
		s.ChainHash = m.pick("claimed", "h1", "h2", "h9")
	}
	m.fields(s)
	s.ID = m.jsonID(s.StepID)
}

// fields draws what a hook has of its own.
func (m *maker) fields(s *acs.Step) {
	objects := func(most int) {
		for range rapid.IntRange(0, most).Draw(m.t, "objects") {
			s.Provenance = append(s.Provenance, m.object())
		}
		if m.often("missing", 2) {
			s.ProvenanceMissing = 2
		}
	}
	number := func(name string) acs.Number {
		return acs.Number{Set: m.often(name, 6), Value: rapid.SampledFrom([]float64{0, 1, 2, 3, 4, 1e21, 2.5e-7}).Draw(m.t, name)}
	}
	entries := func() (out []string) {
		for range rapid.IntRange(1, 4).Draw(m.t, "entries") {
			out = append(out, m.stepID("entry"))
		}
		return out
	}
	switch s.Method {
	case acs.MethodHandshakeHello:
		s.ProvenanceProducer = m.pick("producer", "deterministic", "none", "agent")
	case acs.MethodTurnStart, acs.MethodTurnEnd:
		s.PayloadTurnID = m.pick("payload turn", "t1", "t2", "t3")
		if s.Method == acs.MethodTurnStart {
			s.TriggeredBy = "user_message"
			s.PayloadParentTurnID = m.pick("payload parent", "", "", "t1", "t2", "t3")
			break
		}
		s.Outcome = m.pick("outcome", "completed", "completed", "deferred", "error")
		s.StepCount, s.ToolCallCount = number("steps"), number("calls")
		if m.often("summary", 3) {
			s.HasSummary = true
			s.Provenance = append(s.Provenance, m.object())
		}
	case acs.MethodToolCallRequest, acs.MethodToolCallResult:
		s.Tool = m.pick("tool", "x", "x", "y")
		objects(2)
		if s.Method == acs.MethodToolCallRequest {
			s.Capability = m.pick("capability", "", "fs.read")
			break
		}
		s.ExitStatus = "success"
		if m.often("reference", 5) {
			s.RequestIDRef = m.stepID("ref")
		}
	case acs.MethodPreCompact:
		s.EntriesToCompact = entries()
		if m.often("declares", 6) {
			s.DeclaredSummary = m.summary()
		}
	case acs.MethodPostCompact:
		s.EntriesCompacted = entries()
		s.LineageDepthAfter = number("depth after")
		s.PreCompactChainHash = m.pick("pre", "", "h1", "h8")
		s.Provenance = append(s.Provenance, m.object())
	case acs.MethodSubagentStart, acs.MethodSubagentStop:
		s.SubagentSessionID = m.pick("subagent", "c1", "c2")
		if s.Method == acs.MethodSubagentStart {
			s.ParentStepID = m.stepID("parent step")
			break
		}
		s.Outcome = m.pick("outcome", "completed", "failed")
		if m.often("summary", 6) {
			s.HasSummary = true
			s.Provenance = append(s.Provenance, m.object())
		}
	case acs.MethodSkillRegister, acs.MethodSkillLoad, acs.MethodSkillUnload:
		s.SkillID = m.pick("skill", "k1", "k2")
		if s.Method == acs.MethodSkillUnload {
			break
		}
		s.DigestAlgorithm, s.DigestValue = "sha256", m.pick("digest", "d1", "d2")
		if s.Method == acs.MethodSkillLoad && m.often("parent step", 3) {
			s.ParentStepID = m.stepID("parent step")
		} else if s.Method == acs.MethodSkillRegister {
			objects(1)
		}
	case acs.MethodAgBOMChanged:
		s.TriggerStepID = m.stepID("trigger")
		objects(1)
	default:
		if acs.HookOf(s.Method) == acs.HookWrapped {
			s.Answer = m.often("answer", 5)
			s.InnerID = m.pick("inner", "1", "1", "2", "")
		} else if acs.HookOf(s.Method) != acs.HookUnknown {
			objects(2)
		}
	}
}

func (m *maker) summary() *acs.DeclaredSummary {
	d := &acs.DeclaredSummary{}
	if m.often("origins_seen", 5) {
		d.HasOriginsSeen = true
		d.OriginsSeen = []string{"user_input", "retrieved"}[:rapid.IntRange(0, 2).Draw(m.t, "seen")]
	}
	if m.often("entry_count", 5) {
		d.HasEntryCount, d.EntryCount = true, float64(rapid.IntRange(0, 3).Draw(m.t, "count"))
	}
	if m.often("by origin", 5) {
		d.HasEntryCountByOrigin = true
		d.EntryCountByOrigin = []acs.OriginValue{{Origin: "user_input", Count: float64(rapid.IntRange(0, 2).Draw(m.t, "n"))}}
	}
	if m.often("earliest", 5) {
		d.HasEarliestStepIDByOrigin = true
		d.EarliestStepIDByOrigin = []acs.OriginValue{{Origin: "user_input", StepID: m.stepID("earliest")}}
	}
	if m.often("max depth", 5) {
		d.HasMaxLineageDepth, d.MaxLineageDepth = true, float64(rapid.IntRange(0, 2).Draw(m.t, "depth"))
	}
	return d
}

// Scramble permutes records and repeats some of them: what D1 must not notice.
func Scramble(t *rapid.T, steps []*acs.Step) []*acs.Step {
	out := slices.Clone(steps)
	for _, s := range steps {
		if rapid.IntRange(0, 3).Draw(t, "repeat") == 0 {
			out = append(out, s)
		}
	}
	return rapid.Permutation(out).Draw(t, "order")
}
