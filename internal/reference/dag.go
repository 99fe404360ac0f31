package reference

import (
	"encoding/hex"
	"fmt"

	"provstream/internal/acs"
)

// dag is the provenance DAG of a segment.
type dag struct {
	number int // counting DAGs from 0
	id     string
	hash   string // SHA-256 of JCS([nodes, edges])
	value  []byte
	last   int64 // largest recorded_at of the segment's records
}

func nodeID(it *item) string {
	if it.segmentRef {
		return fmt.Sprintf("artifact:%d", it.node)
	}
	return fmt.Sprintf("%s:%d", nodeKind(it), it.node)
}

// build makes the DAG, nil when the segment has no node of its own.
func (a *analysis) build(tenant, session string, createdAt int64) *dag {
	nodes, edges := []any{}, []any{}
	for _, it := range a.nodeItems() {
		if it.segmentRef {
			nodes = append(nodes, a.segmentObject(it))
		} else {
			nodes = append(nodes, a.nodeObject(it))
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	for _, e := range a.edges {
		edges = append(edges, object{"from": nodeID(e.from), "to": nodeID(e.to), "kind": e.kind})
	}
	d := &dag{hash: sha(canonical([]any{nodes, edges}))}
	d.id = session + "." + d.hash[:32]
	if a.past.dag != nil {
		d.number = a.past.dag.number + 1
	}
	d.value = canonical(object{
		"id": d.id, "runId": session, "tenantId": tenant, "version": "1.0.0",
		"createdAt": stamp(createdAt), "nodes": nodes, "edges": edges,
	})
	for i, it := range a.items {
		if i == 0 || it.RecordedAt > d.last {
			d.last = it.RecordedAt
		}
	}
	return d
}

func (a *analysis) segmentObject(it *item) object {
	last := a.past.dag
	return object{
		"id": nodeID(it), "kind": "artifact", "timestamp": stamp(last.last), "contentHash": "sha256:" + last.hash,
		"attributes": object{"segment": last.number, "dag_id": last.id},
	}
}

func (a *analysis) nodeObject(it *item) object {
	kind := nodeKind(it)
	n := object{"id": nodeID(it), "kind": kind, "timestamp": stamp(it.EventTime)}
	if it.decision {
		n["timestamp"] = stamp(it.RecordedAt)
	}
	n["contentHash"] = "sha256:" + hex.EncodeToString(it.ContentHash[:])
	c := it.Coordinates
	ref := fmt.Sprintf("blob://kafka/%s/%d/%d", c.Topic, c.Partition, c.Offset)
	if c.Index >= 0 {
		ref += fmt.Sprintf("/%d", c.Index)
	}
	n["contentRef"] = ref
	if actor := actorOf(it, kind); actor != "" {
		n["actor"] = actor
	}
	if kind == "model-output" {
		for _, o := range it.objects() {
			if o.Origin == "agent_generated" {
				set(n, "modelVersion", o.SourceID)
				break
			}
		}
	}
	if it.decision {
		n["policyDecisionId"] = it.request
		if it.nth > 1 {
			n["policyDecisionId"] = fmt.Sprintf("%s#%d", it.request, it.nth)
		}
	}
	if attributes := attributesOf(it); len(attributes) > 0 {
		n["attributes"] = attributes
	}
	return n
}

func actorOf(it *item, kind string) string {
	switch {
	case it.decision:
		return ""
	case (kind == "tool-call" || kind == "tool-result") && it.Tool != "":
		return "tool:" + it.Tool
	case kind == "input":
		if it.UserID == "" {
			return ""
		}
		return "user:" + it.UserID
	case it.AgentID == "":
		return ""
	}
	return "agent:" + it.AgentID
}

func set(o object, name, value string) {
	if value != "" {
		o[name] = value
	}
}

func setList(o object, name string, values []string) {
	if s := sortedSet(values); len(s) > 0 {
		o[name] = s
	}
}

func attributesOf(it *item) object {
	o := object{}
	set(o, "step_id", it.stepID())
	set(o, "rejected", it.Rejected)
	var codes []string
	for _, f := range it.facts {
		codes = append(codes, f.Code)
	}
	setList(o, "anomalies", codes)
	provenanceAttributes(o, it)
	if it.decision {
		if it.ErrorResponse {
			if it.ErrorCode.Set {
				o["error_code"] = it.ErrorCode.Value
			}
		} else {
			set(o, "decision", it.Decision)
		}
		setList(o, "reason_codes", it.ReasonCodes)
		setList(o, "cited", it.Cited)
		set(o, "evaluator", it.Evaluator)
		return o
	}
	set(o, "method", it.Method)
	set(o, "turn_id", it.turn())
	o["request_hash"] = hex.EncodeToString(it.RequestHash[:])
	set(o, "tool", it.Tool)
	set(o, "capability", it.Capability)
	set(o, "exit_status", it.ExitStatus)
	set(o, "outcome", it.Outcome)
	set(o, "subagent_session_id", it.SubagentSessionID)
	set(o, "skill_id", it.SkillID)
	set(o, "signature_key_id", it.SignatureKeyID)
	if it.Skewed {
		o["recorded_at"] = stamp(it.RecordedAt)
	}
	if it.inferredLine {
		o["lineage"] = "inferred"
	}
	if it.inferredCall {
		o["call"] = "inferred"
	}
	return o
}

func provenanceAttributes(o object, it *item) {
	origins := map[string]bool{}
	var sources, child []string
	for _, p := range it.objects() {
		origins[p.Origin] = true
		if p.SourceID != "" {
			sources = append(sources, p.SourceID)
		}
		child = append(child, p.DerivedFrom...)
	}
	if it.hook == acs.HookSubagentStop && !it.decision {
		setList(o, "child_derived_from", child)
	}
	if list := enumOrder(origins); len(list) > 0 {
		o["origins"] = list
	}
	setList(o, "provenance_ids", it.ids())
	setList(o, "source_ids", sources)
	setList(o, "unresolved", it.unresolved)
	if it.depth >= 0 {
		o["lineage_depth"] = it.depth
	}
}

// enumOrder lists the known origins of a set in the order of the ACS enum.
func enumOrder(origins map[string]bool) []string {
	out := []string{}
	for o := acs.OriginUserInput; o < acs.OriginCount; o++ {
		if origins[o.String()] {
			out = append(out, o.String())
		}
	}
	return out
}
