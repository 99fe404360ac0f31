package generate

import (
	"bytes"
	"strings"

	"provstream/internal/acs"
	"provstream/internal/topics"
)

// rejected is a note whose record is broken: it counts in nothing.
func (s *session) rejected(edit func(*object), tamper func([]byte) []byte) {
	s.beforeEnd(func() {
		e := s.note()
		e.uncounted = true
		e.edit, e.tamper = edit, tamper
	})
}

// replace changes the record's bytes once.
func replace(old, with string) func([]byte) []byte {
	return func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(with), 1) }
}

// textFaults are records that are no readable envelope, in the order of the
// checks (rules §2, 1 to 6).
func textFaults() []Fault {
	return []Fault{
		{
			Name: "oversize", About: "a record of more than 1 MiB", DeadLetters: codes{"oversize": 1},
			happen: func(s *session) {
				s.beforeEnd(func() {
					e := s.note()
					e.uncounted = true
					e.payload.set("content", obj("value", strings.Repeat("0123456789abcdef", 1<<16)+"!"))
				})
			},
		},
		{
			Name: "not_json", About: "a cut record, two texts in one, no value at all, containers nested 129 deep",
			DeadLetters: codes{"not_json": 4},
			happen: func(s *session) {
				s.rejected(nil, func(b []byte) []byte { return b[:len(b)*3/4] })
				s.rejected(nil, func(b []byte) []byte { return append(b, b...) })
				s.rejected(nil, func([]byte) []byte { return nil })
				s.rejected(nil, replace(`"operation":"create"`, `"operation":`+strings.Repeat("[", 126)+strings.Repeat("]", 126)))
			},
		},
		{
			Name: "not_strict", About: "a member twice, a lone surrogate, invalid UTF-8, a number beyond IEEE doubles",
			DeadLetters: codes{"not_strict": 4}, Anomalies: codes{"step_rejected": 4},
			happen: func(s *session) {
				s.rejected(nil, replace(`"operation":"create"`, `"operation":"create","operation":"delete"`))
				s.rejected(nil, replace(`"operation":"create"`, `"operation":"create","memory_id":"\ud834"`))
				s.rejected(nil, replace(`"operation":"create"`, "\"operation\":\"create\",\"memory_id\":\"\xff\""))
				s.rejected(nil, replace(`"operation":"create"`, `"operation":"create","weight":1e400`))
			},
		},
		{
			Name: "version", About: "another major version of ACS", DeadLetters: codes{"version": 1}, Anomalies: codes{"step_rejected": 1},
			happen: func(s *session) {
				s.rejected(func(env *object) { params(env).set("acs_version", "1.0.0") }, nil)
			},
		},
		{
			Name: "envelope", About: "no agent_id, an unknown top-level member, an impossible date, an empty batch",
			DeadLetters: codes{"envelope": 4}, Anomalies: codes{"step_rejected": 3},
			happen: func(s *session) {
				s.rejected(func(env *object) { metadata(env).drop("agent_id") }, nil)
				s.rejected(func(env *object) { env.set("trace", true) }, nil)
				s.rejected(func(env *object) { params(env).set("timestamp", "2026-02-30T09:00:00Z") }, nil)
				s.rejected(nil, func([]byte) []byte { return []byte("[]") })
			},
		},
		{
			Name: "payload", About: "a message without content, a call without a tool, a turnEnd with an unknown outcome",
			DeadLetters: codes{"payload": 3}, Anomalies: codes{"step_rejected": 3},
			happen: func(s *session) {
				for _, p := range []struct {
					method  string
					payload object
				}{
					{acs.MethodUserMessage, obj("content", []object{})},
					{acs.MethodToolCallRequest, obj("arguments", object{})},
					{acs.MethodTurnEnd, obj("turn_id", "t", "outcome", "exhausted")},
				} {
					s.beforeEnd(func() { s.add(p.method, p.payload).uncounted = true })
				}
			},
		},
	}
}

