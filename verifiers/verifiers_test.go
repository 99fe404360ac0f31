// Package verifiers holds verifiers of signed DAGs in other languages, each one
// file that shares nothing with the rest of the project: verify.py, verify.mjs
// and verify.sh. This test runs each of them, where its language is installed,
// on fresh evidence and on tampered copies.
package verifiers

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"provstream/internal/evidence/evidencetest"
	"provstream/internal/topics"
	"provstream/verify"
)

type tool struct {
	name   string
	run    []string   // the command before the arguments
	has    [][]string // commands that must succeed, else the tool is not here
	need   string
	sample int // every how manieth flip of a member
}

func tools() []tool {
	return []tool{
		{"Python", []string{"python3", "verify.py"}, [][]string{{"python3", "-c", "import cryptography, rfc8785"}}, "python3 with cryptography and rfc8785 (pip install cryptography rfc8785)", 40},
		{"Node", []string{"node", "verify.mjs"}, [][]string{{"node", "-e", "if (+process.versions.node.split('.')[0] < 20) process.exit(1)"}}, "Node 20 or later", 40},
		{"OpenSSL", []string{"bash", "verify.sh"}, [][]string{{"bash", "-c", "jq --version && openssl version | grep -q 'OpenSSL [3-9]'"}}, "bash, jq and OpenSSL 3", 200},
	}
}

func (l tool) check(t *testing.T, dir string) (status int, output string) {
	t.Helper()
	out, err := exec.Command(l.run[0], append(l.run[1:], filepath.Join(dir, topics.DAGs+".jsonl"), filepath.Join(dir, "jwks.json"))...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		status = exit.ExitCode()
	}
	return status, strings.TrimSpace(string(out))
}

type outcome struct {
	status int
	output string
}

// drivers run a verifier on many folders in one process, where its language
// starts slowly.
var drivers = map[string][]string{
	"Python": {"python3", "-B", "-c", `
import sys
sys.path.insert(0, ".")
import verify
for d in sys.argv[1:]:
    print("status", verify.main(d + "/prov.dags.jsonl", d + "/jwks.json"), flush=True)
`},
	"Node": {"node", "--input-type=module", "-e", `
const { main } = await import(process.cwd() + "/verify.mjs");
for (const d of process.argv.slice(1)) console.log("status", await main(d + "/prov.dags.jsonl", d + "/jwks.json"));
`},
}

// checkAll runs the tool on many folders.
func (l tool) checkAll(t *testing.T, dirs []string) []outcome {
	t.Helper()
	var out []outcome
	driver := drivers[l.name]
	if driver == nil {
		for _, dir := range dirs {
			status, output := l.check(t, dir)
			out = append(out, outcome{status, output})
		}
		return out
	}
	text, err := exec.Command(driver[0], append(driver[1:], dirs...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	said := ""
	for line := range strings.Lines(string(text)) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "status "); ok {
			out, said = append(out, outcome{int(n[0] - '0'), said}), ""
			continue
		}
		said += line
	}
	if len(out) != len(dirs) {
		t.Fatalf("%d outcomes of %d: %s", len(out), len(dirs), text)
	}
	return out
}

func TestVerifiers(t *testing.T) {
	d := evidencetest.New(t, 2, 5, 1, 4, 6)
	tampers := evidencetest.Tampers(t, d)
	for _, l := range tools() {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			for _, has := range l.has {
				if err := exec.Command(has[0], has[1:]...).Run(); err != nil {
					t.Skipf("SKIPPED: needs %s", l.need)
				}
			}
			dir := t.TempDir()
			d.Write(t, dir)
			if status, out := l.check(t, dir); status != 0 {
				t.Fatalf("fresh evidence: status %d: %s", status, out)
			}
			var names, dirs []string
			for i, x := range tampers {
				switch {
				case x.Shows > evidencetest.InDAGs:
					continue // takes more than the file of DAGs
				case x.Want[0] == evidencetest.WrongKeyKind && x.Want[len(x.Want)-1] == evidencetest.WrongKeyKind:
					continue // the record's key is Kafka's affair
				case x.Flip && i%l.sample != 0, l.name == "OpenSSL" && !x.Flip && (i%11 != 0 || testing.Short()):
					continue
				}
				c := d.Clone()
				x.Change(t, c)
				dir := t.TempDir()
				c.Write(t, dir)
				names, dirs = append(names, x.Name), append(dirs, dir)
			}
			for i, r := range l.checkAll(t, dirs) {
				if r.status != 1 {
					t.Errorf("%s: status %d: %s", names[i], r.status, r.output)
				}
			}
			t.Logf("%d changes", len(dirs))
		})
	}
}

