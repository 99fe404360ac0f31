package reconcile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"provstream/internal/codec"
	"provstream/internal/generate"
	"provstream/internal/reconcile"
	"provstream/internal/topics"
)

// TestHolds: a run with every fault holds, and everything is in its place.
func TestHolds(t *testing.T) {
	r := record(t, generate.Config{Seed: 1, Faults: generate.FaultNames()})
	report := r.reconcile(t)
	for _, p := range report.Problems {
		t.Error(p)
	}
	if !report.Holds || len(report.Notes) > 0 {
		t.Errorf("does not hold: %+v", report)
	}
	alone := report.Envelopes - report.Nodes - report.Copies - report.Open - report.Dropped
	if alone < 0 || alone > report.DeadLetters*3 {
		t.Errorf("%d envelopes are nowhere: %+v", alone, report)
	}
	if report.DeadLetters == 0 || report.Copies == 0 || report.Rejected == 0 || report.Nodes == 0 || report.Open != 0 {
		t.Errorf("the run is too tame to prove anything: %+v", report)
	}
	t.Logf("%d inputs, %d envelopes: %d nodes, %d copies, %d dropped, %d dead letters, %d rejected; %d DAGs, %d turns, %d sessions",
		report.Inputs, report.Envelopes, report.Nodes, report.Copies, report.Dropped, report.DeadLetters, report.Rejected,
		report.DAGs, report.Turns, report.Sessions)
}

// TestParts: the partitions one by one give what the whole gives, and what is
// wrong in one is seen in that one.
func TestParts(t *testing.T) {
	r := record(t, generate.Config{Seed: 3, Sessions: 20, Faults: []string{"not_json", "not_strict", "copies"}})
	whole := r.reconcile(t)
	var nodes, dags, copies int64
	for p := range int32(partitions) {
		part := r.reconcile(t, p)
		if !part.Holds || part.Nodes == 0 || part.Nodes == whole.Nodes {
			t.Errorf("partition %d: %+v", p, part)
		}
		nodes, dags, copies = nodes+part.Nodes, dags+part.DAGs, copies+part.Copies
	}
	if nodes != whole.Nodes || dags != whole.DAGs || copies != whole.Copies {
		t.Errorf("%d nodes, %d DAGs, %d copies in parts; %+v", nodes, dags, copies, whole)
	}
	i := slices.IndexFunc(r.records[topics.Steps], func(x *reconcile.Record) bool { return x.Partition == 1 && x.Key != nil })
	r.records[topics.Steps] = slices.Delete(r.records[topics.Steps], i, i+1)
	if part := r.reconcile(t, 0); !part.Holds {
		t.Errorf("what is missing in partition 1 is told of partition 0: %v", part.Problems)
	}
	if part := r.reconcile(t, 1); part.Holds {
		t.Error("a step is missing in partition 1, and nothing is told")
	}
}

// TestSweep removes, repeats and alters records of each topic, one at a time,
// and the oracle notices each.
func TestSweep(t *testing.T) {
	whole := record(t, generate.Config{Seed: 2, Sessions: 3, Faults: []string{"not_json", "not_strict", "copies"}})
	if report := whole.reconcile(t); !report.Holds {
		t.Fatalf("the run as it is does not hold: %v", report.Problems)
	}
	sweep := map[string]func([]*reconcile.Record, int) []*reconcile.Record{
		"remove": func(recs []*reconcile.Record, i int) []*reconcile.Record { return slices.Delete(recs, i, i+1) },
		"repeat": func(recs []*reconcile.Record, i int) []*reconcile.Record {
			again := *recs[i]
			again.Offset++ // between two records, where a marker would stand
			return slices.Insert(recs, i+1, &again)
		},
		"rekey": func(recs []*reconcile.Record, i int) []*reconcile.Record {
			altered := *recs[i]
			altered.Key = append([]byte("x"), altered.Key...)
			recs[i] = &altered
			return recs
		},
		"alter a header": func(recs []*reconcile.Record, i int) []*reconcile.Record {
			altered := *recs[i]
			altered.Headers = slices.Clone(altered.Headers)
			for j := range altered.Headers {
				altered.Headers[j].Value = alter(altered.Headers[j].Value)
			}
			recs[i] = &altered
			return recs
		},
		"alter": func(recs []*reconcile.Record, i int) []*reconcile.Record {
			altered := *recs[i]
			altered.Value = alter(altered.Value)
			recs[i] = &altered
			return recs
		},
	}
	hooks := 0
	for topic, recs := range whole.records {
		if strings.HasPrefix(topic, topics.HookPrefix) {
			if hooks++; hooks > 3 {
				continue // they are all alike
			}
		}
		if len(recs) == 0 {
			if topic != topics.Keys && topic != topics.AggregatorState {
				t.Errorf("nothing on %s", topic)
			}
			continue
		}
		for name, change := range sweep {
			t.Run(fmt.Sprintf("%s/%s", topic, name), func(t *testing.T) {
				for _, i := range slices.Compact([]int{0, len(recs) / 2, len(recs) - 1}) {
					_, tick := codec.DecodeTick(recs[i].Value)
					if tick && name != "remove" && name != "alter" || harmless(topic, name, recs[i]) {
						continue // an extra tick does no harm, and it has no key
					}
					r := whole.clone()
					r.records[topic] = change(r.records[topic], i)
					report := r.reconcile(t)
					// A session summary that a later one replaces may have been compacted.
					if report.Holds && report.ExpiredOutputs == 0 {
						t.Errorf("%s record %d (offset %d): nothing was noticed; %s", name, i, recs[i].Offset, recs[i].Value)
					}
				}
			})
		}
	}
}

// harmless changes are no faults: the key of a hook record says nothing, and
// its headers do only on the decisions topic; a coverage record has none.
func harmless(topic, change string, r *reconcile.Record) bool {
	hook := strings.HasPrefix(topic, topics.HookPrefix)
	switch change {
	case "rekey":
		return hook || topic == topics.Decisions
	case "alter a header":
		return hook || len(r.Headers) == 0 || strings.Contains(string(r.Value), "negotiated_version") // dropped by rule
	}
	return false
}

// alter changes a digit or letter in the middle of a value.
func alter(value []byte) []byte {
	v := slices.Clone(value)
	for i := len(v) / 2; i < len(v); i++ {
		switch c := v[i]; {
		case c >= '0' && c <= '8', c >= 'a' && c <= 'y', c >= 'A' && c <= 'Y':
			v[i]++
			return v
		}
	}
	return append(v, ' ')
}
