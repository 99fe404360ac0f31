package evidencetest

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"provstream/internal/evidence"
	"provstream/internal/jcs"
	"provstream/internal/keys"
	"provstream/verify"
)

// Tamper is one change to a body of evidence, and why it is to be refused.
type Tamper struct {
	Name   string
	Change func(testing.TB, *Deployment)
	// Want are the reasons that are right; the first is the usual one.
	Want []verify.Kind
	// Where it shows: in one record of prov.dags alone; in the file of prov.dags;
	// in prov.dags and prov.checkpoints together; or only to one who has seen
	// an earlier head.
	Shows Scope
	// Flip is set for changes of one member of the DAG of record Record.
	Flip   bool
	Record int
}

// Scope is how much one must have to see a change.
type Scope uint8

// From one record to history.
const (
	InRecord Scope = iota
	InDAGs
	InTopics
	InHistory
)

// Clone returns a copy that can be changed.
func (d *Deployment) Clone() *Deployment {
	c := &Deployment{Ring: d.Ring}
	for _, p := range []struct{ to, from *[]Line }{{&c.DAGs, &d.DAGs}, {&c.Checkpoints, &d.Checkpoints}, {&c.Coverage, &d.Coverage}} {
		for _, l := range *p.from {
			*p.to = append(*p.to, l.Clone())
		}
	}
	return c
}

