"""One run worked out by hand from docs/rules.md: writes run.txt's DAG and turn summary.

It shares nothing with the Go code: ids, order, edges and members are written
down here, and only JSON text and SHA-256 come from the library. All text is
ASCII and all numbers are small, so json.dumps with sorted keys is RFC 8785.
"""
import hashlib
import json
import pathlib

here = pathlib.Path(__file__).parent


def sha(text):
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def at(ms):
    return "1970-01-01T00:00:%02d.%03dZ" % divmod(ms, 1000)


def node(n, kind, ms, line, step_id, hook, actor="agent:a", **attributes):
    """A step's node. Test lines hash `request <id>/<hook>` and `content <id>/<hook>`."""
    out = {
        "id": f"{kind}:{n}",
        "kind": kind,
        "timestamp": at(ms),
        "contentHash": "sha256:" + sha(f"content {step_id}/{hook}"),
        "contentRef": f"blob://kafka/h/0/{line}",
        "actor": actor,
        "attributes": {
            "step_id": step_id,
            "method": "steps/" + hook,
            "request_hash": sha(f"request {step_id}/{hook}"),
            **attributes,
        },
    }
    return out


nodes = [
    node(1, "event", 1000, 3, "s1", "sessionStart"),
    node(2, "event", 2000, 4, "t1", "turnStart", turn_id="t"),
    node(3, "input", 3000, 5, "u1", "userMessage", actor="user:ann", turn_id="t",
         origins=["user_input"], provenance_ids=["p1"], lineage_depth=0),
    {
        "id": "policy-decision:4", "kind": "policy-decision", "timestamp": at(3100),
        "contentHash": "sha256:" + sha("request u1/allow"), "contentRef": "blob://kafka/h/0/6",
        "policyDecisionId": "u1",
        "attributes": {"step_id": "u1", "decision": "allow", "reason_codes": ["a", "b"], "evaluator": "deterministic"},
    },
    node(5, "tool-call", 4000, 7, "c1", "toolCallRequest", actor="tool:search", turn_id="t", tool="search",
         capability="net.read", origins=["agent_generated"], provenance_ids=["p2"], lineage_depth=1),
    node(6, "tool-result", 5000, 8, "r1", "toolCallResult", actor="tool:search", turn_id="t", tool="search",
         exit_status="success", origins=["tool_output"], provenance_ids=["p3"], source_ids=["web"], lineage_depth=2),
    {**node(7, "model-output", 6000, 9, "m1", "agentResponse", turn_id="t", origins=["agent_generated"],
            provenance_ids=["p4"], source_ids=["gpt-9"], lineage_depth=3), "modelVersion": "gpt-9"},
    node(8, "event", 7000, 10, "t2", "turnEnd", turn_id="t", outcome="completed"),
    node(9, "event", 8000, 11, "s2", "sessionEnd"),
]

names = {n["id"].split(":")[1]: n["id"] for n in nodes}
edges = [
    {"from": names[f], "to": names[t], "kind": kind}
    for f, t, kind in [
        ("2", "1", "caused-by"),        # rule 3: a turn without an enclosing one, to the sessionStart
        ("3", "2", "caused-by"),        # rule 3
        ("3", "4", "checked-against"),  # rule 6
        ("5", "2", "invoked"),          # rule 3, of a tool-call
        ("5", "3", "influenced-by"),    # rule 1: p2 < p1
        ("6", "2", "caused-by"),        # rule 3
        ("6", "5", "influenced-by"),    # rule 1: p3 < p2
        ("6", "5", "produced"),         # rule 2
        ("7", "2", "caused-by"),        # rule 3
        ("7", "3", "influenced-by"),    # rule 1: p4 < p1
        ("7", "6", "influenced-by"),    # rule 1: p4 < p3
        ("8", "2", "caused-by"),        # rule 3: a turnEnd, to its turnStart
        ("9", "1", "caused-by"),        # rule 3: no turn
    ]
]

dag = {
    "id": "r." + sha(canonical([nodes, edges]))[:32],
    "runId": "r",
    "tenantId": "default",
    "version": "1.0.0",
    "createdAt": at(19000),
    "nodes": nodes,
    "edges": edges,
}

turn = {
    "tenant_id": "default", "session_id": "r", "agent_id": "a", "turn_id": "t", "revision": 1,
    "triggered_by": "user_message", "outcome": "completed", "closed_by": "complete",
    "started_at": at(2000), "ended_at": at(7000),
    "declared_step_count": 4, "step_count": 4, "declared_tool_call_count": 1, "tool_call_count": 1, "missing_steps": 0,
    "decisions": {"allow": 1, "deny": 0, "modify": 0, "ask": 0, "defer": 0},
    "provenance_summary": {
        "origins_seen": ["user_input", "tool_output", "agent_generated"],
        "entry_count": 4,
        "entry_count_by_origin": {"user_input": 1, "tool_output": 1, "agent_generated": 2},
        "earliest_step_id_by_origin": {"user_input": "u1", "tool_output": "r1", "agent_generated": "c1"},
        "max_lineage_depth": 3,
    },
    "anomaly_counts": {}, "anomalies": [],
}

(here / "dag.json").write_text(canonical(dag) + "\n")
(here / "turn.json").write_text(canonical(turn) + "\n")
