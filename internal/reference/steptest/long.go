package steptest

import (
	"strconv"

	"pgregory.net/rapid"

	"provstream/internal/acs"
)

// DrawLongSettings draws flags under which segments grow long and turns close
// often.
func DrawLongSettings(t *rapid.T) Settings {
	s := DrawSettings(t)
	s["max-run-weight"] = rapid.SampledFrom([]int64{20_000, 100_000, 4 << 20, 4 << 20}).Draw(t, "max-run-weight")
	s["session-idle"] = rapid.SampledFrom([]int64{3000, 1_000_000}).Draw(t, "session-idle")
	s["max-open-steps"] = 2_000_000
	s["complete-grace"] = rapid.SampledFrom([]int64{0, 10, 10, 1000}).Draw(t, "complete-grace")
	s["grace"] = rapid.SampledFrom([]int64{0, 50, 50, 2000}).Draw(t, "grace")
	return s
}

// DrawLongLog draws what a healthy fleet sends, with ticks: runs of up to n
// records between them, nearly in order, turn after turn, each record with ids
// of its own that refer to what came shortly before. Now and then something is
// amiss: any record of DrawLog, a reference to what is still to come, a record
// that is late.
func DrawLongLog(t *rapid.T, n int) []Event {
	l := longLog{maker: maker{t}, amiss: rapid.SampledFrom([]int{0, 0, 1, 4, 15}).Draw(t, "amiss in 100")}
	for i := range rapid.IntRange(1, 2).Draw(t, "runs") {
		l.runs = append(l.runs, &longRun{session: "r" + strconv.Itoa(i+1), nested: rapid.Bool().Draw(t, "nested")})
	}
	var drafts []draft
	for range rapid.IntRange(n/3, n).Draw(t, "length") {
		drafts = append(drafts, l.draft())
	}
	log := assemble(drafts)
	now := log[len(log)-1].Tick
	for _, pass := range []int64{5000, 50_000, 500_000, 2_000_000} {
		now += pass
		log = append(log, Event{Tick: now})
	}
	return log
}

type longLog struct {
	maker
	amiss int // records in a hundred
	runs  []*longRun
	n     int // ids so far
}

// longRun is one session's script.
type longRun struct {
	session string
	nested  bool
	begun   bool
	turns   []string // open, innermost last
	members []int    // of each
	turn    int
	calls   []string // without a result
}

// percent is true n times in a hundred.
func (l *longLog) percent(name string, n int) bool { return rapid.IntRange(0, 99).Draw(l.t, name) < n }

func (l *longLog) draft() draft {
	d := draft{pass: rapid.SampledFrom([]int64{1, 1, 3, 20, 120}).Draw(l.t, "pass")}
	switch {
	case l.percent("tick", 20):
		d.tick, d.pass = true, rapid.SampledFrom([]int64{1, 30, 1100}).Draw(l.t, "pass of tick")
		return d
	case l.percent("copy", 3):
		d.copyOf = rapid.IntRange(1, 20).Draw(l.t, "of")
		return d
	}
	r := rapid.SampledFrom(l.runs).Draw(l.t, "run")
	if l.amiss > 0 && l.percent("amiss", l.amiss) {
		d.step = l.record([]string{r.session})
		if l.percent("fresh", 60) && d.step.StepID != "" {
			d.step.StepID = l.near("step_id", 0)
		}
		if len(r.turns) > 0 && d.step.TurnID != "" && l.percent("its turn", 50) {
			d.step.TurnID, d.step.PayloadTurnID = r.turns[len(r.turns)-1], ""
		}
		return d
	}
	d.step = l.next(r)
	d.step.Session, d.step.Tenant = r.session, "default"
	d.step.Coordinates = acs.Coordinates{Topic: "h", Index: -1}
	if l.percent("out of order", 6) {
		d.step.EventTime = -rapid.SampledFrom([]int64{1, 2, 5, 40, 300, 5000}).Draw(l.t, "by")
	}
	return d
}

// near names an id of a record that came shortly before, or, up to ahead, that
// is still to come.
func (l *longLog) near(name string, ahead int) string {
	if ahead > 0 && !l.percent("ahead", l.amiss) {
		ahead = 0
	}
	return "s" + strconv.Itoa(max(0, l.n+rapid.IntRange(-6, ahead).Draw(l.t, name)))
}

// next is the next record of a run.
func (l *longLog) next(r *longRun) *acs.Step {
	l.n++
	s := &acs.Step{StepID: "s" + strconv.Itoa(l.n), AgentID: "a"}
	s.ID = strconv.Quote(s.StepID)
	depth := len(r.turns)
	switch {
	case !r.begun:
		r.begun = true
		s.Method = acs.MethodSessionStart
	case depth == 0 || r.nested && depth < 3 && l.percent("turn inside", 6):
		r.turn++
		s.Method, s.PayloadTurnID = acs.MethodTurnStart, r.session+"t"+strconv.Itoa(r.turn)
		if depth > 0 {
			s.PayloadParentTurnID = r.turns[depth-1]
		}
		r.turns, r.members = append(r.turns, s.PayloadTurnID), append(r.members, 0)
	case l.percent("decision", 20):
		l.answer(s)
	case l.percent("an earlier turn", 2):
		l.again(r, s)
	case l.percent("turn ends", 15):
		l.end(r, s)
	default:
		s.TurnID = r.turns[depth-1]
		r.members[depth-1]++
		l.work(r, s)
	}
	return s
}