// policyFaults are envelopes that are well-formed and must not pass all the
// same, or only in part.
func policyFaults() []Fault {
	return []Fault{
		{
			Name: "unknown_method", About: "a step outside the inventory; a dead letter with --unknown-hooks=reject",
			Anomalies: codes{"unknown_method": 1},
			happen:    func(s *session) { s.beforeEnd(func() { s.add("steps/telepathy", obj("thought", "…")) }) },
		},
		{
			Name: "tenant_mismatch", About: "a step on the topic acs.hooks.pinned, which --tenant-topics gives to another tenant",
			Needs:  `ingest --tenant-topics with {"acs.hooks.pinned":"elsewhere"}`,
			happen: func(s *session) { s.beforeEnd(func() { s.note().topic = topics.HookPrefix + "pinned" }) },
		},
		{
			Name: "unroutable", About: "a decision whose key is no session and that has no headers", DeadLetters: codes{"unroutable": 1},
			happen: func(s *session) {
				a := s.decide(s.last(acs.MethodUserMessage), "allow")
				key := "guardian-7"
				a.key, a.bare, a.chained = &key, true, false
			},
		},
		{
			Name: "provenance", About: "content without provenance though the producer promised it; a dead letter with --provenance=required",
			Anomalies: codes{"provenance_missing": 1},
			happen: func(s *session) {
				s.beforeEnd(func() {
					s.add(acs.MethodUserMessage, obj("content", []object{obj("type", "text", "value", sentence(s.rng, 60))}))
				})
			},
		},
		{
			Name: "batch_partly_bad", About: "a batch of three whose second element breaks its schema",
			DeadLetters: codes{"payload": 1}, Anomalies: codes{"step_rejected": 1},
			happen: func(s *session) {
				s.beforeEnd(func() {
					n := len(s.events)
					s.note()
					e := s.add(acs.MethodTurnStart, obj("triggered_by", "agent_loop"))
					e.uncounted = true
					s.note()
					for _, e := range s.events[n:] {
						e.batch, e.lag = 1000, s.now-e.at+2
					}
				})
			},
		},
		{
			Name: "decision_rejected", About: "a decision with an unknown verdict", DeadLetters: codes{"envelope": 1},
			Anomalies: codes{"step_rejected": 1},
			happen: func(s *session) {
				s.beforeEnd(func() { s.decide(s.note(), "perhaps") })
			},
		},
	}
}

// identityFaults are about who says what, and twice.
func identityFaults() []Fault {
	return []Fault{
		{
			Name: "copies", About: "a producer that retries: every third record twice",
			happen: func(s *session) {
				for i, e := range s.events {
					if i%3 == 0 && e.method != acs.MethodSessionEnd && e.batch == 0 {
						e.copies = 1
						for _, a := range e.answers {
							a.copies = 1
						}
					}
				}
			},
		},
		{
			Name: "step_conflict", About: "a request id used again with another payload, and with another method",
			Anomalies: codes{"step_conflict": 2},
			happen: func(s *session) {
				s.beforeEnd(func() {
					first := s.note()
					again := s.note()
					other := s.add(acs.MethodUserMessage, obj("content", []object{obj("type", "text", "value", "the same id")}))
					for _, e := range []*event{again, other} {
						e.id, e.uncounted = first.id, true
					}
				})
			},
		},
		{
			Name: "clock_skew", About: "clocks ten minutes ahead and an hour behind", Anomalies: codes{"clock_skew": 2},
			happen: func(s *session) {
				s.beforeEnd(func() {
					s.note().skew = 600_000
					s.note().skew = -3_600_000
				})
			},
		},
		{
			Name: "agent_changed", About: "a step that names another agent", Anomalies: codes{"agent_changed": 1},
			happen: func(s *session) { s.beforeEnd(func() { s.note().agent = "stranger" }) },
		},
		{
			Name: "decision_conflict", About: "two different answers to one step",
			happen: func(s *session) {
				s.decide(s.first(acs.MethodUserMessage), "deny").after = 40
			},
		},
		{
			Name: "decision_without_step", About: "a decision and an error response about steps nobody sent",
			Anomalies: codes{"decision_without_step": 2},
			happen: func(s *session) {
				s.decide(s.last(acs.MethodUserMessage), "allow").result.set("request_id", s.uuid())
				e := s.last(acs.MethodAgentResponse)
				e.answers = append(e.answers, &answer{after: 2, id: "nobody's", err: obj("code", -32700, "message", "parse error")})
			},
		},
		{
			Name: "chain_gap", About: "a chain head that no decision published", Anomalies: codes{"chain_gap": 1},
			setup:  func(s *session) { s.chained = true },
			happen: func(s *session) { s.beforeEnd(func() { s.note().chain = strings.Repeat("0123456789abcdef", 4) }) },
		},
	}
}
