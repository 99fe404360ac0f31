// Package kindgitest makes unsigned DAGs for tests and benchmarks: the shape,
// the members and the sizes of what a fleet of tool-calling agents gives,
// without the code that makes real ones.
package kindgitest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"sort"
	"strings"
	"time"

	"provstream/internal/jcs"
)

// Options say which DAG to make. The zero Options give a small one.
type Options struct {
	Seed   uint64
	Tenant string // "acme-air" when empty
	Turns  int    // 8 turns with 2 tool calls give about 60 kB
	Tools  int    // tool calls a turn
	// Previous is the id of the DAG of the segment before, with its full hash:
	// the first node stands for it, and numbers go on from First.
	Previous, PreviousHash string
	First                  int
	Created                time.Time
}

type node struct {
	kind, attrs, actor, hash, policy string
	at                               time.Time
	offset                           int
	topic                            string
}

type edge struct {
	from, to int
	kind     string
}

type maker struct {
	o     Options
	r     *rand.Rand
	nodes []node
	edges []edge
	now   time.Time
	run   string
}

// DAG makes one.
func DAG(o Options) []byte {
	if o.Tenant == "" {
		o.Tenant = "acme-air"
	}
	if o.First == 0 {
		o.First = 1
	}
	if o.Created.IsZero() {
		o.Created = time.Date(2026, 11, 29, 21, 0, 0, 0, time.UTC)
	}
	m := &maker{o: o, r: rand.New(rand.NewPCG(o.Seed, 1)), now: o.Created.Add(-time.Hour)}
	m.run = m.uuid()
	if o.Previous != "" {
		m.run = o.Previous[:strings.LastIndexByte(o.Previous, '.')]
		m.add(node{kind: "artifact", hash: o.PreviousHash, attrs: `{"dag_id":` + quote(o.Previous) + `,"segment":0}`})
	}
	start := m.step("event", "steps/sessionStart", "", nil)
	last := -1
	for range o.Turns {
		last = m.turn(start, last)
	}
	if o.Turns > 0 {
		m.edge(m.step("event", "steps/sessionEnd", "", nil), start, "caused-by")
	}
	return m.text()
}

func (m *maker) turn(start, last int) int {
	turn := m.uuid()
	ts := m.step("event", "steps/turnStart", turn, nil)
	m.edge(ts, start, "caused-by")
	id := m.uuid()
	in := m.step("input", "steps/userMessage", turn, []string{id})
	m.edge(in, ts, "caused-by")
	cause := in
	for range m.o.Tools {
		call := m.step("tool-call", "steps/toolCallRequest", turn, []string{m.uuid()})
		m.edge(call, ts, "invoked")
		m.edge(call, cause, "influenced-by")
		d := m.decision(call)
		m.edge(call, d, "checked-against")
		res := m.step("tool-result", "steps/toolCallResult", turn, []string{m.uuid()})
		m.edge(res, call, "produced")
		m.edge(res, ts, "caused-by")
		d = m.decision(res)
		m.edge(res, d, "checked-against")
		cause = res
	}
	out := m.step("model-output", "steps/agentResponse", turn, []string{m.uuid()})
	m.edge(out, ts, "caused-by")
	m.edge(out, cause, "influenced-by")
	if cause != in {
		m.edge(out, in, "influenced-by")
	}
	if last >= 0 {
		m.edge(out, last, "retrieved-from")
	}
	end := m.step("event", "steps/turnEnd", turn, nil)
	m.edge(end, ts, "caused-by")
	return out
}

func (m *maker) edge(from, to int, kind string) { m.edges = append(m.edges, edge{from, to, kind}) }

func (m *maker) add(n node) int {
	m.now = m.now.Add(time.Duration(m.r.IntN(900)+1) * time.Millisecond)
	n.at, n.offset = m.now, m.r.IntN(1_000_000)
	m.nodes = append(m.nodes, n)
	return len(m.nodes) - 1
}

