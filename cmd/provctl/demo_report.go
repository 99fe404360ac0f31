package main

import (
	"errors"
	"fmt"
	"strings"

	"provstream/internal/reconcile"
	"provstream/internal/show"
	"provstream/internal/tally"
)

// demoReport is the document of demo --json. The names of the first block are
// fixed; what follows adds to them.
type demoReport struct {
	Envelopes    int64          `json:"envelopes"`
	Steps        int64          `json:"steps"`
	Decisions    int64          `json:"decisions"`
	Runs         int            `json:"runs"`
	DAGsSigned   int            `json:"dags_signed"`
	DAGsVerified int            `json:"dags_verified"`
	Turns        int            `json:"turns"`
	DeadLetters  int            `json:"dead_letters"`
	Missing      int64          `json:"missing"`
	Repeated     int64          `json:"repeated"`
	Anomalies    map[string]int `json:"anomalies"`
	Seconds      float64        `json:"seconds"`
	PerSecond    float64        `json:"envelopes_per_s"`

	Holds           bool                `json:"holds"`
	Input           string              `json:"input"`
	Records         int64               `json:"records"`
	Rejected        int64               `json:"rejected"`
	Copies          int64               `json:"copies"`
	Dropped         int64               `json:"dropped"`
	Wrong           int64               `json:"wrong"`
	Nodes           int                 `json:"nodes"`
	Edges           int                 `json:"edges"`
	TurnsClosed     map[string]int      `json:"turns_closed_by"`
	Compactions     int                 `json:"compactions"`
	DeadLetterKinds map[string]int      `json:"dead_letters_by_kind"`
	Tenants         map[string]int      `json:"tenants"`
	Problems        []reconcile.Problem `json:"problems"`
	Unverified      []string            `json:"unverified"`
	Notes           []string            `json:"notes,omitempty"`
}

func (d *demo) summary() demoReport {
	var c tally.Counts = d.counts
	a := d.audit
	seconds := d.drained.Seconds()
	return demoReport{
		Envelopes: a.Envelopes, Steps: a.Steps, Decisions: a.Decisions, Runs: c.Runs, DAGsSigned: c.DAGsSigned, DAGsVerified: c.DAGsVerified,
		Turns: c.Turns, DeadLetters: c.DeadLetters, Missing: a.Missing, Repeated: a.Repeated, Anomalies: c.Anomalies,
		Seconds: seconds, PerSecond: float64(a.Envelopes) / seconds,
		Holds: a.Holds && c.DAGsVerified == c.DAGsSigned, Input: d.input, Records: a.Inputs, Rejected: a.Rejected, Copies: a.Copies,
		Dropped: a.Dropped, Wrong: a.Wrong, Nodes: c.Nodes, Edges: c.Edges, TurnsClosed: c.TurnsClosed, Compactions: c.Compactions,
		DeadLetterKinds: c.DeadLetterKinds, Tenants: c.Tenants, Problems: nonNil(a.Problems), Unverified: nonNil(d.unproof), Notes: a.Notes,
	}
}

// report prints what was found; what does not hold is status 1.
func (d *demo) report(c *demoCmd) error {
	s := d.summary()
	var err error
	if !s.Holds {
		err = fmt.Errorf("%d missing, %d repeated, %d wrong, %d of %d DAGs not verified: %w",
			s.Missing, s.Repeated, s.Wrong, s.DAGsSigned-s.DAGsVerified, s.DAGsSigned, errDoesNotHold)
	}
	if d.g.json {
		return errors.Join(d.g.printJSON(s), err)
	}
	run, rerr := d.run(c.Show)
	if rerr != nil {
		return errors.Join(rerr, err)
	}
	if run != nil {
		if werr := run.Tree(d.g.stdout, show.Style{Color: d.g.color, MaxNodes: 60}); werr != nil {
			return werr
		}
		d.g.printf("\n")
	}
	d.text(s)
	if c.Keep != "" {
		d.g.printf("kept in %s; draw any run with: provctl show RUN --from %s\n", c.Keep, c.Keep)
	}
	return err
}

func (d *demo) text(s demoReport) {
	g := d.g
	g.printf("%s\n", s.Input)
	g.printf("  in     %d envelopes in %d records: %d steps, %d decisions, %d dropped by rule\n", s.Envelopes, s.Records, s.Steps, s.Decisions, s.Dropped)
	g.printf("  out    %d runs, %d tenant(s), %d signed DAGs with %d nodes and %d edges, %d turns (%s)\n",
		s.Runs, len(s.Tenants), s.DAGsSigned, s.Nodes, s.Edges, s.Turns, list(s.TurnsClosed))
	g.printf("  bad    %d dead letters (%s), %d envelopes kept as rejected steps, %d copies\n", s.DeadLetters, list(s.DeadLetterKinds), s.Rejected, s.Copies)
	g.printf("  found  %s\n", list(s.Anomalies))
	g.printf("  proof  %d of %d signatures and log proofs hold; missing %d, repeated %d, wrong %d\n",
		s.DAGsVerified, s.DAGsSigned, s.Missing, s.Repeated, s.Wrong)
	g.printf("  time   %.2f s, %.0f envelopes/s, start of the services included\n", s.Seconds, s.PerSecond)
	for i, p := range s.Problems {
		if i == 20 {
			g.printf("  … and %d more problems\n", len(s.Problems)-i)
			break
		}
		g.printf("  %s\n", p)
	}
	for _, u := range s.Unverified {
		g.printf("  not verified: %s\n", u)
	}
	for _, n := range s.Notes {
		g.printf("  note: %s\n", n)
	}
}

// list prints counts by name.
func list(m map[string]int) string {
	var parts []string
	for _, k := range sortedKeys(m) {
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}
