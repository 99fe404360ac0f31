package segment

import "provstream/internal/acs"

// Weight is what one distinct record adds to its run's weight: 800 + the sum
// of 100 + length over each string that its node and its edges can show
// (rules.md §4). Length is that of the JCS text, quotes included. A segment's
// DAG is then smaller than its weight.
func Weight(s *acs.Step) int64 {
	w := int64(800)
	add := func(text string) {
		if text != "" {
			w += 100 + jcsLen(text)
		}
	}
	item := func(text string) { w += 100 + jcsLen(text) }
	add(s.Method)
	add(s.EffectiveTurnID())
	add(s.AgentID)
	add(s.UserID)
	add(s.Tool)
	add(s.Tool)
	add(s.Capability)
	add(s.SkillID)
	add(s.SubagentSessionID)
	add(s.SignatureKeyID)
	for i := range s.Provenance {
		p := &s.Provenance[i]
		item(p.ID)
		add(p.SourceID)
		for _, q := range p.DerivedFrom {
			item(q)
		}
	}
	for _, list := range [...][]string{s.EntriesToCompact, s.EntriesCompacted, s.Cited, s.ReasonCodes} {
		for _, q := range list {
			item(q)
		}
	}
	return w
}

// jcsLen is the length of the JCS text of s (RFC 8785 §3.2.2.2).
func jcsLen(s string) int64 {
	n := int64(len(s)) + 2
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\' || c == '\b' || c == '\t' || c == '\n' || c == '\f' || c == '\r':
			n++
		case c < 0x20:
			n += 5
		}
	}
	return n
}