func (m *maker) step(kind, method, turn string, ids []string) int {
	topic := "acs.hooks." + strings.ToLower(strings.TrimPrefix(method, "steps/"))
	var members []string
	put := func(name, value string) { members = append(members, quote(name)+":"+value) }
	if kind == "tool-call" {
		put("capability", quote("lookup"))
	}
	put("method", quote(method))
	if ids != nil {
		put("lineage_depth", fmt.Sprint(m.r.IntN(40)))
		put("origins", `["tool_output"]`)
		var q []string
		for _, id := range ids {
			q = append(q, quote(id))
		}
		put("provenance_ids", "["+strings.Join(q, ",")+"]")
		put("source_ids", "["+quote(fmt.Sprintf("tool://get_reservation_%d/é", m.r.IntN(9)))+"]")
	}
	put("request_hash", quote(m.hex()))
	put("step_id", quote(m.uuid()))
	actor := "agent:airline-agent-0"
	if kind == "tool-call" || kind == "tool-result" {
		actor = "tool:get_reservation_details"
		put("tool", quote("get_reservation_details"))
	}
	if turn != "" {
		put("turn_id", quote(turn))
	}
	sort.Strings(members)
	return m.add(node{kind: kind, topic: topic, actor: actor, hash: m.hex(), attrs: "{" + strings.Join(members, ",") + "}"})
}

func (m *maker) decision(step int) int {
	_ = step
	id := m.uuid()
	return m.add(node{
		kind: "policy-decision", topic: "acs.decisions", hash: m.hex(), policy: id,
		attrs: `{"decision":"allow","evaluator":"guardian-1","reason_codes":["ok"],"step_id":` + quote(id) + `}`,
	})
}

func (m *maker) hex() string {
	var b [32]byte
	for i := range b {
		b[i] = byte(m.r.Uint32())
	}
	return hex.EncodeToString(b[:])
}

func (m *maker) uuid() string {
	h := m.hex()
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-8" + h[17:20] + "-" + h[20:32]
}

func (m *maker) id(i int) string { return fmt.Sprintf("%s:%d", m.nodes[i].kind, m.o.First+i) }

func (m *maker) text() []byte {
	sort.Slice(m.edges, func(a, b int) bool {
		x, y := m.edges[a], m.edges[b]
		if x.from != y.from {
			return x.from < y.from
		}
		if x.to != y.to {
			return x.to < y.to
		}
		return x.kind < y.kind
	})
	var edges, nodes []string
	for _, e := range m.edges {
		edges = append(edges, `{"from":`+quote(m.id(e.from))+`,"kind":`+quote(e.kind)+`,"to":`+quote(m.id(e.to))+`}`)
	}
	for i, n := range m.nodes {
		var b []string
		if n.actor != "" {
			b = append(b, `"actor":`+quote(n.actor))
		}
		b = append(b, `"attributes":`+n.attrs, `"contentHash":`+quote("sha256:"+n.hash))
		if n.topic != "" {
			b = append(b, `"contentRef":`+quote(fmt.Sprintf("blob://kafka/%s/%d/%d", n.topic, n.offset%4, n.offset)))
		}
		b = append(b, `"id":`+quote(m.id(i)), `"kind":`+quote(n.kind))
		if n.policy != "" {
			b = append(b, `"policyDecisionId":`+quote(n.policy))
		}
		b = append(b, `"timestamp":`+quote(n.at.Format("2006-01-02T15:04:05.000Z")))
		nodes = append(nodes, "{"+strings.Join(b, ",")+"}")
	}
	ns, es := "["+strings.Join(nodes, ",")+"]", "["+strings.Join(edges, ",")+"]"
	sum := sha256.Sum256([]byte("[" + ns + "," + es + "]"))
	id := m.run + "." + hex.EncodeToString(sum[:16])
	return []byte(`{"createdAt":` + quote(m.o.Created.Format("2006-01-02T15:04:05.000Z")) + `,"edges":` + es + `,"id":` + quote(id) +
		`,"nodes":` + ns + `,"runId":` + quote(m.run) + `,"tenantId":` + quote(m.o.Tenant) + `,"version":"1.0.0"}`)
}

func quote(s string) string { return string(jcs.AppendString(nil, s)) }
