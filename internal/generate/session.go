package generate

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"provstream/internal/acs"
	"provstream/internal/fleet"
	"provstream/internal/topics"
)

// session is one session while it is made up.
type session struct {
	cfg   *Config
	rng   *rand.Rand
	index int
	fault *Fault

	tenant    string // "": the envelopes have no tenant_id
	id        string
	agentID   string
	agentName string
	userID    string
	// provenance: the producer promises Provenance objects (deterministic).
	provenance bool
	// chained: decisions publish chain heads and steps repeat them (ACS §8).
	chained bool
	signed  bool
	// rich: every hook occurs.
	rich bool
	// numbered: JSON-RPC ids are small numbers, not the request ids.
	numbered bool

	now      int64 // event time of the last event
	events   []*event
	children []*session
	pids     int
	rpcs     int
	turn     *turn
	context  []string // provenance ids that the model has before it
}

// turn is the turn that is open in the story.
type turn struct {
	id, parent string
}

// event is one step with its answers.
type event struct {
	method       string
	id           string
	rpc          any // JSON-RPC id
	at           int64
	lag          int64 // Kafka timestamp - event time
	turn, parent string
	payload      object
	prov         []*prov // what it carries, in extraction order
	answers      []*answer

	// uncounted: what the services must not count (handshake, rejected, loser).
	uncounted bool
	// compacts is what a preCompact or postCompact lists.
	compacts []*event

	// The rest is for faults.
	agent    string                 // another metadata.agent_id
	skew     int64                  // added to params.timestamp only
	chain    string                 // another session_state.chain_hash
	topic    string                 // another topic
	edit     func(envelope *object) // changes the envelope before it is text
	tamper   func([]byte) []byte    // changes the record's bytes
	copies   int                    // how often it is sent again
	metaTurn string                 // another metadata.turn_id
	batch    int                    // events with the same number > 0 are one record
}

// answer is one response envelope.
type answer struct {
	after   int64 // ms after the step's Kafka timestamp
	result  object
	err     object
	id      any // JSON-RPC id; nil: the step's
	request string
	chained bool
	key     *string // another key
	bare    bool    // no headers
	edit    func(envelope *object)
	copies  int
}

func newSession(cfg *Config, index int, start int64, fault *Fault) *session {
	s := &session{
		cfg: cfg, index: index, fault: fault, now: start,
		rng: rand.New(rand.NewPCG(cfg.Seed, uint64(index)+1)),
	}
	s.id = s.uuid()
	s.tenant = cfg.Tenants[index%len(cfg.Tenants)]
	s.agentID = fmt.Sprintf("desk-agent-%d", s.rng.IntN(5))
	s.agentName = "Operations desk"
	s.userID = fmt.Sprintf("user-%04d", s.rng.IntN(500))
	s.rich = index%6 == 0 || fault != nil
	s.provenance = fault != nil || s.rich || s.rng.IntN(8) != 0
	s.chained = fault == nil && s.rng.IntN(3) == 0
	s.signed = s.rng.IntN(4) == 0
	s.numbered = s.rng.IntN(4) == 0
	if fault != nil && fault.setup != nil {
		fault.setup(s)
	}
	return s
}

// tell makes the session up.
func (s *session) tell() {
	s.story()
	if s.fault != nil && s.fault.happen != nil {
		s.fault.happen(s)
	}
	s.sort()
	s.declare()
	if s.fault != nil && s.fault.lie != nil {
		s.fault.lie(s)
	}
}

func (s *session) sort() {
	slices.SortStableFunc(s.events, func(a, b *event) int { return int(a.at - b.at) })
}

