package audit

import (
	"bytes"
	"context"
	"testing"

	"provstream/internal/evidence/evidencetest"
	"provstream/verify"
)

func run(t *testing.T, d *evidencetest.Deployment, change func(*Config)) (*Report, error) {
	t.Helper()
	pinned, err := d.Ring.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Keys: pinned, Log: true, Heads: Lines(bytes.NewReader(evidencetest.JSONL(d.Checkpoints)))}
	if change != nil {
		change(&cfg)
	}
	return Run(context.Background(), cfg, Lines(bytes.NewReader(evidencetest.JSONL(d.DAGs))))
}

func TestWholeDeploymentHolds(t *testing.T) {
	d := evidencetest.New(t, 3, 5, 1, 9, 70)
	rep, err := run(t, d, nil)
	if err != nil {
		t.Fatal(err)
	}
	if rep.DAGs != 255 || rep.Proven != 255 || rep.Heads != 24 || len(rep.Logs) != 6 {
		t.Errorf("report %+v", rep)
	}
	for _, since := range []Seen{rep.Seen} {
		if _, err := run(t, d, func(c *Config) { c.Since = since }); err != nil {
			t.Errorf("with the heads of the last visit: %v", err)
		}
	}
	if _, err := run(t, d, func(c *Config) { c.Heads = nil }); err != nil {
		t.Errorf("without checkpoints: %v", err)
	}
	if _, err := run(t, d, func(c *Config) { c.Log = false }); err != nil {
		t.Errorf("record by record: %v", err)
	}
	if _, err := Run(context.Background(), Config{Keys: must(d.Ring.Verifier())}, Lines(bytes.NewReader(evidencetest.JSONL(d.Checkpoints)))); err != nil {
		t.Errorf("checkpoints alone: %v", err)
	}
}

func must(k *verify.Keys, err error) *verify.Keys {
	if err != nil {
		panic(err)
	}
	return k
}
