package reference

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"provstream/internal/acs"
	"provstream/internal/topics"
)

// Partition is a simulation of a partition of prov.steps.
type Partition struct {
	cfg    Config
	runs   map[string]*run
	clock  int64
	ticked bool
	seq    int64
	out    []Emission
}

// New starts at the beginning of a log.
func New(cfg Config) *Partition { return &Partition{cfg: cfg, runs: map[string]*run{}} }

// SetConfig changes the configuration for what follows.
func (p *Partition) SetConfig(cfg Config) { p.cfg = cfg }

// Apply processes a step or decision, which it keeps, and returns what is
// emitted.
func (p *Partition) Apply(s *acs.Step) []Emission {
	p.out = nil
	p.apply(s)
	return p.out
}

// Tick processes a tick and returns what is emitted.
func (p *Partition) Tick(t int64) []Emission {
	p.out = nil
	p.tick(t)
	return p.out
}

// Open calls f with each distinct record of the open segments, and with the
// run's key.
func (p *Partition) Open(f func(runKey string, s *acs.Step)) {
	for key, r := range p.runs {
		for _, rec := range r.records {
			f(key, rec.step)
		}
	}
}

// Simulate applies a log and returns everything that is emitted, in order.
func Simulate(cfg Config, log Log) []Emission {
	p := New(cfg)
	var out []Emission
	for _, e := range log {
		if e.Step == nil {
			out = append(out, p.Tick(e.Tick)...)
		} else {
			out = append(out, p.Apply(e.Step)...)
		}
	}
	return out
}

// run is one ACS session of one tenant.
type run struct {
	key, tenant, session string

	past    *history
	records []*record // of the open segment, in order of arrival, each once
	byKey   map[string]*record
	// The steps among them, by what decisions name: step_id, JSON-RPC id.
	byStepID, byRPC map[string][]*record
	weight          int64
	open            bool  // has an open segment (after a size seal perhaps an empty one)
	ended           bool  // session_end or late has sealed it: what follows is late
	lastAt          int64 // at of its last record
	endAt           int64 // at of the first sessionEnd since the last seal other than size
	hasEnd          bool
	forget          int64 // when it is forgotten, if it has no open segment

	turns    map[string]*turnState
	revision int // of the session summary

	cached *analysis
}

// turnState is what closes a turn.
type turnState struct {
	open     bool
	revision int
	last     string // the last summary emitted, revision and closed_by aside
	lastAt   int64  // at of its last step

	// Since it was (re)opened.
	since int64 // arrivals from here on
	again bool  // it was closed before
	dueAt int64 // at of the record that reopened it
	// A turnEnd came, counted or not, and the smallest at of one.
	ending bool
	endAt  int64
}

// at is max(recorded_at, clock). Before the first tick that tick stands for the
// clock: see start.
func (p *Partition) at(recordedAt int64) int64 {
	if p.ticked {
		return max(recordedAt, p.clock)
	}
	return recordedAt
}

// start is the first tick: it stands for the clock of everything before it, so
// that nothing of that is overdue.
func (p *Partition) start(t int64) {
	p.clock, p.ticked = t, true
	for _, r := range p.runs {
		r.lastAt, r.endAt, r.forget = max(r.lastAt, t), max(r.endAt, t), max(r.forget, t)
		for _, rec := range r.records {
			rec.at = max(rec.at, t)
		}
		for _, it := range r.past.items {
			it.rec.at = max(it.rec.at, t)
		}
		for _, s := range r.turns {
			s.lastAt, s.dueAt, s.endAt = max(s.lastAt, t), max(s.dueAt, t), max(s.endAt, t)
		}
	}
}

// now is the time of a seal that a record brings about: the clock, or the
// record's recorded_at where that is later.
func (p *Partition) now(recordedAt int64) int64 {
	if p.ticked {
		return max(recordedAt, p.clock)
	}
	return recordedAt
}

func (r *run) analysis() *analysis {
	if r.cached == nil {
		r.cached = analyse(r.past, r.records, r.ended, false)
	}
	return r.cached
}

func (p *Partition) apply(s *acs.Step) {
	key := topics.RunKey(s.Tenant, s.Session)
	r := p.runs[key]
	if r == nil {
		r = &run{key: key, tenant: s.Tenant, session: s.Session, past: newHistory(), turns: map[string]*turnState{}}
		r.hold(nil)
		p.runs[key] = r
	}
	if r.copyOf(s) {
		return
	}
	p.seq++
	rec := &record{step: s, at: p.at(s.RecordedAt), seq: p.seq, weight: weight(s)}
	r.add(rec)
	if !r.open {
		r.lastAt = rec.at
	}
	r.open = true
	r.lastAt = max(r.lastAt, rec.at)
	if s.Type == acs.TypeStep && s.Rejected == "" && acs.HookOf(s.Method) == acs.HookSessionEnd && !r.hasEnd {
		r.hasEnd, r.endAt = true, rec.at
	}
	r.touch(rec)
	p.actAtOnce(r, s.RecordedAt)
	if r.weight >= 2*p.cfg.MaxRunWeight {
		p.seal(r, "size", p.now(s.RecordedAt), func(*record) bool { return true })
	}
	p.relieve(p.now(s.RecordedAt))
}

