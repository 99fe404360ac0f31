package codec

import (
	"crypto/sha256"
	"encoding/json"
	"strings"

	"provstream/internal/acs"
)

// element judges one envelope: a record, or an element of a batch. raw is its
// bytes, canonical its canonical form.
func (r *Reader) element(raw, canonical []byte, index int) *DeadLetter {
	if r.tryFast(canonical, index) {
		return nil
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

// plain is the way that the fast one is measured by: a tree of values,
// jsonschema/v5, and a step made from the tree.
func (r *Reader) plain(raw, canonical []byte, index int) *DeadLetter {
	var tree any
	// Numbers become float64, which is how they are judged (and v5 must never
	// see a json.Number: 1e-30000000 makes it panic).
	if err := json.Unmarshal(canonical, &tree); err != nil {
		return r.reject(raw, index, &DeadLetter{Kind: KindNotStrict, Message: "no strict JSON"})
	}
	var dead *DeadLetter
	if r.decisions() {
		dead = r.plainDecision(tree, canonical, index)
	} else {
		dead = r.plainRequest(tree, canonical, index)
	}
	if dead != nil {
		return r.reject(raw, index, dead)
	}
	return nil
}

// foreignVersion tells whether v is a version, and of another major than 0.
func foreignVersion(v any) bool {
	s, _ := v.(string)
	major, rest, _ := strings.Cut(s, ".")
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

func (r *Reader) plainRequest(tree any, canonical []byte, index int) *DeadLetter {
	if foreignVersion(at(tree, "params", "acs_version")) {
		return &DeadLetter{Kind: KindVersion, Pointer: "/params/acs_version", Message: versionMessage}
	}
	if dead := validate(r.schemas.Request, tree, KindEnvelope, ""); dead != nil {
		return dead
	}
	method := text(tree, "method")
	params, payload := at(tree, "params"), at(tree, "params", "payload")
	if sch := r.schemas.Payload(method); sch != nil {
		if dead := validate(sch, payload, KindPayload, payloadPointer); dead != nil {
			return dead
		}
	}
	if method == acs.MethodSystemPing {
		r.result.Dropped++
		return nil
	}
	if r.cfg.UnknownHooksReject && acs.HookOf(method) == acs.HookUnknown && strings.HasPrefix(method, "steps/") {
		return unknownMethod()
	}
	tenant, ok := r.tenantOf(text(params, "tenant_id"))
	if !ok {
		dead := routeFault(KindTenantMismatch)
		dead.Pointer = "/params/tenant_id"
		return dead
	}
	if sch := r.schemas.Strict(method); sch != nil && r.cfg.ProvenanceRequired {
		if dead := validate(sch, payload, KindProvenance, payloadPointer); dead != nil {
			return dead
		}
	}
	s := &r.step
	s.Reset()
	s.Tenant = tenant
	requestStep(s, tree, canonical)
	r.finish(s, index)
	return nil
}

func unknownMethod() *DeadLetter {
	return &DeadLetter{Kind: KindUnknownMethod, Pointer: "/method", Message: "the method is outside the inventory of ACS"}
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

func (r *Reader) plainDecision(tree any, canonical []byte, index int) *DeadLetter {
	if foreignVersion(at(tree, "result", "acs_version")) {
		return &DeadLetter{Kind: KindVersion, Pointer: "/result/acs_version", Message: versionMessage}
	}
	if dead := validate(r.schemas.Response, tree, KindEnvelope, ""); dead != nil {
		return dead
	}
	if at(tree, "result", "negotiated_version") != nil ||
		text(tree, "result", "decision") == "allow" && text(tree, "result", "payload", "status") != "" {
		r.result.Dropped++
		return nil
	}
	tenant, session, kind := r.decisionRoute()
	if kind != "" {
		return routeFault(kind)
	}
	s := &r.step
	s.Reset()
	s.Type, s.Tenant, s.Session = acs.TypeDecision, tenant, string(session)
	decisionStep(s, tree, canonical)
	r.finish(s, index)
	return nil
}
