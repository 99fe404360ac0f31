package codec

import (
	"encoding/hex"
	"strconv"

	"provstream/internal/acs"
	"provstream/internal/jcs"
)

// AppendStep appends the value of the prov.steps record that holds s: the JCS
// of one flat object, its members named as those of [acs.Step] in snake case,
// absent ones left out. Step.ID and Step.InnerID, which are JCS texts, stand as
// the JSON values that they are; maps by origin stand as JSON objects, so their
// entries must be in JCS order, each once.
func AppendStep(dst []byte, s *acs.Step) []byte {
	e := encoder{dst: append(dst, '{')}
	e.str(`"agent_id":`, s.AgentID)
	e.str(`"agent_name":`, s.AgentName)
	e.flag(`"answer":true`, s.Answer)
	e.str(`"capability":`, s.Capability)
	e.str(`"chain_hash":`, s.ChainHash)
	e.list(`"cited":`, s.Cited)
	e.hash(`"content_hash":"`, &s.ContentHash)
	e.str(`"decision":`, s.Decision)
	e.str(`"decision_chain_hash":`, s.DecisionChainHash)
	if s.DeclaredSummary != nil {
		e.name(`"declared_summary":`)
		e.dst = appendDeclaredSummary(e.dst, s.DeclaredSummary)
	}
	e.str(`"digest_algorithm":`, s.DigestAlgorithm)
	e.str(`"digest_value":`, s.DigestValue)
	e.list(`"entries_compacted":`, s.EntriesCompacted)
	e.list(`"entries_to_compact":`, s.EntriesToCompact)
	e.str(`"environment":`, s.Environment)
	e.number(`"error_code":`, s.ErrorCode)
	e.flag(`"error_response":true`, s.ErrorResponse)
	e.str(`"evaluator":`, s.Evaluator)
	e.integer(`"event_time":`, s.EventTime)
	e.str(`"exit_status":`, s.ExitStatus)
	e.flag(`"has_summary":true`, s.HasSummary)
	e.raw(`"id":`, s.ID)
	if s.Coordinates.Index >= 0 {
		e.integer(`"index":`, int64(s.Coordinates.Index))
	}
	e.raw(`"inner_id":`, s.InnerID)
	e.number(`"lineage_depth_after":`, s.LineageDepthAfter)
	e.str(`"method":`, s.Method)
	e.integer(`"offset":`, s.Coordinates.Offset)
	e.str(`"outcome":`, s.Outcome)
	e.str(`"parent_step_id":`, s.ParentStepID)
	e.str(`"parent_turn_id":`, s.ParentTurnID)
	e.integer(`"partition":`, int64(s.Coordinates.Partition))
	e.str(`"payload_parent_turn_id":`, s.PayloadParentTurnID)
	e.str(`"payload_turn_id":`, s.PayloadTurnID)
	e.str(`"platform":`, s.Platform)
	e.str(`"platform_version":`, s.PlatformVersion)
	e.str(`"pre_compact_chain_hash":`, s.PreCompactChainHash)
	if len(s.Provenance) > 0 {
		e.name(`"provenance":`)
		e.dst = appendProvenance(e.dst, s.Provenance)
	}
	if s.ProvenanceMissing > 0 {
		e.integer(`"provenance_missing":`, int64(s.ProvenanceMissing))
	}
	e.str(`"provenance_producer":`, s.ProvenanceProducer)
	e.list(`"reason_codes":`, s.ReasonCodes)
	e.integer(`"recorded_at":`, s.RecordedAt)
	e.str(`"rejected":`, s.Rejected)
	e.hash(`"request_hash":"`, &s.RequestHash)
	e.str(`"request_id_ref":`, s.RequestIDRef)
	e.str(`"session":`, s.Session)
	e.str(`"signature_algorithm":`, s.SignatureAlgorithm)
	e.str(`"signature_key_id":`, s.SignatureKeyID)
	e.flag(`"skewed":true`, s.Skewed)
	e.str(`"skill_id":`, s.SkillID)
	e.number(`"step_count":`, s.StepCount)
	e.str(`"step_id":`, s.StepID)
	e.str(`"subagent_session_id":`, s.SubagentSessionID)
	e.str(`"tenant":`, s.Tenant)
	e.str(`"tool":`, s.Tool)
	e.number(`"tool_call_count":`, s.ToolCallCount)
	e.str(`"topic":`, s.Coordinates.Topic)
	e.str(`"trigger_step_id":`, s.TriggerStepID)
	e.str(`"triggered_by":`, s.TriggeredBy)
	e.str(`"turn_id":`, s.TurnID)
	if s.Type == acs.TypeDecision {
		e.name(`"type":"decision"`)
	} else {
		e.name(`"type":"step"`)
	}
	e.str(`"user_id":`, s.UserID)
	return append(e.dst, '}')
}