// uuid returns a fresh version 4 UUID.
func (s *session) uuid() string {
	var u [16]byte
	for i := 0; i < 16; i += 8 {
		v := s.rng.Uint64()
		for j := range 8 {
			u[i+j] = byte(v >> (8 * j))
		}
	}
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	h := hex.EncodeToString(u[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// pass lets event time go on.
func (s *session) pass(low, high int64) { s.now += low + s.rng.Int64N(high-low) }

// add appends a step that happens now, inside the open turn if there is one.
func (s *session) add(method string, payload object, carried ...*prov) *event {
	s.pass(40, 900)
	e := s.event(method, payload, carried...)
	if s.turn != nil {
		e.turn, e.parent = s.turn.id, s.turn.parent
	}
	s.events = append(s.events, e)
	return e
}

// event is an event at the present instant that is not in the story yet.
func (s *session) event(method string, payload object, carried ...*prov) *event {
	e := &event{method: method, id: s.uuid(), at: s.now, lag: 1 + s.rng.Int64N(12), payload: payload}
	e.rpc = e.id
	if s.numbered {
		s.rpcs++
		e.rpc = s.rpcs
	}
	for _, p := range carried {
		if p != nil {
			e.prov = append(e.prov, p)
		}
	}
	return e
}

// mint returns a Provenance object with a fresh id, nil where the session has
// none. Parents are the ids named, those that are "" left out.
func (s *session) mint(origin, source string, parents ...string) *prov {
	if !s.provenance {
		return nil
	}
	s.pids++
	p := &prov{id: "p" + strconv.Itoa(s.pids), origin: origin, source: source}
	for _, q := range parents {
		if q != "" && !slices.Contains(p.parents, q) {
			p.parents = append(p.parents, q)
		}
	}
	return p
}

// see puts what p marks before the model.
func (s *session) see(p *prov) {
	if p != nil {
		s.context = append(s.context, p.id)
	}
}

// recent returns the last n ids that the model has before it, newest first.
func (s *session) recent(n int) []string {
	out := slices.Clone(s.context[max(0, len(s.context)-n):])
	slices.Reverse(out)
	return out
}

// records writes the session and its subagents out, unsorted.
func (s *session) records() []fleet.Record {
	var out []fleet.Record
	var batch []byte
	head := ""
	for i, e := range s.events {
		text := s.envelope(e, head)
		if e.batch > 0 {
			open := i == 0 || s.events[i-1].batch != e.batch
			last := i+1 == len(s.events) || s.events[i+1].batch != e.batch
			if open {
				batch = append(batch[:0], '[')
			} else {
				batch = append(batch, ',')
			}
			batch = append(batch, text...)
			text = nil
			if last {
				text = append(slices.Clone(batch), ']')
			}
		}
		if text != nil || e.batch == 0 {
			out = append(out, s.record(e, text)...)
		}
		for _, a := range e.answers {
			if a.chained {
				sum := sha256.Sum256([]byte(head + e.id + strconv.Itoa(i)))
				head = hex.EncodeToString(sum[:])
				a.result.set("chain_hash", head)
			}
			out = append(out, s.answerRecords(e, a)...)
		}
	}
	for _, c := range s.children {
		out = append(out, c.records()...)
	}
	return out
}

func (s *session) record(e *event, text []byte) []fleet.Record {
	if e.tamper != nil {
		text = e.tamper(text)
	}
	r := fleet.Record{Topic: e.topic, Key: []byte(s.id), TimeMs: e.at + e.lag, Value: text}
	if r.Topic == "" {
		r.Topic = topics.Hook(e.method)
		if e.batch > 0 {
			r.Topic = topics.HookPrefix + "batch"
		}
	}
	out := []fleet.Record{r}
	for i := range e.copies {
		again := r
		again.TimeMs += int64(i+1) * 150
		out = append(out, again)
	}
	return out
}

// envelope is the text of a request envelope (ACS §3). head is the last chain
// head that the session's decisions published.
func (s *session) envelope(e *event, head string) []byte {
	meta := obj("agent_id", s.agentID, "agent_name", s.agentName, "session_id", s.id, "environment", "production",
		"platform", "opsdesk", "platform_version", "2.3.1")
	if e.agent != "" {
		meta.set("agent_id", e.agent)
	}
	if e.method == acs.MethodUserMessage || e.method == acs.MethodSessionStart {
		meta.set("user_context", obj("user_id", s.userID, "roles", []string{"dispatcher"}, "authentication_method", "oidc"))
	}
	turn := e.turn
	if e.metaTurn != "" {
		turn = e.metaTurn
	}
	if turn != "" {
		meta.set("turn_id", turn)
	}
	if e.parent != "" {
		meta.set("parent_turn_id", e.parent)
	}
	if e.chain != "" {
		head = e.chain
	}
	if head != "" && e.method != acs.MethodHandshakeHello {
		meta.set("session_state", obj("chain_hash", head))
		if e.method == acs.MethodPostCompact {
			e.payload.set("pre_compact_chain_hash", head)
		}
	}
	params := obj("acs_version", "0.1.0", "request_id", e.id, "timestamp", instant(e.at+e.skew), "metadata", meta, "payload", e.payload)
	if s.tenant != "" {
		params.set("tenant_id", s.tenant)
	}
	if s.signed {
		sum := sha256.Sum256([]byte(e.id))
		params.set("nonce", hex.EncodeToString(sum[:12]))
		params.set("signature", obj("algorithm", "HMAC-SHA256", "value", base64.StdEncoding.EncodeToString(sum[:]), "key_id", s.agentID+"-2026"))
	}
	env := obj("jsonrpc", "2.0", "method", e.method, "id", e.rpc, "params", &params)
	if e.edit != nil {
		e.edit(&env)
	}
	return appendObject(nil, env)
}

func (s *session) answerRecords(e *event, a *answer) []fleet.Record {
	env := obj("jsonrpc", "2.0", "id", a.id)
	if a.id == nil {
		env = obj("jsonrpc", "2.0", "id", e.rpc)
	}
	if a.err != nil {
		env.set("error", a.err)
	} else {
		env.set("result", a.result)
	}
	if a.edit != nil {
		a.edit(&env)
	}
	r := fleet.Record{Topic: topics.Decisions, Key: []byte(s.id), TimeMs: e.at + e.lag + a.after, Value: appendObject(nil, env)}
	if a.key != nil {
		r.Key = []byte(*a.key)
	}
	if !a.bare {
		r.Headers = append(r.Headers, fleet.Header{Key: "acs-session-id", Value: []byte(s.id)})
		if s.tenant != "" {
			r.Headers = append(r.Headers, fleet.Header{Key: "acs-tenant-id", Value: []byte(s.tenant)})
		}
	}
	out := []fleet.Record{r}
	for i := range a.copies {
		again := r
		again.TimeMs += int64(i+1) * 150
		out = append(out, again)
	}
	return out
}

// instant prints event time as the agents do.
func instant(ms int64) string {
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}