// copyOf drops a copy. Of the copies of an open segment the smallest stays.
func (r *run) copyOf(s *acs.Step) bool {
	key := copyKey(s)
	if r.past.copies[key] {
		return true
	}
	rec := r.byKey[key]
	if rec == nil {
		return false
	}
	if compareArrival(s, rec.step) < 0 {
		rec.step = s
		r.cached = nil
		if s.Type == acs.TypeStep { // its JSON-RPC id may be another one
			r.byRPC[s.ID] = append(r.byRPC[s.ID], rec)
		}
	}
	return true
}

// hold makes these the records of the open segment.
func (r *run) hold(records []*record) {
	r.records, r.byKey, r.weight, r.cached = nil, map[string]*record{}, 0, nil
	r.byStepID, r.byRPC = map[string][]*record{}, map[string][]*record{}
	for _, rec := range records {
		r.add(rec)
	}
}

func (r *run) add(rec *record) {
	r.records = append(r.records, rec)
	r.byKey[copyKey(rec.step)] = rec
	if s := rec.step; s.Type == acs.TypeStep {
		r.byStepID[s.StepID], r.byRPC[s.ID] = append(r.byStepID[s.StepID], rec), append(r.byRPC[s.ID], rec)
	}
	r.weight += rec.weight
	r.cached = nil
}

// touch opens, or opens again, the turn that a record belongs to.
func (r *run) touch(rec *record) {
	id, step := r.turnOf(rec)
	if id == "" {
		return
	}
	s := r.turns[id]
	if s == nil {
		s = &turnState{open: true, since: rec.seq, lastAt: rec.at}
		r.turns[id] = s
	}
	if step {
		s.lastAt = max(s.lastAt, rec.at)
	}
	if !s.open {
		s.open, s.again, s.since, s.dueAt = true, true, rec.seq, rec.at
		s.ending = false
	}
	if step && acs.HookOf(rec.step.Method) == acs.HookTurnEnd && (!s.ending || rec.at < s.endAt) {
		s.ending, s.endAt = true, rec.at
	}
}

// turnOf is the turn of a step, or of the step that a decision answers.
func (r *run) turnOf(rec *record) (id string, step bool) {
	if rec.step.Type == acs.TypeStep {
		it := &item{Step: rec.step, hook: acs.HookOf(rec.step.Method)}
		return it.turn(), true
	}
	closed := false
	for _, t := range r.turns {
		closed = closed || !t.open
	}
	if !closed {
		return "", false // whatever turn it is, a decision changes nothing of an open one
	}
	// Which step it answers is decided among those that it can answer: to look at
	// the whole run for each decision would cost the square of its length.
	a := &analysis{past: r.past, byStep: map[string]*item{}}
	a.place(append(r.answerable(rec.step), rec))
	for _, it := range a.items {
		if it.rec == rec && it.answers != nil {
			return it.answers.turn(), false
		}
	}
	return "", false
}

// answerable are the steps of the open segment that a decision can answer, and
// those that conflict with them.
func (r *run) answerable(d *acs.Step) []*record {
	if !d.ErrorResponse {
		return slices.Clone(r.byStepID[d.StepID])
	}
	var out []*record
	seen := map[string]bool{}
	for _, rec := range r.byRPC[d.ID] {
		if id := rec.step.StepID; !seen[id] {
			seen[id] = true
			out = append(out, r.byStepID[id]...)
		}
	}
	return out
}

// timer is something that will happen.
type timer struct {
	due  int64
	run  *run
	turn string // "" for the run itself
	what string // closed_by, sealed_by or "forget"

	quick bool // of a turn that was opened again with its turnEnd
}

func (t timer) compare(u timer) int {
	return cmp.Or(cmp.Compare(t.due, u.due), strings.Compare(t.run.key, u.run.key), strings.Compare(t.turn, u.turn))
}

func ms(d time.Duration) int64 { return d.Milliseconds() }