// They take the output of kcat -J too.
func TestVerifiersKcat(t *testing.T) {
	d := evidencetest.New(t, 2, 2, 1)
	dir := t.TempDir()
	d.Write(t, dir)
	var b bytes.Buffer
	for _, l := range d.DAGs {
		list := []string{}
		for k, v := range l.Headers {
			list = append(list, k, v)
		}
		text, err := json.Marshal(map[string]any{"topic": l.Topic, "partition": l.Partition, "offset": l.Offset, "headers": list, "key": l.Key, "payload": l.Value})
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	if err := os.WriteFile(filepath.Join(dir, topics.DAGs+".jsonl"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, l := range tools() {
		if exec.Command(l.has[0][0], l.has[0][1:]...).Run() != nil {
			continue // told by TestVerifiers
		}
		if status, out := l.check(t, dir); status != 0 || !strings.Contains(out, "6 DAGs hold") {
			t.Errorf("%s: status %d: %s", l.name, status, out)
		}
	}
}

// A retired key is good for what it signed, a compromised one for what was
// logged before it leaked.
func TestVerifiersKeyLife(t *testing.T) {
	d := evidencetest.New(t, 1, 5, 2)
	index := int64(5) // the first index that the key must not have signed
	for _, c := range []struct {
		name   string
		status int
		change func(k *verify.Key)
	}{
		{"retired", 0, func(k *verify.Key) { k.Status = verify.StatusRetired }},
		{"retired at the end", 0, func(k *verify.Key) {
			k.Status, k.To = verify.StatusRetired, map[string]int64{"provstream/prov.dags/0": 7}
		}},
		{"retired earlier", 1, func(k *verify.Key) {
			k.Status, k.To = verify.StatusRetired, map[string]int64{"provstream/prov.dags/0": index}
		}},
		{"compromised at the end", 0, func(k *verify.Key) {
			k.Status, k.To = verify.StatusCompromised, map[string]int64{"provstream/prov.dags/0": 7}
		}},
		{"compromised earlier", 1, func(k *verify.Key) {
			k.Status, k.To = verify.StatusCompromised, map[string]int64{"provstream/prov.dags/0": index}
		}},
		{"compromised from the beginning", 1, func(k *verify.Key) { k.Status = verify.StatusCompromised }},
		{"not yet valid", 1, func(k *verify.Key) { k.From = map[string]int64{"provstream/prov.dags/0": index} }},
	} {
		for _, use := range []verify.Use{verify.UseDAG, verify.UseLog} {
			keys := d.Ring.Public()
			for i := range keys {
				if keys[i].Use == use {
					c.change(&keys[i])
				}
			}
			dir := t.TempDir()
			d.Write(t, dir)
			if err := os.WriteFile(filepath.Join(dir, "jwks.json"), verify.JWKS(keys), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, l := range tools() {
				if exec.Command(l.has[0][0], l.has[0][1:]...).Run() != nil {
					continue // told by TestVerifiers
				}
				if l.name == "OpenSSL" && (testing.Short() || use == verify.UseLog || !strings.HasSuffix(c.name, "earlier")) {
					continue
				}
				if status, out := l.check(t, dir); status != c.status {
					t.Errorf("%s, %s key %s: status %d, want %d: %s", l.name, use, c.name, status, c.status, out)
				}
			}
		}
	}
}
