package audit

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"provstream/internal/evidence/evidencetest"
	"provstream/verify"
)

// Every single change of the catalogue is found, and told with the right
// reason, by everyone who has enough to see it; and it is not seen by those
// who have not, so the list says truly where each change shows.
func TestEveryChangeIsFound(t *testing.T) {
	d := evidencetest.New(t, 2, 5, 1, 4, 6)
	honest, err := run(t, d, nil)
	if err != nil {
		t.Fatal(err)
	}
	pinned := must(d.Ring.Verifier())
	all := evidencetest.Tampers(t, d)
	flips := 0
	for i, x := range all {
		if testing.Short() && i%5 != 0 {
			continue
		}
		c := d.Clone()
		x.Change(t, c)
		if x.Flip { // one of hundreds: the record alone is enough
			flips++
			l := c.DAGs[x.Record]
			_, err := verify.NewVerifier(pinned).Record([]byte(l.Value), []byte(l.Headers["tlog-proof"]))
			if !slices.Contains(x.Want, verify.KindOf(err)) {
				t.Errorf("%s: want %v, got %v", x.Name, x.Want, err)
			}
			continue
		}
		readers := []struct {
			name string
			sees evidencetest.Scope
			cfg  Config
		}{
			{"record by record", evidencetest.InRecord, Config{Proof: true}},
			{"whole logs by their records", evidencetest.InTopics, Config{Log: true}},
			{"with the checkpoints", evidencetest.InTopics, Config{Log: true, Heads: Lines(bytes.NewReader(evidencetest.JSONL(c.Checkpoints)))}},
			{"with the heads of an earlier visit", evidencetest.InHistory, Config{Log: true, Since: honest.Seen, Heads: Lines(bytes.NewReader(evidencetest.JSONL(c.Checkpoints)))}},
		}
		for n, r := range readers {
			if r.sees < x.Shows || n == 1 && x.Shows == evidencetest.InTopics {
				continue
			}
			r.cfg.Keys = pinned
			_, err := Run(context.Background(), r.cfg, Lines(bytes.NewReader(evidencetest.JSONL(c.DAGs))))
			var f *Finding
			switch {
			case err == nil:
				t.Errorf("%s: not found %s", x.Name, r.name)
			case !errors.As(err, &f):
				t.Errorf("%s: %s: %v is no finding", x.Name, r.name, err)
			case !slices.Contains(x.Want, f.Err.Kind):
				t.Errorf("%s: found %s for another reason than %v: %v", x.Name, r.name, x.Want, err)
			}
		}
	}
	t.Logf("%d changes, %d of them of one member", len(all), flips)
}