// turnTimer says when an open turn closes and why.
func (p *Partition) turnTimer(r *run, id string, s *turnState) timer {
	t := r.analysis().turns[id]
	met, _ := t.met()
	tm := timer{run: r, turn: id, what: "grace"}
	if met {
		tm.what = "complete"
	}
	var end *item
	quick := false // it was opened again with a turnEnd that is not deferred
	for _, it := range t.steps {
		if it.counted && it.hook == acs.HookTurnEnd {
			if it.rec.seq >= s.since {
				end = it
			} else {
				quick = it.Outcome != "deferred"
			}
		}
	}
	switch {
	case quick:
		tm.due, tm.what, tm.quick = s.dueAt+ms(p.cfg.CompleteGrace), closedBy(t), true
	case end == nil:
		tm.due, tm.what = s.lastAt+ms(p.cfg.TurnIdle), "idle"
	case met:
		tm.due = end.rec.at + ms(p.cfg.CompleteGrace)
	default:
		tm.due = end.rec.at + ms(p.cfg.Grace)
	}
	return tm
}

// runTimers of a run: why and when it would seal, or be forgotten.
func (p *Partition) runTimers(r *run) []timer {
	if !r.open {
		return []timer{{due: r.forget, run: r, what: "forget"}}
	}
	if r.ended {
		return []timer{{due: r.lastAt + ms(p.cfg.LateGrace), run: r, what: "late"}}
	}
	var out []timer
	if r.hasEnd {
		out = append(out, timer{due: r.endAt + ms(p.cfg.SealGrace), run: r, what: "session_end"})
	}
	return append(out, timer{due: r.lastAt + ms(p.cfg.SessionIdle), run: r, what: "idle"})
}

// timersOf are the timers of a run that can be due by some time.
func (p *Partition) timersOf(r *run, by int64) []timer {
	out := p.runTimers(r)
	for id, s := range r.turns {
		if s.open && p.notBefore(s) <= by {
			out = append(out, p.turnTimer(r, id, s))
		}
	}
	return out
}

// notBefore is a time before which an open turn does not close, told without
// looking at its steps.
func (p *Partition) notBefore(s *turnState) int64 {
	grace := ms(min(p.cfg.CompleteGrace, p.cfg.Grace))
	due := s.lastAt + ms(p.cfg.TurnIdle)
	if s.again {
		due = min(due, s.dueAt+grace)
	}
	if s.ending { // its record may have come before that which opened the turn again
		due = min(due, s.endAt+grace)
	}
	return due
}

// grace of what a timer waits for; idle times and retentions are no graces.
func (p *Partition) grace(t timer) time.Duration {
	if t.quick {
		return p.cfg.CompleteGrace
	}
	switch t.what {
	case "complete":
		return p.cfg.CompleteGrace
	case "grace":
		return p.cfg.Grace
	case "session_end":
		return p.cfg.SealGrace
	case "late":
		return p.cfg.LateGrace
	}
	return time.Hour
}

// actAtOnce: a grace of 0 acts with the record that makes it true, the turns'
// before the run's.
func (p *Partition) actAtOnce(r *run, recordedAt int64) {
	if min(p.cfg.CompleteGrace, p.cfg.Grace, p.cfg.SealGrace, p.cfg.LateGrace) > 0 {
		return
	}
	for r.open {
		var ready []timer
		for _, t := range p.timersOf(r, math.MaxInt64) {
			if p.grace(t) == 0 {
				ready = append(ready, t)
			}
		}
		if len(ready) == 0 {
			return
		}
		p.fire(slices.MinFunc(ready, func(x, y timer) int {
			if (x.turn == "") != (y.turn == "") {
				return -strings.Compare(x.turn, y.turn)
			}
			return x.compare(y)
		}), p.now(recordedAt))
	}
}

func (p *Partition) tick(t int64) {
	if !p.ticked {
		p.start(t)
	}
	p.clock = max(p.clock, t)
	next := map[*run]timer{} // of each run the first timer that is due
	look := func(r *run) {
		delete(next, r)
		for _, t := range p.timersOf(r, p.clock) {
			if first, ok := next[r]; t.due <= p.clock && (!ok || t.compare(first) < 0) {
				next[r] = t
			}
		}
	}
	for _, r := range p.runs {
		look(r)
	}
	for len(next) > 0 {
		t := slices.MinFunc(slices.Collect(maps.Values(next)), timer.compare)
		p.fire(t, p.clock)
		if p.runs[t.run.key] == t.run {
			look(t.run)
		} else {
			delete(next, t.run)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.runs)) {
		r := p.runs[key]
		old := func(rec *record) bool { return rec.step.RecordedAt <= p.clock }
		if r.open && r.weight >= p.cfg.MaxRunWeight && slices.ContainsFunc(r.records, old) {
			p.seal(r, "size", p.clock, old)
		}
	}
	p.relieve(p.clock)
}