func (l *longLog) answer(s *acs.Step) {
	l.n--
	*s = acs.Step{Type: acs.TypeDecision, StepID: l.near("answers", 2), Decision: l.pick("verdict", "allow", "allow", "allow", "ask", "deny")}
	s.ID = strconv.Quote(s.StepID)
	if l.percent("error", 2) {
		s.StepID, s.Decision, s.ErrorResponse = "", "", true
	}
	if l.percent("head", 20) {
		s.DecisionChainHash = "h" + strconv.Itoa(l.n%7)
	}
	if l.percent("cites", 20) {
		s.Cited = []string{"p" + l.near("cited", 2)}
	}
}

func (l *longLog) end(r *longRun, s *acs.Step) {
	last := len(r.turns) - 1
	s.Method, s.PayloadTurnID, s.Outcome = acs.MethodTurnEnd, r.turns[last], l.pick("outcome", "completed", "completed", "completed", "deferred")
	s.StepCount = acs.Number{Set: true, Value: float64(r.members[last])}
	if l.percent("miscounted", 15) {
		s.StepCount.Value++
	}
	if l.percent("summary", 20) {
		s.HasSummary = true
		s.Provenance = []acs.Provenance{l.minted(s)}
	}
	r.turns, r.members = r.turns[:last], r.members[:last]
}

// again goes on with a turn that may have ended long ago.
func (l *longLog) again(r *longRun, s *acs.Step) {
	turn := r.session + "t" + strconv.Itoa(rapid.IntRange(max(1, r.turn-8), r.turn).Draw(l.t, "turn"))
	s.Method = l.pick("again", acs.MethodTurnStart, acs.MethodTurnEnd, acs.MethodUserMessage)
	if s.Method == acs.MethodUserMessage {
		s.TurnID = turn
		return
	}
	s.PayloadTurnID = turn
	if s.Method == acs.MethodTurnEnd {
		s.Outcome, s.StepCount = l.pick("outcome", "completed", "deferred"), acs.Number{Set: true, Value: 2}
	} else if r.turn > 1 && l.percent("parent", 30) {
		s.PayloadParentTurnID = r.session + "t1"
	}
}

// work is a member of a turn.
func (l *longLog) work(r *longRun, s *acs.Step) {
	s.Method = l.pick("method", acs.MethodUserMessage, acs.MethodAgentResponse, acs.MethodKnowledgeRetrieval, acs.MethodToolCallRequest,
		acs.MethodToolCallRequest, acs.MethodToolCallRequest, acs.MethodToolCallResult, acs.MethodToolCallResult, acs.MethodToolCallResult, acs.MethodMemoryStore, acs.MethodPostCompact, acs.MethodSubagentStart, acs.MethodSkillLoad)
	switch s.Method {
	case acs.MethodToolCallRequest:
		s.Tool = "x"
		r.calls = append(r.calls, s.StepID)
	case acs.MethodToolCallResult:
		s.Tool = "x"
		if n := len(r.calls); n > 0 && l.percent("named", 50) {
			s.RequestIDRef = rapid.SampledFrom(r.calls[max(0, n-6):]).Draw(l.t, "call")
		} else if l.percent("dangling", 10) {
			s.RequestIDRef = l.near("ref", 3)
		}
	case acs.MethodPostCompact:
		s.EntriesCompacted = []string{l.near("entry", 2), l.near("entry", 0)}
	case acs.MethodSubagentStart:
		s.SubagentSessionID = "c" + strconv.Itoa(l.n/9)
		if l.percent("stops", 50) {
			s.Method, s.Outcome = acs.MethodSubagentStop, l.pick("how", "completed", "failed")
		}
		return
	case acs.MethodSkillLoad:
		s.SkillID, s.DigestValue = "k"+strconv.Itoa(l.n/20), "d"
		if l.percent("registers", 50) {
			s.Method = acs.MethodSkillRegister
		}
		return
	}
	if l.percent("data without provenance", 15) {
		s.ProvenanceMissing = 1
	} else {
		s.Provenance = []acs.Provenance{l.minted(s)}
	}
	if l.percent("claims", 10) {
		s.ChainHash = "h" + strconv.Itoa(rapid.IntRange(0, 8).Draw(l.t, "claimed"))
	}
}

// minted is an object with the id of its step, or of one shortly before.
func (l *longLog) minted(s *acs.Step) acs.Provenance {
	p := acs.Provenance{ID: "p" + s.StepID, Origin: l.pick("origin", "user_input", "retrieved", "agent_generated")}
	if l.percent("carried", 10) {
		p.ID = "p" + l.near("id", 2)
	}
	for range rapid.IntRange(0, 2).Draw(l.t, "parents") {
		p.DerivedFrom = append(p.DerivedFrom, "p"+l.near("parent", 3))
	}
	return p
}
