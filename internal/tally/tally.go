// Package tally counts what the pipeline wrote: runs, turns by how they closed,
// anomalies by code, dead letters by kind, nodes and edges, and verifies every
// signed DAG on the way. It is pure: records in, counts out. Whether nothing is
// missing or repeated is the business of package reconcile.
package tally

import (
	"encoding/json"
	"fmt"

	"provstream/internal/topics"
	"provstream/verify"
)

// Counts of a deployment's output topics.
type Counts struct {
	Runs         int            `json:"runs"`
	DAGsSigned   int            `json:"dags_signed"`
	DAGsVerified int            `json:"dags_verified"`
	Nodes        int            `json:"nodes"`
	Edges        int            `json:"edges"`
	Turns        int            `json:"turns"`
	TurnsClosed  map[string]int `json:"turns_closed_by"`
	Compactions  int            `json:"compactions"`
	// Anomalies by code, as the runs' last session summaries tell them.
	Anomalies       map[string]int `json:"anomalies"`
	DeadLetters     int            `json:"dead_letters"`
	DeadLetterKinds map[string]int `json:"dead_letters_by_kind"`
	// Tenants by number of runs.
	Tenants map[string]int `json:"tenants"`
}

// Tally takes the committed records of the output topics, each partition in the
// order of its offsets.
type Tally struct {
	verifier *verify.Verifier
	dags     Counts
	letters  map[string]int
	sessions map[string]session // the last summary of a run
	turns    map[turnKey]string // how the last revision closed
	// Unverified are DAGs that did not verify, with the reason.
	Unverified []string
}

type turnKey struct{ run, turn string }

type session struct {
	tenant      string
	compactions int
	anomalies   map[string]int
}

// New makes a tally that verifies with pinned keys.
func New(keys *verify.Keys) *Tally {
	v := verify.NewVerifier(keys)
	v.CheckID = true
	return &Tally{verifier: v, letters: map[string]int{}, sessions: map[string]session{}, turns: map[turnKey]string{}}
}

// Add takes one record of a topic of the table; topics that it does not count
// are ignored. header returns the last header of a name.
func (t *Tally) Add(base string, key, value []byte, header func(name string) []byte) error {
	switch base {
	case topics.DAGs:
		t.dags.DAGsSigned++
		r, err := t.verifier.Record(value, header("tlog-proof"))
		if err != nil {
			t.Unverified = append(t.Unverified, err.Error())
			return nil
		}
		t.dags.DAGsVerified++
		t.dags.Nodes += r.Nodes
		t.dags.Edges += r.Edges
	case topics.DeadLetter:
		t.letters[string(header("provstream.error.kind"))]++
	case topics.Turns:
		var s struct {
			TurnID   string `json:"turn_id"`
			ClosedBy string `json:"closed_by"`
		}
		if err := json.Unmarshal(value, &s); err != nil {
			return fmt.Errorf("turn summary of %s: %w", key, err)
		}
		t.turns[turnKey{string(key), s.TurnID}] = s.ClosedBy
	case topics.Sessions:
		var s struct {
			Tenant      string         `json:"tenant_id"`
			Compactions int            `json:"compactions"`
			Anomalies   map[string]int `json:"anomaly_counts"`
		}
		if err := json.Unmarshal(value, &s); err != nil {
			return fmt.Errorf("session summary of %s: %w", key, err)
		}
		t.sessions[string(key)] = session{s.Tenant, s.Compactions, s.Anomalies}
	}
	return nil
}

// Counts returns what was counted so far.
func (t *Tally) Counts() Counts {
	c := t.dags
	c.Runs, c.Turns = len(t.sessions), len(t.turns)
	c.TurnsClosed, c.Anomalies, c.Tenants = map[string]int{}, map[string]int{}, map[string]int{}
	c.DeadLetterKinds = t.letters
	for _, by := range t.turns {
		c.TurnsClosed[by]++
	}
	for _, s := range t.sessions {
		c.Tenants[s.tenant]++
		c.Compactions += s.compactions
		for code, n := range s.anomalies {
			c.Anomalies[code] += n
		}
	}
	for _, n := range t.letters {
		c.DeadLetters += n
	}
	return c
}