func (p *Partition) fire(t timer, now int64) {
	switch {
	case t.turn != "":
		p.closeTurn(t.run, t.turn, t.what)
	case t.what == "forget":
		delete(p.runs, t.run.key)
	default:
		p.seal(t.run, t.what, now, func(*record) bool { return true })
	}
}

// relieve seals, under pressure, the run that has been silent for longest.
func (p *Partition) relieve(now int64) {
	for {
		held := 0
		var silent *run
		for _, r := range p.runs {
			held += len(r.records)
			if len(r.records) > 0 && (silent == nil || cmp.Or(cmp.Compare(r.lastAt, silent.lastAt), strings.Compare(r.key, silent.key)) < 0) {
				silent = r
			}
		}
		if held <= p.cfg.MaxOpenSteps {
			return
		}
		p.seal(silent, "pressure", now, func(*record) bool { return true })
	}
}

// closeTurn closes an open turn outside of a seal.
func (p *Partition) closeTurn(r *run, id, by string) {
	r.turns[id].open = false
	p.emitTurn(r, id, by)
	p.emitSession(r, "")
}

// emitTurn emits the next revision of a turn if it tells anything new.
func (p *Partition) emitTurn(r *run, id, by string) {
	a := r.analysis()
	s := r.turns[id]
	o, ended := r.turnSummary(a, a.turns[id])
	if text := string(canonical(o)); text == s.last {
		return
	} else {
		s.last = text
	}
	s.revision++
	o["revision"], o["closed_by"] = s.revision, by
	p.out = append(p.out, Emission{Kind: Turn, Key: r.key, Value: canonical(o), ID: turnEventID(r.key, id, s.revision), Time: ended})
}

func (p *Partition) emitSession(r *run, sealedBy string) {
	o, ended := r.sessionSummary(r.analysis())
	r.revision++
	o["revision"], o["final"] = r.revision, sealedBy != ""
	set(o, "sealed_by", sealedBy)
	p.out = append(p.out, Emission{Kind: Session, Key: r.key, Value: canonical(o), ID: turnEventID(r.key, "session", r.revision), Time: ended})
}

// seal ends the open segment with the records that belong; the others open
// the next one.
func (p *Partition) seal(r *run, by string, now int64, belongs func(*record) bool) {
	var sealed, rest []*record
	for _, rec := range r.records {
		if belongs(rec) {
			sealed = append(sealed, rec)
		} else {
			rest = append(rest, rec)
		}
	}
	size := by == "size"
	a := analyse(r.past, sealed, r.ended, !size)
	d := a.build(r.tenant, r.session, now)
	r.past.seal(a, d, !size, p.cfg.MaxRunIDs)
	r.hold(rest)
	r.ended = r.ended || by == "session_end" || by == "late"
	// The turns tell of all their records, those that have moved on included.
	p.tellTurns(r, size)
	if d != nil {
		p.out = append(p.out, Emission{Kind: Run, Key: r.key, Value: d.value, ID: r.tenant + "/" + d.id, Time: now})
	}
	if size {
		return
	}
	p.emitSession(r, by)
	r.open, r.hasEnd = false, false
	r.forget = now + ms(p.cfg.IdleRetention)
	if by == "session_end" || by == "late" {
		r.forget = now + ms(p.cfg.LateRetention)
	}
}

// tellTurns closes the open turns, unless only closed ones are meant, and gives
// each turn that tells anything new a last revision.
func (p *Partition) tellTurns(r *run, closedOnly bool) {
	for _, id := range slices.Sorted(maps.Keys(r.turns)) {
		s := r.turns[id]
		if s.open && closedOnly {
			continue
		}
		if s.open {
			r.turns[id].open = false
		}
		p.emitTurn(r, id, closedBy(r.analysis().turns[id]))
	}
}

// closedBy is how a seal names the closing of a turn.
func closedBy(t *turn) string {
	if met, _ := t.met(); met {
		return "complete"
	}
	if t.end != nil {
		return "grace"
	}
	return "session"
}

// weight of a record (rules §4).
func weight(s *acs.Step) int64 {
	w := int64(800)
	text := func(v string) { w += 100 + int64(len(canonical(v))) }
	for _, v := range []string{s.Method, s.EffectiveTurnID(), s.AgentID, s.UserID, s.Tool, s.Tool, s.Capability,
		s.SkillID, s.SubagentSessionID, s.SignatureKeyID} {
		if v != "" {
			text(v)
		}
	}
	for _, o := range s.Provenance {
		text(o.ID)
		if o.SourceID != "" {
			text(o.SourceID)
		}
		for _, q := range o.DerivedFrom {
			text(q)
		}
	}
	for _, list := range [][]string{s.EntriesToCompact, s.EntriesCompacted, s.Cited, s.ReasonCodes} {
		for _, v := range list {
			text(v)
		}
	}
	return w
}
