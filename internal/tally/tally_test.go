package tally

import (
	"maps"
	"testing"

	"provstream/internal/evidence"
	"provstream/internal/keys"
	"provstream/internal/kindgi/kindgitest"
	"provstream/internal/topics"
	"provstream/verify"
)

func ring(t *testing.T) *keys.Ring {
	t.Helper()
	log, err := keys.Generate(verify.UseLog, "")
	if err != nil {
		t.Fatal(err)
	}
	dag, err := keys.Generate(verify.UseDAG, "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := keys.NewRing(log, dag)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func header(name, value string) func(string) []byte {
	return func(n string) []byte {
		if n == name {
			return []byte(value)
		}
		return nil
	}
}

func TestTallyCountsTheLastWord(t *testing.T) {
	r := ring(t)
	log, err := evidence.NewLog("provstream/prov.dags/0")
	if err != nil {
		t.Fatal(err)
	}
	values := [][]byte{kindgitest.DAG(kindgitest.Options{Seed: 1, Turns: 2, Tools: 1}), kindgitest.DAG(kindgitest.Options{Seed: 2, Turns: 1, Tools: 1})}
	batch, err := log.SignDAGs(r, values, 1764000000000)
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := r.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	tl := New(pinned)
	add := func(base, key, value string, h func(string) []byte) {
		t.Helper()
		if err := tl.Add(base, []byte(key), []byte(value), h); err != nil {
			t.Fatal(err)
		}
	}
	none := header("", "")
	add(topics.DAGs, "a", string(batch.Records[0].Value), header("tlog-proof", string(batch.Records[0].Proof)))
	add(topics.DAGs, "b", string(batch.Records[1].Value), header("tlog-proof", string(batch.Records[0].Proof))) // another's proof
	add(topics.DeadLetter, "a", "x", header("provstream.error.kind", "payload"))
	add(topics.DeadLetter, "a", "x", header("provstream.error.kind", "payload"))
	add(topics.Turns, "a", `{"turn_id":"t","closed_by":"grace"}`, none)
	add(topics.Turns, "a", `{"turn_id":"t","closed_by":"complete"}`, none)
	add(topics.Turns, "b", `{"turn_id":"t","closed_by":"session"}`, none)
	add(topics.Sessions, "a", `{"tenant_id":"acme","compactions":1,"anomaly_counts":{"clock_skew":1}}`, none)
	add(topics.Sessions, "a", `{"tenant_id":"acme","compactions":2,"anomaly_counts":{"clock_skew":3}}`, none)
	add(topics.Sessions, "b", `{"tenant_id":"globex","compactions":1,"anomaly_counts":{"clock_skew":1,"chain_gap":1}}`, none)
	add(topics.Steps, "a", `not looked at`, none)

	c := tl.Counts()
	if c.Runs != 2 || c.DAGsSigned != 2 || c.DAGsVerified != 1 || len(tl.Unverified) != 1 || c.Turns != 2 || c.DeadLetters != 2 || c.Compactions != 3 || c.Nodes == 0 || c.Edges == 0 {
		t.Errorf("counts %+v, unverified %v", c, tl.Unverified)
	}
	for name, pair := range map[string][2]map[string]int{
		"closed by":    {c.TurnsClosed, {"complete": 1, "session": 1}},
		"anomalies":    {c.Anomalies, {"clock_skew": 4, "chain_gap": 1}},
		"dead letters": {c.DeadLetterKinds, {"payload": 2}},
		"tenants":      {c.Tenants, {"acme": 1, "globex": 1}},
	} {
		if !maps.Equal(pair[0], pair[1]) {
			t.Errorf("%s: %v, want %v", name, pair[0], pair[1])
		}
	}
}

func TestTallyRefusesWhatIsNoSummary(t *testing.T) {
	pinned, err := ring(t).Verifier()
	if err != nil {
		t.Fatal(err)
	}
	tl := New(pinned)
	for _, base := range []string{topics.Turns, topics.Sessions} {
		if tl.Add(base, []byte("k"), []byte(`{`), header("", "")) == nil {
			t.Errorf("%s: a cut value is counted", base)
		}
	}
}