// Parse reads a value as plain JSON.
func Parse(t testing.TB, value string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(value))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// Canonical writes plain JSON in RFC 8785 form.
func Canonical(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jcs.Canonicalize(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Sign signs a DAG as plain JSON, whatever is in it: what the holder of a key
// can do. It shares no code with the signer.
func Sign(t testing.TB, dag map[string]any, key *keys.Private) {
	t.Helper()
	m := map[string]any{}
	for _, name := range []string{"nodes", "edges", "id", "runId", "tenantId", "createdAt", "flowRef"} {
		if v, ok := dag[name]; ok {
			m[name] = v
		}
	}
	dag["signature"] = map[string]any{
		"algorithm": "ed25519", "keyId": key.ID, "signedAt": "2026-11-29T22:00:00.000Z",
		"value": base64.StdEncoding.EncodeToString(ed25519.Sign(key.Signer, []byte(Canonical(t, m)))),
	}
}

// edit changes the DAG of record i as JSON, keeping it canonical.
func edit(i int, f func(testing.TB, map[string]any)) func(testing.TB, *Deployment) {
	return func(t testing.TB, d *Deployment) {
		t.Helper()
		dag := Parse(t, d.DAGs[i].Value)
		f(t, dag)
		d.DAGs[i].Value = Canonical(t, dag)
	}
}

// flip changes a string a little and keeps its kind of characters.
func flip(s string) string {
	b := []byte(s)
	for i := len(b) - 1; i >= 0; i-- {
		switch c := b[i]; {
		case c >= '1' && c <= '9':
			b[i] = c - 1
		case c == '0':
			b[i] = '1'
		case c >= 'b' && c <= 'y':
			b[i] = c - 1
		case c == 'a':
			b[i] = 'b'
		default:
			continue
		}
		return string(b)
	}
	return s + "x"
}

// Flips lists a flip of every member of a DAG: each leaf of the JSON tree.
func Flips(t testing.TB, record int, value string) []Tamper {
	t.Helper()
	var out []Tamper
	var walk func(path []string, v any)
	walk = func(path []string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(mapKeys(v)) {
				walk(append(slices.Clone(path), name), v[name])
			}
		case []any:
			for i := range v {
				walk(append(slices.Clone(path), fmt.Sprint(i)), v[i])
			}
		default:
			if p := strings.Join(path, "/"); p != "signature/signedAt" { // nothing covers it, see the test of that
				out = append(out, Tamper{
					Name: fmt.Sprintf("flip /%s of DAG %d", p, record), Want: wantOfFlip(path), Shows: InRecord, Flip: true, Record: record,
					Change: edit(record, func(t testing.TB, dag map[string]any) { replace(dag, path, flipped(path, v)) }),
				})
			}
		}
	}
	walk(nil, Parse(t, value))
	return out
}

func mapKeys(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func wantOfFlip(path []string) []verify.Kind {
	switch strings.Join(path, "/") {
	case "version":
		return []verify.Kind{verify.BadVersion}
	case "signature/algorithm":
		return []verify.Kind{verify.BadSchema}
	case "signature/keyId":
		return []verify.Kind{verify.UnknownKey}
	case "tenantId":
		return []verify.Kind{verify.BadSignature, verify.WrongTenant}
	}
	return []verify.Kind{verify.BadSignature}
}

func flipped(path []string, v any) any {
	last := path[len(path)-1]
	switch v := v.(type) {
	case string:
		switch {
		case last == "kind" && path[0] == "edges":
			return map[bool]string{true: "produced", false: "caused-by"}[v == "caused-by"]
		case last == "kind":
			return map[bool]string{true: "event", false: "input"}[v == "input"]
		}
		return flip(v)
	case json.Number:
		return json.Number(fmt.Sprint(len(string(v)) + 1234))
	case bool:
		return !v
	}
	return "x"
}

func replace(v any, path []string, to any) {
	for i, name := range path {
		last := i == len(path)-1
		switch c := v.(type) {
		case map[string]any:
			if last {
				c[name] = to
			}
			v = c[name]
		case []any:
			var n int
			fmt.Sscan(name, &n)
			if last {
				c[n] = to
			}
			v = c[n]
		}
	}
}

// list changes one of the two lists of the DAG of a record.
func list(record int, name string, f func([]any) []any) func(testing.TB, *Deployment) {
	return edit(record, func(_ testing.TB, dag map[string]any) { dag[name] = f(dag[name].([]any)) })
}

// Lists drop, add, reorder and duplicate what is in a list of a DAG.
func Lists(record int, name string) []Tamper {
	mk := func(what string, f func([]any) []any) Tamper {
		return Tamper{Name: what + " of " + name, Change: list(record, name, f), Want: []verify.Kind{verify.BadSignature}, Shows: InRecord}
	}
	swap := func(l []any, i, j int) []any { l[i], l[j] = l[j], l[i]; return l }
	return []Tamper{
		mk("drop the first", func(l []any) []any { return l[1:] }),
		mk("drop the last", func(l []any) []any { return l[:len(l)-1] }),
		mk("drop one in the middle", func(l []any) []any { return slices.Delete(l, len(l)/2, len(l)/2+1) }),
		mk("drop all", func([]any) []any { return []any{} }),
		mk("repeat the last", func(l []any) []any { return append(l, l[len(l)-1]) }),
		mk("repeat the first behind the last", func(l []any) []any { return append(l, l[0]) }),
		mk("swap the first two", func(l []any) []any { return swap(l, 0, 1) }),
		mk("swap first and last", func(l []any) []any { return swap(l, 0, len(l)-1) }),
		mk("reverse", func(l []any) []any { slices.Reverse(l); return l }),
	}
}

// Tampers is the catalogue: every single change that a reader of prov.dags and
// prov.checkpoints could meet. The deployment must have two partitions and
// four batches in each, with at least three DAGs in the first.
func Tampers(t testing.TB, d *Deployment) []Tamper {
	t.Helper()
	var out []Tamper
	for _, i := range []int{0, 1, 3} {
		out = append(out, Flips(t, i, d.DAGs[i].Value)...)
	}
	out = append(out, Lists(3, "nodes")...)
	out = append(out, Lists(3, "edges")...)
	out = append(out, documentTampers()...)
	out = append(out, keyTampers()...)
	out = append(out, insiderTampers()...)
	out = append(out, Records(d)...)
	out = append(out, proofTampers()...)
	out = append(out, checkpointTampers(d)...)
	return append(out, historyTampers()...)
}

// text changes the bytes of the value of record 0.
func text(name string, want verify.Kind, f func(string) string) Tamper {
	return Tamper{Name: name, Want: []verify.Kind{want}, Shows: InRecord, Change: func(_ testing.TB, d *Deployment) { d.DAGs[0].Value = f(d.DAGs[0].Value) }}
}

func sub(old, new string) func(string) string {
	return func(s string) string {
		if !strings.Contains(s, old) {
			panic("evidencetest: no " + old)
		}
		return strings.Replace(s, old, new, 1)
	}
}

func documentTampers() []Tamper {
	return []Tamper{
		text("truncate the value", verify.NotStrict, func(s string) string { return s[:len(s)/2] }),
		text("empty value", verify.NotStrict, func(string) string { return "" }),
		text("another JSON value", verify.BadSchema, func(string) string { return "[]" }),
		text("trailing byte", verify.NotStrict, func(s string) string { return s + "}" }),
		text("white space", verify.NotCanonical, sub(`{"createdAt"`, `{ "createdAt"`)),
		text("white space behind", verify.NotCanonical, func(s string) string { return s + " " }),
		text("members in another order", verify.NotCanonical, func(s string) string {
			return `{"version":"1.0.0",` + strings.TrimSuffix(s[1:], `,"version":"1.0.0"}`) + `}`
		}),
		text("a repeated member", verify.NotStrict, sub(`"version":"1.0.0"`, `"version":"1.0.0","version":"1.0.0"`)),
		text("a repeated member that was harmless", verify.NotStrict, sub(`"tenantId":"`, `"tenantId":"evil","tenantId":"`)),
		text("an escape that means the same", verify.NotCanonical, sub(`"createdAt"`, `"\u0063reatedAt"`)),
		text("an escaped slash", verify.NotCanonical, sub(`blob://`, `blob:\/\/`)),
		text("a number written otherwise", verify.NotCanonical, sub(`"lineage_depth":`, `"lineage_depth":0.0e1,"x":`)),
		text("an unknown member", verify.BadSchema, sub(`,"version"`, `,"verified":true,"version"`)),
		text("a member too few", verify.BadSchema, sub(`,"version":"1.0.0"`, ``)),
		text("an unknown member of the signature", verify.BadSchema, sub(`"keyId"`, `"by":"me","keyId"`)),
		text("a null flowRef", verify.BadSchema, sub(`,"id":"`, `,"flowRef":null,"id":"`)),
		text("a flowRef", verify.BadSignature, sub(`],"id":"`, `],"flowRef":{"id":"a","version":"1"},"id":"`)),
		text("no signature", verify.NotSigned, func(s string) string {
			i, j := strings.Index(s, `,"signature":{`), strings.Index(s, `,"tenantId":"`)
			return s[:i] + s[j:]
		}),
		text("signature without padding", verify.BadSignature, sub(`=="}`, `"}`)),
		text("signature with other unused bits", verify.BadSignature, func(s string) string {
			i := strings.Index(s, `=="}`)
			return s[:i-1] + string(s[i-1]+1) + s[i:]
		}),
		text("version 1.0.1", verify.BadVersion, sub(`"version":"1.0.0"`, `"version":"1.0.1"`)),
		text("version 1.0", verify.BadVersion, sub(`"version":"1.0.0"`, `"version":"1.0"`)),
		text("seconds instead of milliseconds", verify.BadSchema, sub(`.000Z","edges"`, `Z","edges"`)),
		text("a day that does not exist", verify.BadSchema, sub(`{"createdAt":"2026-11-29`, `{"createdAt":"2026-11-31`)),
	}
}

func keyTampers() []Tamper {
	return []Tamper{
		{Name: "signed by the key of another tenant", Want: []verify.Kind{verify.WrongTenant}, Shows: InRecord, Change: edit(0, func(t testing.TB, dag map[string]any) {
			Sign(t, dag, Key(t, 3, verify.UseDAG, "globex"))
		})},
		{Name: "signed by an unknown key", Want: []verify.Kind{verify.UnknownKey}, Shows: InRecord, Change: edit(0, func(t testing.TB, dag map[string]any) {
			Sign(t, dag, Key(t, 9, verify.UseDAG, ""))
		})},
		{Name: "signed by the log key", Want: []verify.Kind{verify.UnknownKey}, Shows: InRecord, Change: edit(0, func(t testing.TB, dag map[string]any) {
			Sign(t, dag, Key(t, 1, verify.UseLog, ""))
		})},
		{Name: "signed by an unknown key under the name of the right one", Want: []verify.Kind{verify.BadSignature}, Shows: InRecord, Change: edit(0, func(t testing.TB, dag map[string]any) {
			id := dag["signature"].(map[string]any)["keyId"]
			Sign(t, dag, Key(t, 9, verify.UseDAG, ""))
			dag["signature"].(map[string]any)["keyId"] = id
		})},
		{Name: "tenants swapped between two DAGs", Want: []verify.Kind{verify.WrongTenant, verify.BadSignature}, Shows: InRecord, Change: func(t testing.TB, d *Deployment) {
			a, b := Parse(t, d.DAGs[0].Value), Parse(t, d.DAGs[1].Value)
			a["tenantId"], b["tenantId"] = b["tenantId"], a["tenantId"]
			d.DAGs[0].Value, d.DAGs[1].Value = Canonical(t, a), Canonical(t, b)
		}},
		{Name: "signatures swapped between two DAGs of a tenant", Want: []verify.Kind{verify.BadSignature}, Shows: InRecord, Change: func(t testing.TB, d *Deployment) {
			a, b := Parse(t, d.DAGs[0].Value), Parse(t, d.DAGs[2].Value)
			a["signature"], b["signature"] = b["signature"], a["signature"]
			d.DAGs[0].Value, d.DAGs[2].Value = Canonical(t, a), Canonical(t, b)
		}},
		{Name: "key ids swapped between two tenants", Want: []verify.Kind{verify.WrongTenant}, Shows: InRecord, Change: func(t testing.TB, d *Deployment) {
			a, b := Parse(t, d.DAGs[0].Value), Parse(t, d.DAGs[1].Value)
			x, y := a["signature"].(map[string]any), b["signature"].(map[string]any)
			x["keyId"], y["keyId"] = y["keyId"], x["keyId"]
			d.DAGs[0].Value, d.DAGs[1].Value = Canonical(t, a), Canonical(t, b)
		}},
	}
}

// resign changes DAG 0 as the holder of its key could.
func resign(name string, want []verify.Kind, shows Scope, f func(map[string]any)) Tamper {
	return Tamper{Name: name + ", signed again with the right key", Want: want, Shows: shows, Change: edit(0, func(t testing.TB, dag map[string]any) {
		f(dag)
		Sign(t, dag, Key(t, 2, verify.UseDAG, ""))
	})}
}

func insiderTampers() []Tamper {
	graph := []verify.Kind{verify.BadGraph}
	node := func(dag map[string]any, i int) map[string]any { return dag["nodes"].([]any)[i].(map[string]any) }
	edge := func(dag map[string]any, i int) map[string]any { return dag["edges"].([]any)[i].(map[string]any) }
	return []Tamper{
		resign("another createdAt", []verify.Kind{verify.NotIncluded}, InRecord, func(dag map[string]any) { dag["createdAt"] = "2026-11-29T21:00:00.001Z" }),
		resign("another tenant", []verify.Kind{verify.NotIncluded}, InRecord, func(dag map[string]any) { dag["tenantId"] = "evil" }),
		resign("another content hash", []verify.Kind{verify.BadID, verify.NotIncluded}, InRecord, func(dag map[string]any) {
			node(dag, 0)["contentHash"] = "sha256:" + strings.Repeat("0", 64)
		}),
		resign("another id", []verify.Kind{verify.BadID, verify.NotIncluded}, InRecord, func(dag map[string]any) { dag["id"] = flip(dag["id"].(string)) }),
		resign("an id of another run", graph, InRecord, func(dag map[string]any) { dag["id"] = "x" + dag["id"].(string) }),
		resign("an edge to nowhere", graph, InRecord, func(dag map[string]any) { edge(dag, 0)["to"] = "input:999" }),
		resign("an edge from nowhere", graph, InRecord, func(dag map[string]any) { edge(dag, 0)["from"] = "input:999" }),
		resign("an edge onto itself", graph, InRecord, func(dag map[string]any) { edge(dag, 0)["to"] = edge(dag, 0)["from"] }),
		resign("a cycle", graph, InRecord, func(dag map[string]any) {
			e := edge(dag, 0)
			dag["edges"] = append([]any{map[string]any{"from": e["to"], "kind": "caused-by", "to": e["from"]}}, dag["edges"].([]any)...)
		}),
		resign("an edge twice", graph, InRecord, func(dag map[string]any) {
			l := dag["edges"].([]any)
			dag["edges"] = append(l[:1:1], l...)
		}),
		resign("edges out of order", graph, InRecord, func(dag map[string]any) {
			l := dag["edges"].([]any)
			l[0], l[1] = l[1], l[0]
		}),
		resign("a node dropped with its edges", graph, InRecord, func(dag map[string]any) {
			id := node(dag, 2)["id"]
			dag["nodes"] = slices.Delete(dag["nodes"].([]any), 2, 3)
			dag["edges"] = slices.DeleteFunc(dag["edges"].([]any), func(e any) bool {
				m := e.(map[string]any)
				return m["from"] == id || m["to"] == id
			})
		}),
		resign("a node twice", graph, InRecord, func(dag map[string]any) {
			l := dag["nodes"].([]any)
			dag["nodes"] = append(l, l[len(l)-1])
		}),
		resign("two nodes with one id", graph, InRecord, func(dag map[string]any) {
			node(dag, 1)["id"], node(dag, 1)["kind"] = node(dag, 0)["id"], node(dag, 0)["kind"]
		}),
		resign("nodes out of order", graph, InRecord, func(dag map[string]any) {
			l := dag["nodes"].([]any)
			l[0], l[1] = l[1], l[0]
		}),
		resign("a node id that is not its kind", graph, InRecord, func(dag map[string]any) { node(dag, 0)["kind"] = "input" }),
		resign("inferred lineage without an edge", graph, InRecord, func(dag map[string]any) {
			node(dag, 0)["attributes"].(map[string]any)["lineage"] = "inferred"
		}),
		resign("an earlier segment out of nothing", graph, InRecord, func(dag map[string]any) {
			node(dag, 0)["attributes"].(map[string]any)["segment"] = 0
		}),
		resign("a kind that is none", []verify.Kind{verify.BadSchema}, InRecord, func(dag map[string]any) { node(dag, 0)["kind"] = "thought" }),
		resign("version 2.0.0", []verify.Kind{verify.BadVersion}, InRecord, func(dag map[string]any) { dag["version"] = "2.0.0" }),
	}
}

// Records move whole records of prov.dags. The first partition must hold at least
// four.
func Records(d *Deployment) []Tamper {
	place := []verify.Kind{verify.WrongPlace}
	first := slices.IndexFunc(d.DAGs, func(l Line) bool { return l.Partition == 1 }) // of partition 1
	mk := func(name string, want []verify.Kind, shows Scope, f func(l []Line) []Line) Tamper {
		return Tamper{Name: name, Want: want, Shows: shows, Change: func(_ testing.TB, d *Deployment) { d.DAGs = f(d.DAGs) }}
	}
	return []Tamper{
		mk("drop the first DAG", place, InTopics, func(l []Line) []Line { return l[1:] }),
		mk("drop a DAG", place, InDAGs, func(l []Line) []Line { return slices.Delete(l, 2, 3) }),
		mk("drop the last DAG of a partition", []verify.Kind{verify.Truncated}, InDAGs, func(l []Line) []Line { return slices.Delete(l, first-1, first) }),
		mk("drop the last DAG of all", []verify.Kind{verify.Truncated}, InDAGs, func(l []Line) []Line { return l[:len(l)-1] }),
		mk("drop a partition", []verify.Kind{verify.Truncated}, InTopics, func(l []Line) []Line { return l[:first] }),
		mk("drop the first partition", []verify.Kind{verify.Truncated}, InTopics, func(l []Line) []Line { return l[first:] }),
		mk("repeat a DAG", place, InDAGs, func(l []Line) []Line { return slices.Insert(l, 3, l[2].Clone()) }),
		mk("repeat the last DAG", place, InDAGs, func(l []Line) []Line { return append(l, l[len(l)-1].Clone()) }),
		mk("swap two DAGs", place, InDAGs, func(l []Line) []Line { l[1], l[2] = l[2], l[1]; return l }),
		mk("swap two values", []verify.Kind{WrongKeyKind, verify.NotIncluded}, InRecord, func(l []Line) []Line {
			l[1].Value, l[2].Value = l[2].Value, l[1].Value
			return l
		}),
		mk("swap two values with their keys and ids", []verify.Kind{verify.NotIncluded}, InRecord, func(l []Line) []Line {
			a, b := &l[1], &l[2]
			a.Value, b.Value, a.Key, b.Key = b.Value, a.Value, b.Key, a.Key
			a.Headers["ce_id"], b.Headers["ce_id"] = b.Headers["ce_id"], a.Headers["ce_id"]
			return l
		}),
		mk("a DAG of the other partition inserted", []verify.Kind{verify.WrongOrigin}, InRecord, func(l []Line) []Line {
			x := l[first].Clone()
			x.Partition = 0
			return slices.Insert(l, 2, x)
		}),
		mk("a DAG of the other partition in front", []verify.Kind{verify.Truncated, verify.WrongPlace}, InTopics, func(l []Line) []Line { return slices.Insert(l, 2, l[first].Clone()) }),
		mk("partitions renamed", []verify.Kind{verify.WrongOrigin}, InRecord, func(l []Line) []Line {
			for i := range l {
				l[i].Partition = 1 - l[i].Partition
			}
			return l
		}),
		mk("another topic", []verify.Kind{verify.WrongOrigin}, InRecord, func(l []Line) []Line { l[0].Topic = "test.prov.dags"; return l }),
		mk("another record key", []verify.Kind{WrongKeyKind}, InTopics, func(l []Line) []Line { l[0].Key = flip(l[0].Key); return l }),
		mk("another ce_time", []verify.Kind{WrongCEKind}, InTopics, func(l []Line) []Line { l[0].Headers["ce_time"] = "2026-11-29T21:00:00.001Z"; return l }),
		mk("another ce_type", []verify.Kind{WrongCEKind}, InTopics, func(l []Line) []Line { l[0].Headers["ce_type"] = "provstream.dag.v2"; return l }),
		mk("another ce_source", []verify.Kind{WrongCEKind}, InTopics, func(l []Line) []Line {
			l[0].Headers["ce_source"] = l[first].Headers["ce_source"]
			return l
		}),
		mk("another ce_id", []verify.Kind{WrongCEIDKind}, InRecord, func(l []Line) []Line { l[0].Headers["ce_id"] = l[1].Headers["ce_id"]; return l }),
	}
}

// Kinds of package audit, spelt out so that audit's tests can use this package.
const (
	WrongKeyKind  verify.Kind = "record_key"
	WrongCEIDKind verify.Kind = "ce_id"
	WrongCEKind   verify.Kind = "ce"
)

func proofTampers() []Tamper {
	mk := func(name string, want verify.Kind, f func(string) string) Tamper {
		return Tamper{Name: name, Want: []verify.Kind{want}, Shows: InRecord, Change: func(_ testing.TB, d *Deployment) {
			h := d.DAGs[3].Headers
			h[evidence.HeaderProof] = f(h[evidence.HeaderProof])
		}}
	}
	line := func(n int, f func(string) string) func(string) string {
		return func(s string) string {
			l := strings.Split(s, "\n")
			l[n] = f(l[n])
			return strings.Join(l, "\n")
		}
	}
	return []Tamper{
		{Name: "no proof", Want: []verify.Kind{verify.BadProof}, Shows: InRecord, Change: func(_ testing.TB, d *Deployment) { delete(d.DAGs[3].Headers, evidence.HeaderProof) }},
		mk("empty proof", verify.BadProof, func(string) string { return "" }),
		mk("proof of the next DAG", verify.NotIncluded, sub("index 3\n", "index 4\n")),
		mk("proof of the DAG before", verify.NotIncluded, sub("index 3\n", "index 2\n")),
		mk("index beyond the log", verify.NotIncluded, sub("index 3\n", "index 3000\n")),
		mk("index with a leading zero", verify.BadProof, sub("index 3\n", "index 03\n")),
		mk("another proof format", verify.BadProof, sub("tlog-proof@v1", "tlog-proof@v2")),
		mk("an extra line", verify.BadProof, sub("index 3\n", "extra AAAA\nindex 3\n")),
		mk("a proof hash flipped", verify.NotIncluded, line(2, func(s string) string { return "A" + s[1:] })),
		mk("a proof hash dropped", verify.NotIncluded, func(s string) string {
			l := strings.Split(s, "\n")
			return strings.Join(slices.Delete(l, 2, 3), "\n")
		}),
		mk("a proof hash repeated", verify.NotIncluded, func(s string) string {
			l := strings.Split(s, "\n")
			return strings.Join(slices.Insert(l, 2, l[2]), "\n")
		}),
		mk("proof hashes swapped", verify.NotIncluded, func(s string) string {
			l := strings.Split(s, "\n")
			l[2], l[3] = l[3], l[2]
			return strings.Join(l, "\n")
		}),
		mk("the checkpoint cut off", verify.BadProof, func(s string) string { return s[:strings.Index(s, "\n\n")+2] }),
		mk("the checkpoint's signature cut off", verify.BadCheckpoint, func(s string) string { return s[:strings.Index(s, "— ")] }),
		mk("the checkpoint's size changed", verify.BadCheckpoint, sub("prov.dags/0\n5\n", "prov.dags/0\n6\n")),
		mk("the checkpoint's signature flipped", verify.BadCheckpoint, func(s string) string {
			i := strings.LastIndexByte(s, ' ') + 20
			return s[:i] + map[bool]string{true: "B", false: "A"}[s[i] == 'A'] + s[i+1:]
		}),
		mk("the checkpoint under another key name", verify.UnknownKey, func(s string) string {
			return strings.Replace(s, "— provstream/prov.dags/0", "— evil/prov.dags/0", 1)
		}),
	}
}

func checkpointTampers(d *Deployment) []Tamper {
	// Heads of the DAG log of partition 0: every second record.
	mk := func(name string, want []verify.Kind, f func([]Line) []Line) Tamper {
		return Tamper{Name: "checkpoints: " + name, Want: want, Shows: InTopics, Change: func(_ testing.TB, d *Deployment) { d.Checkpoints = f(d.Checkpoints) }}
	}
	one := func(i int, name string, want []verify.Kind, f func(*Line)) Tamper {
		return mk(name, want, func(l []Line) []Line { f(&l[i]); return l })
	}
	value := func(f func(string) string) func(*Line) { return func(l *Line) { l.Value = f(l.Value) } }
	bad, place := []verify.Kind{verify.BadCheckpoint}, []verify.Kind{verify.WrongPlace}
	end := slices.IndexFunc(d.Checkpoints, func(l Line) bool { return l.Partition == 1 })
	return []Tamper{
		one(0, "size flipped", bad, value(sub("\n5\n", "\n4\n"))),
		one(0, "root flipped", bad, value(func(s string) string { i := strings.Index(s, "\n5\n") + 3; return s[:i] + flip(s[i:i+20]) + s[i+20:] })),
		one(0, "origin flipped", []verify.Kind{verify.UnknownKey, verify.BadCheckpoint}, value(sub("provstream/prov.dags/0\n", "provstream/prov.dags/1\n"))),
		one(0, "signature flipped", bad, value(func(s string) string {
			i := strings.LastIndexByte(s, ' ') + 30
			return s[:i] + flip(s[i:i+20]) + s[i+20:]
		})),
		one(0, "an extension line", bad, value(func(s string) string { return strings.Replace(s, "\n\n", "\nextension\n\n", 1) })),
		one(0, "a second signature line", bad, value(func(s string) string { return s + s[strings.Index(s, "— "):] })),
		one(0, "signature with other unused bits", bad, value(func(s string) string { i := strings.LastIndexByte(s, '='); return s[:i-1] + string(s[i-1]+1) + s[i:] })),
		one(0, "truncated", bad, value(func(s string) string { return s[:len(s)/2] })),
		one(0, "empty", bad, value(func(string) string { return "" })),
		one(2, "frontier flipped", []verify.Kind{verify.BadProof}, func(l *Line) { l.Headers[evidence.HeaderFrontier] = flip(l.Headers[evidence.HeaderFrontier]) }),
		one(2, "frontier of the head before", []verify.Kind{verify.BadProof}, func(l *Line) { l.Headers[evidence.HeaderFrontier] = "" }),
		one(2, "consistency flipped", []verify.Kind{verify.NotConsistent, verify.BadProof}, func(l *Line) {
			l.Headers[evidence.HeaderConsistency] = flip(l.Headers[evidence.HeaderConsistency])
		}),
		one(2, "consistency removed", []verify.Kind{verify.BadProof}, func(l *Line) { delete(l.Headers, evidence.HeaderConsistency) }),
		one(0, "consistency given to the first", place, func(l *Line) { l.Headers[evidence.HeaderConsistency] = "" }),
		mk("the first dropped", place, func(l []Line) []Line { return l[1:] }),
		mk("one dropped", []verify.Kind{verify.NotConsistent}, func(l []Line) []Line { return slices.Delete(l, 2, 3) }),
		mk("the last of a partition dropped", []verify.Kind{verify.Truncated}, func(l []Line) []Line { return slices.Delete(l, end-2, end-1) }),
		mk("one repeated", place, func(l []Line) []Line { return slices.Insert(l, 2, l[2].Clone()) }),
		mk("two swapped", []verify.Kind{verify.WrongPlace, verify.NotConsistent, verify.Truncated}, func(l []Line) []Line { l[2], l[4] = l[4], l[2]; return l }),
		mk("the first two swapped", []verify.Kind{verify.WrongPlace}, func(l []Line) []Line { l[0], l[2] = l[2], l[0]; return l }),
		mk("one in another partition", []verify.Kind{verify.WrongPlace, verify.WrongOrigin}, func(l []Line) []Line { l[0].Partition = 1; return append(l[1:], l[0]) }),
		mk("one of another log", []verify.Kind{verify.WrongPlace, verify.Truncated, verify.NotConsistent}, func(l []Line) []Line {
			l[0].Value, l[0].Headers = l[1].Value, l[1].Headers
			return l
		}),
		mk("signed by another log key", []verify.Kind{verify.UnknownKey}, func(l []Line) []Line {
			l[0].Value = strings.Replace(l[0].Value, "— provstream/prov.dags/0 ", "— provstream/prov.dags/0 AAAA", 1)
			l[0].Value = l[0].Value[:len(l[0].Value)-5] + "\n"
			return l
		}),
		mk("a coverage head dropped", []verify.Kind{verify.NotConsistent}, func(l []Line) []Line { return slices.Delete(l, 3, 4) }),
	}
}

// historyTampers are what the holder of every key can do: they show only to
// one who has kept a head.
func historyTampers() []Tamper {
	return []Tamper{
		{Name: "the tail of every topic cut at an earlier head", Want: []verify.Kind{verify.Truncated}, Shows: InHistory, Change: func(_ testing.TB, d *Deployment) {
			d.DAGs = slices.DeleteFunc(d.DAGs, func(l Line) bool { return l.Offset >= 6 })
			d.Checkpoints = slices.DeleteFunc(d.Checkpoints, func(l Line) bool { return l.Offset >= 4 })
		}},
		{Name: "a log rewritten with all keys", Want: []verify.Kind{verify.Forked}, Shows: InHistory, Change: func(t testing.TB, d *Deployment) {
			f := &Deployment{Ring: d.Ring}
			f.partitionFrom(t, 0, []int{5, 1, 4, 6}, 77)
			d.DAGs = append(f.DAGs, slices.DeleteFunc(d.DAGs, func(l Line) bool { return l.Partition == 0 })...)
			d.Checkpoints = append(f.Checkpoints, slices.DeleteFunc(d.Checkpoints, func(l Line) bool { return l.Partition == 0 })...)
		}},
		{Name: "everything gone", Want: []verify.Kind{verify.Truncated}, Shows: InHistory, Change: func(_ testing.TB, d *Deployment) {
			d.DAGs = slices.DeleteFunc(d.DAGs, func(l Line) bool { return l.Partition == 1 })
			d.Checkpoints = slices.DeleteFunc(d.Checkpoints, func(l Line) bool { return l.Partition == 1 })
		}},
	}
}
