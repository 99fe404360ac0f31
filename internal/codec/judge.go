package codec

import (
	"crypto/sha256"
	"encoding/json"
	"strings"

	"provstream/internal/acs"
)

// element judges one envelope: a record, or an element of a batch. raw is its
// bytes, canonical its canonical form.
func (r *Reader) element(raw, canonical []byte, index int) DeadLetter {
	if r.tryFast(canonical, index) {
		return DeadLetter{}
	}
	r.result.Slow++
	return r.plain(raw, canonical, index)
}

// rawHash is raw_hash of a step: of the record value, or of a batch the
// element's own bytes.
func (r *Reader) rawHash(raw []byte, index int) [32]byte {
	if index < 0 {
		return r.result.RawHash
	}
	return sha256.Sum256(raw)
}

// plain is the way that the fast one is measured by: each check in its order,
// schemas by jsonschema/v5, and a step made from a tree of values.
func (r *Reader) plain(raw, canonical []byte, index int) DeadLetter {
	var dead DeadLetter
	if r.decisions() {
		dead = r.plainDecision(canonical, index)
	} else {
		dead = r.plainRequest(canonical, index)
	}
	if dead.Kind != "" {
		return r.reject(raw, index, dead)
	}
	return dead
}

// tree returns a canonical text as a tree of values. Numbers become float64,
// which is how they are judged (v5 must never see a json.Number: 1e-30000000
// makes it panic).
func tree(canonical []byte) any {
	var v any
	_ = json.Unmarshal(canonical, &v) // canonical text is JSON
	return v
}

// textAt returns the string below the canonical object along names, "" where
// there is none.
func textAt(canonical []byte, names ...string) string {
	i := 0
	for _, name := range names {
		i = looseMember(canonical, i, name)
	}
	s, _ := looseText(canonical, i)
	return s
}

// foreignVersion tells whether v is a version, and of another major than 0.
func foreignVersion(v string) bool {
	major, rest, _ := strings.Cut(v, ".")
	minor, patch, _ := strings.Cut(rest, ".")
	return isDigits(major) && isDigits(minor) && isDigits(patch) && strings.Trim(major, "0") != ""
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

const versionMessage = "acs_version has another major version than 0"

func (r *Reader) plainRequest(canonical []byte, index int) DeadLetter {
	if foreignVersion(textAt(canonical, "params", "acs_version")) {
		return DeadLetter{Kind: KindVersion, Pointer: "/params/acs_version", Message: versionMessage}
	}
	if dead := r.validate(r.schemas.Request, canonical, KindEnvelope, ""); dead.Kind != "" {
		return dead
	}
	method := textAt(canonical, "method")
	payload := part(canonical, "params", "payload")
	if sch := r.schemas.Payload(method); sch != nil {
		if dead := r.validate(sch, payload, KindPayload, payloadPointer); dead.Kind != "" {
			return dead
		}
	}
	if method == acs.MethodSystemPing {
		r.result.Dropped++
		return DeadLetter{}
	}
	if r.cfg.UnknownHooksReject && acs.HookOf(method) == acs.HookUnknown && strings.HasPrefix(method, "steps/") {
		return unknownMethod()
	}
	tenant, ok := r.tenantOf(acs.Clamp(textAt(canonical, "params", "tenant_id")))
	if !ok {
		dead := routeFault(KindTenantMismatch)
		dead.Pointer = "/params/tenant_id"
		return dead
	}
	if sch := r.schemas.Strict(method); sch != nil && r.cfg.ProvenanceRequired {
		if dead := r.validate(sch, payload, KindProvenance, payloadPointer); dead.Kind != "" {
			return dead
		}
	}
	s := &r.step
	s.Reset()
	s.Tenant = tenant
	requestStep(s, tree(canonical), canonical)
	r.finish(s, index)
	return DeadLetter{}
}

func unknownMethod() DeadLetter {
	return DeadLetter{Kind: KindUnknownMethod, Pointer: "/method", Message: "the method is outside the inventory of ACS"}
}

const payloadPointer = "/params/payload"

// finish sets what a step owes to its record, and emits it.
func (r *Reader) finish(s *acs.Step, index int) {
	s.RecordedAt = r.recorded
	s.Coordinates = r.coordinates(index)
	if s.Type == acs.TypeDecision {
		s.EventTime = r.recorded
	} else {
		s.Skewed = r.skewed(s.EventTime)
	}
	r.write(s)
}

// skewed tells whether an event time lies too far from recorded_at.
func (r *Reader) skewed(event int64) bool {
	apart := event - r.recorded
	return max(apart, -apart) > r.cfg.MaxClockSkew.Milliseconds()
}

func (r *Reader) plainDecision(canonical []byte, index int) DeadLetter {
	if foreignVersion(textAt(canonical, "result", "acs_version")) {
		return DeadLetter{Kind: KindVersion, Pointer: "/result/acs_version", Message: versionMessage}
	}
	if dead := r.validate(r.schemas.Response, canonical, KindEnvelope, ""); dead.Kind != "" {
		return dead
	}
	if part(canonical, "result", "negotiated_version") != nil ||
		textAt(canonical, "result", "decision") == "allow" && textAt(canonical, "result", "payload", "status") != "" {
		r.result.Dropped++
		return DeadLetter{}
	}
	tenant, session, kind := r.decisionRoute()
	if kind != "" {
		return routeFault(kind)
	}
	s := &r.step
	s.Reset()
	s.Type, s.Tenant, s.Session = acs.TypeDecision, tenant, string(session)
	decisionStep(s, tree(canonical), canonical)
	r.finish(s, index)
	return DeadLetter{}
}
