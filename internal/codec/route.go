package codec

import (
	"unicode/utf8"

	"provstream/internal/acs"
)

// tenantOf returns the tenant of a hook envelope. named is params.tenant_id,
// clamped, "" where it is absent. ok is false where the topic belongs to
// another tenant.
func (r *Reader) tenantOf(named string) (tenant string, ok bool) {
	mapped, isMapped := r.cfg.TenantTopics[r.rec.Topic]
	switch {
	case isMapped && named != "" && named != mapped:
		return "", false
	case named != "":
		return named, true
	case isMapped:
		return mapped, true
	}
	return r.cfg.DefaultTenant, true
}

// decisionRoute returns the tenant and the session of the decisions of the
// record, from its headers and its key. kind is the dead-letter kind where
// that fails: an answer has neither tenant nor session in itself.
func (r *Reader) decisionRoute() (tenant string, session []byte, kind string) {
	named := r.lastHeader(HeaderTenant)
	if !utf8.Valid(named) {
		return "", nil, KindUnroutable
	}
	_, isMapped := r.cfg.TenantTopics[r.rec.Topic]
	tenant, ok := r.tenantOf(acs.Clamp(string(named)))
	if !ok {
		return "", nil, KindTenantMismatch
	}
	if len(named) == 0 && !isMapped && len(r.cfg.TenantTopics) > 0 {
		return "", nil, KindUnroutable
	}
	id := r.lastHeader(HeaderSession)
	if len(id) == 0 {
		id = r.rec.Key
	}
	if !isUUID(id) {
		return "", nil, KindUnroutable
	}
	return tenant, id, ""
}

// lastHeader returns the value of the last header key, nil where there is none.
func (r *Reader) lastHeader(key string) []byte {
	for i := len(r.rec.Headers) - 1; i >= 0; i-- {
		if r.rec.Headers[i].Key == key {
			return r.rec.Headers[i].Value
		}
	}
	return nil
}

// isUUID is the format uuid of jsonschema/v5: hexadecimal digits of either
// case in groups of 8-4-4-4-12.
func isUUID[T string | []byte](s T) bool {
	if len(s) != 36 {
		return false
	}
	bad := s[8] ^ '-' | s[13] ^ '-' | s[18] ^ '-' | s[23] ^ '-'
	for i := range 8 {
		bad |= notHex[s[i]]
	}
	for i := range 4 {
		bad |= notHex[s[9+i]] | notHex[s[14+i]] | notHex[s[19+i]]
	}
	for i := range 12 {
		bad |= notHex[s[24+i]]
	}
	return bad == 0
}

// notHex is not 0 for what is no hexadecimal digit.
var notHex = func() (t [256]byte) {
	for c := range t {
		if !isHex(byte(c)) {
			t[c] = 1
		}
	}
	return t
}()

func routeFault(kind string) DeadLetter {
	dead := DeadLetter{Kind: kind}
	if kind == KindTenantMismatch {
		dead.Message = "the topic belongs to another tenant"
	} else {
		dead.Message = "no header or key tells whose decision it is"
	}
	return dead
}

// reject returns dead, and emits the rejected step that the element leaves
// where it still tells whose it is: its session and its request can be read as
// UUIDs, and its tenant is absent or a string that the topic may carry. raw is
// JSON, perhaps not strict; read means the first occurrence of each member.
func (r *Reader) reject(raw []byte, index int, dead DeadLetter) DeadLetter {
	switch dead.Kind {
	case KindNotStrict, KindVersion, KindEnvelope, KindPayload, KindProvenance, KindUnknownMethod:
	default:
		return dead
	}
	s := &r.step
	s.Reset()
	root := space(raw, 0)
	var id int
	if r.decisions() {
		id = looseMember(raw, looseMember(raw, root, "result"), "request_id")
		tenant, session, kind := r.decisionRoute()
		if kind != "" || id < 0 {
			return dead
		}
		s.Type, s.Tenant, s.Session = acs.TypeDecision, tenant, string(session)
	} else {
		params := looseMember(raw, root, "params")
		metadata := looseMember(raw, params, "metadata")
		session, _ := looseText(raw, looseMember(raw, metadata, "session_id"))
		named := ""
		if at := looseMember(raw, params, "tenant_id"); at >= 0 {
			var ok bool
			if named, ok = looseText(raw, at); !ok {
				return dead
			}
		}
		tenant, ok := r.tenantOf(acs.Clamp(named))
		if !ok || !isUUID(session) {
			return dead
		}
		s.Tenant, s.Session = tenant, session
		s.Method = looseName(raw, root, "method")
		s.AgentID = looseName(raw, metadata, "agent_id")
		s.TurnID = looseName(raw, metadata, "turn_id")
		id = looseMember(raw, params, "request_id")
	}
	if s.StepID, _ = looseText(raw, id); !isUUID(s.StepID) {
		return dead
	}
	s.Rejected = dead.Kind
	s.RecordedAt, s.EventTime = r.recorded, r.recorded
	s.Coordinates = r.coordinates(index)
	s.RequestHash = r.rawHash(raw, index)
	s.ContentHash = s.RequestHash
	r.write(s)
	return dead
}

// looseName reads a string of the object at i, clamped, "" where it cannot be
// read.
func looseName(raw []byte, i int, name string) string {
	s, ok := looseText(raw, looseMember(raw, i, name))
	if !ok {
		return ""
	}
	return acs.Clamp(s)
}
