package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	mixed := d.Clone()
	slices.SortStableFunc(mixed.DAGs, func(a, b evidencetest.Line) int { return int(a.Offset - b.Offset) })
	if _, err := run(t, mixed, func(c *Config) { c.Heads = nil }); err != nil {
		t.Errorf("partitions mixed, without checkpoints: %v", err)
	}
	mixed.DAGs = mixed.DAGs[:len(mixed.DAGs)-1]
	if _, err := run(t, mixed, func(c *Config) { c.Heads = nil }); verify.KindOf(err) != verify.Truncated {
		t.Errorf("partitions mixed, one record short: %v", err)
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

// The same records in the form of kcat -J.
func TestKcatForm(t *testing.T) {
	d := evidencetest.New(t, 2, 3, 2)
	kcat := func(lines []evidencetest.Line) []byte {
		var b bytes.Buffer
		for _, l := range lines {
			list := []string{}
			for k, v := range l.Headers {
				list = append(list, k, v)
			}
			text, err := json.Marshal(map[string]any{
				"topic": l.Topic, "partition": l.Partition, "offset": l.Offset, "tstype": "create", "ts": l.Timestamp, "broker": 1,
				"headers": list, "key": l.Key, "payload": l.Value,
			})
			if err != nil {
				t.Fatal(err)
			}
			b.Write(append(text, '\n'))
		}
		return b.Bytes()
	}
	cfg := Config{Keys: must(d.Ring.Verifier()), Log: true, Heads: Lines(bytes.NewReader(kcat(d.Checkpoints)))}
	if rep, err := Run(context.Background(), cfg, Lines(bytes.NewReader(kcat(d.DAGs)))); err != nil || rep.Proven != 10 || rep.Heads != 8 {
		t.Errorf("%+v %v", rep, err)
	}
}

// Files come compressed, without a last line end, with Windows line ends.
func TestLines(t *testing.T) {
	d := evidencetest.New(t, 1, 2)
	text := evidencetest.JSONL(d.DAGs)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(text)
	w.Close()
	for name, in := range map[string][]byte{
		"plain": text, "gzip": z.Bytes(), "no last line end": bytes.TrimSuffix(text, []byte("\n")), "CRLF": bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")),
		"empty lines": bytes.ReplaceAll(text, []byte("\n"), []byte("\n\n")),
	} {
		if rep, err := Run(context.Background(), Config{Keys: must(d.Ring.Verifier()), Log: true}, Lines(bytes.NewReader(in))); err != nil || rep.DAGs != 2 {
			t.Errorf("%s: %+v %v", name, rep, err)
		}
	}
	for name, in := range map[string]string{
		"no JSON": "hello\n", "half a record": string(text[:len(text)/2]), "a record without a value": `{"topic":"prov.dags","partition":0}` + "\n",
	} {
		_, err := Run(context.Background(), Config{Keys: must(d.Ring.Verifier())}, Lines(strings.NewReader(in)))
		if k := verify.KindOf(err); k != verify.NotStrict && k != verify.NotCanonical {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What was seen is written and read back, one log or many.
func TestSeenFile(t *testing.T) {
	d := evidencetest.New(t, 3, 2, 1)
	keys := must(d.Ring.Verifier())
	rep, err := run(t, d, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "seen")
	if s, err := ReadSeen(path, keys); err != nil || len(s) != 0 {
		t.Errorf("no file: %v", err)
	}
	if err := rep.Seen.Write(path); err != nil {
		t.Fatal(err)
	}
	back, err := ReadSeen(path, keys)
	if err != nil || len(back) != 6 {
		t.Fatalf("%d heads: %v", len(back), err)
	}
	for o, h := range rep.Seen {
		if back[o].Checkpoint != h.Checkpoint || !bytes.Equal(back[o].Note, h.Note) {
			t.Errorf("%s comes back otherwise", o)
		}
	}
	note := []byte(d.Checkpoints[0].Value)
	for name, c := range map[string]struct {
		text []byte
		ok   bool
	}{
		"one note": {note, true}, "a note and empty lines": {append([]byte("\n"), append(note, '\n')...), true}, "empty": {nil, true},
		"a note twice": {append(append([]byte{}, note...), note...), false}, "no signature": {[]byte("a\n1\nb\n"), false},
		"changed": {bytes.Replace(note, []byte("\n2\n"), []byte("\n3\n"), 1), false},
	} {
		if err := os.WriteFile(path, c.text, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadSeen(path, keys); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A head that was seen before is not forgotten because the checkpoints have
// others: a log that was rewritten in other batches shows too.
func TestRewrittenInOtherBatches(t *testing.T) {
	d := evidencetest.New(t, 1, 5, 2)
	rep, err := run(t, d, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := evidencetest.New(t, 1, 3, 3, 3)
	cfg := Config{Keys: must(d.Ring.Verifier()), Since: rep.Seen}
	_, err = Run(context.Background(), cfg, Lines(bytes.NewReader(evidencetest.JSONL(other.Checkpoints))))
	if k := verify.KindOf(err); k != verify.NotConsistent && k != verify.Forked {
		t.Errorf("checkpoints alone: %v", err)
	}
	_, err = run(t, other, func(c *Config) { c.Since = rep.Seen })
	if verify.KindOf(err) == "" {
		t.Errorf("with the DAGs: %v", err)
	}
}