// AppendTick appends the value of a tick record, {"tick":T}: T milliseconds
// since the Unix epoch, up to which every hook record stands in the log.
func AppendTick(dst []byte, t int64) []byte {
	dst = append(dst, `{"tick":`...)
	dst = strconv.AppendInt(dst, t, 10)
	return append(dst, '}')
}

// encoder writes the members of one object.
type encoder struct {
	dst []byte
}

// name begins a member. It is only called while the object is the innermost.
func (e *encoder) name(text string) {
	if e.dst[len(e.dst)-1] != '{' {
		e.dst = append(e.dst, ',')
	}
	e.dst = append(e.dst, text...)
}

func (e *encoder) str(name, s string) {
	if s != "" {
		e.name(name)
		e.dst = jcs.AppendString(e.dst, s)
	}
}

func (e *encoder) raw(name, text string) {
	if text != "" {
		e.name(name)
		e.dst = append(e.dst, text...)
	}
}

func (e *encoder) flag(member string, set bool) {
	if set {
		e.name(member)
	}
}

func (e *encoder) integer(name string, n int64) {
	e.name(name)
	e.dst = strconv.AppendInt(e.dst, n, 10)
}

func (e *encoder) number(name string, n acs.Number) {
	if n.Set {
		e.name(name)
		e.dst = jcs.AppendNumber(e.dst, n.Value)
	}
}

func (e *encoder) hash(name string, h *acs.Hash) {
	e.name(name)
	e.dst = hex.AppendEncode(e.dst, h[:])
	e.dst = append(e.dst, '"')
}

func (e *encoder) list(name string, list []string) {
	if len(list) > 0 {
		e.name(name)
		e.dst = appendList(e.dst, list)
	}
}

func appendList(dst []byte, list []string) []byte {
	dst = append(dst, '[')
	for i, s := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jcs.AppendString(dst, s)
	}
	return append(dst, ']')
}

func appendProvenance(dst []byte, list []acs.Provenance) []byte {
	dst = append(dst, '[')
	for i := range list {
		p := &list[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		e := encoder{dst: append(dst, '{')}
		e.list(`"derived_from":`, p.DerivedFrom)
		e.str(`"origin":`, p.Origin)
		e.name(`"provenance_id":`)
		e.dst = jcs.AppendString(e.dst, p.ID)
		e.str(`"source_id":`, p.SourceID)
		dst = append(e.dst, '}')
	}
	return append(dst, ']')
}

func appendDeclaredSummary(dst []byte, d *acs.DeclaredSummary) []byte {
	e := encoder{dst: append(dst, '{')}
	if d.HasEarliestStepIDByOrigin {
		e.name(`"earliest_step_id_by_origin":{`)
		for _, v := range d.EarliestStepIDByOrigin {
			e.name("")
			e.dst = append(jcs.AppendString(e.dst, v.Origin), ':')
			e.dst = jcs.AppendString(e.dst, v.StepID)
		}
		e.dst = append(e.dst, '}')
	}
	if d.HasEntryCount {
		e.number(`"entry_count":`, acs.Number{Set: true, Value: d.EntryCount})
	}
	if d.HasEntryCountByOrigin {
		e.name(`"entry_count_by_origin":{`)
		for _, v := range d.EntryCountByOrigin {
			e.name("")
			e.dst = append(jcs.AppendString(e.dst, v.Origin), ':')
			e.dst = jcs.AppendNumber(e.dst, v.Count)
		}
		e.dst = append(e.dst, '}')
	}
	if d.HasMaxLineageDepth {
		e.number(`"max_lineage_depth":`, acs.Number{Set: true, Value: d.MaxLineageDepth})
	}
	if d.HasOriginsSeen {
		e.name(`"origins_seen":`)
		e.dst = appendList(e.dst, d.OriginsSeen)
	}
	return append(e.dst, '}')
}
