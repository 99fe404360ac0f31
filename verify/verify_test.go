package verify_test

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"

	"provstream/internal/evidence/evidencetest"
	"provstream/internal/jcs"
	"provstream/verify"
)

// The key of RFC 8037 appendix A, its JWK and its thumbprint.
func TestThumbprintOfRFC8037(t *testing.T) {
	const x, want = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo", "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
	k, err := verify.ParseJWK([]byte(`{"kty":"OKP","crv":"Ed25519","x":"` + x + `"}`))
	if err != nil {
		t.Fatal(err)
	}
	if k.ID != want || k.Use != verify.UseDAG || k.Status != verify.StatusActive {
		t.Errorf("%+v", k)
	}
	if got := hex.EncodeToString(k.Public); got != "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a" {
		t.Errorf("public key %s", got)
	}
}

func TestJWK(t *testing.T) {
	k := evidencetest.Key(t, 3, verify.UseDAG, "globex/é").Key
	k.Status, k.From, k.To = verify.StatusCompromised, map[string]int64{"p/prov.dags/0": 3}, map[string]int64{"p/prov.dags/1": 9, "p/prov.dags/0": 7}
	text := k.JWK()
	if again, err := jcs.Canonicalize(nil, text); err != nil || !bytes.Equal(again, text) {
		t.Errorf("not canonical: %s", text)
	}
	back, err := verify.ParseJWK(text)
	if err != nil || string(back.JWK()) != string(text) {
		t.Errorf("%s comes back as %s: %v", text, back.JWK(), err)
	}
	set, err := verify.ParseJWKS(verify.JWKS([]verify.Key{k, k}))
	if err != nil || len(set) != 2 {
		t.Errorf("set: %v", err)
	}
	if one, err := verify.ParseJWKS(text); err != nil || len(one) != 1 {
		t.Errorf("single key as a set: %v", err)
	}
	edit := func(old, new string) string { return strings.Replace(string(text), old, new, 1) }
	for name, bad := range map[string]string{
		"private":           edit(`"kty"`, `"d":"AAAA","kty"`),
		"another curve":     edit(`Ed25519`, `Ed448`),
		"another type":      edit(`OKP`, `EC`),
		"kid of another":    edit(`"kid":"`, `"kid":"A`),
		"unknown status":    edit(`compromised`, `resting`),
		"unknown use":       edit(`"use":"sig"`, `"use":"enc"`),
		"short x":           edit(`"x":"`, `"x":"AAAA","y":"`),
		"negative index":    edit(`:7,`, `:-7,`),
		"fraction of index": edit(`:7,`, `:7.5,`),
		"repeated member":   edit(`"kty":"OKP"`, `"kty":"OKP","kty":"OKP"`),
		"no JSON":           "-----BEGIN PUBLIC KEY-----",
		"log key of tenant": edit(`"use":"sig"`, `"use":"log"`),
	} {
		if bad == string(text) {
			t.Fatalf("%s: nothing changed", name)
		}
		if _, err := verify.ParseJWK([]byte(bad)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if p, err := verify.ParsePublicPEM(verify.PublicPEM(k.Public)); err != nil || !p.Equal(k.Public) {
		t.Errorf("PEM: %v", err)
	}
}

// The life of a key: when it may have signed what.
func TestKeyLife(t *testing.T) {
	d := evidencetest.New(t, 1, 5, 2)
	const origin = "provstream/prov.dags/0"
	at := func(n int64) map[string]int64 { return map[string]int64{origin: n} }
	l := d.DAGs[5] // index 5, in the head of size 7
	for _, c := range []struct {
		name        string
		use         verify.Use
		status      verify.Status
		from, to    map[string]int64
		dag, record verify.Kind
	}{
		{"active", verify.UseDAG, verify.StatusActive, nil, nil, "", ""},
		{"active from here on", verify.UseDAG, verify.StatusActive, at(5), nil, "", ""},
		{"active later", verify.UseDAG, verify.StatusActive, at(6), nil, "", verify.KeyRetired},
		{"retired", verify.UseDAG, verify.StatusRetired, nil, nil, "", ""},
		{"retired after", verify.UseDAG, verify.StatusRetired, nil, at(6), "", ""},
		{"retired before", verify.UseDAG, verify.StatusRetired, nil, at(5), "", verify.KeyRetired},
		{"compromised", verify.UseDAG, verify.StatusCompromised, nil, nil, verify.KeyExposed, verify.KeyExposed},
		{"compromised after", verify.UseDAG, verify.StatusCompromised, nil, at(6), verify.KeyExposed, ""},
		{"compromised before", verify.UseDAG, verify.StatusCompromised, nil, at(5), verify.KeyExposed, verify.KeyExposed},
		{"compromised after, of another log", verify.UseDAG, verify.StatusCompromised, nil, map[string]int64{"provstream/prov.dags/1": 9}, verify.KeyExposed, verify.KeyExposed},
		{"log key retired after", verify.UseLog, verify.StatusRetired, nil, at(7), "", ""},
		{"log key retired before", verify.UseLog, verify.StatusRetired, nil, at(6), "", verify.KeyRetired},
		{"log key compromised", verify.UseLog, verify.StatusCompromised, nil, nil, "", verify.KeyExposed},
		{"log key compromised after", verify.UseLog, verify.StatusCompromised, nil, at(7), "", ""},
		{"log key compromised before", verify.UseLog, verify.StatusCompromised, nil, at(6), "", verify.KeyExposed},
	} {
		keys := d.Ring.Public()
		for i := range keys {
			if keys[i].Use == c.use {
				keys[i].Status, keys[i].From, keys[i].To = c.status, c.from, c.to
			}
		}
		pinned, err := verify.NewKeys(keys...)
		if err != nil {
			t.Fatal(err)
		}
		v := verify.NewVerifier(pinned)
		if _, err := v.DAG([]byte(l.Value)); verify.KindOf(err) != c.dag {
			t.Errorf("%s: DAG alone: %v, want %q", c.name, err, c.dag)
		}
		if _, err := v.Record([]byte(l.Value), []byte(l.Headers["tlog-proof"])); verify.KindOf(err) != c.record {
			t.Errorf("%s: with its proof: %v, want %q", c.name, err, c.record)
		}
	}
	// A key that is pinned twice is as bad as its worst entry.
	keys := d.Ring.Public()
	for _, k := range d.Ring.Public() {
		if k.Use == verify.UseDAG {
			k.Status = verify.StatusCompromised
			keys = append(keys, k)
		}
	}
	pinned, err := verify.NewKeys(keys...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verify.NewVerifier(pinned).DAG([]byte(l.Value)); verify.KindOf(err) != verify.KeyExposed {
		t.Errorf("pinned twice: %v", err)
	}
}

// What no signature covers can be changed without anybody seeing it; the
// documentation says so.
func TestSignedAtIsNotCovered(t *testing.T) {
	d := evidencetest.New(t, 1, 3)
	l := d.DAGs[0]
	pinned, err := d.Ring.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	i := strings.Index(l.Value, `"signedAt":"2025`)
	changed := l.Value[:i+len(`"signedAt":"`)] + "1999" + l.Value[i+len(`"signedAt":"2025`):]
	r, err := verify.NewVerifier(pinned).Record([]byte(changed), []byte(l.Headers["tlog-proof"]))
	if err != nil || !strings.HasPrefix(r.SignedAt, "1999") {
		t.Errorf("%v", err)
	}
}

func TestConsistencyKinds(t *testing.T) {
	a := verify.Checkpoint{Origin: "d/t/0", Size: 4, Root: verify.Hash{1}}
	for _, c := range []struct {
		name  string
		later verify.Checkpoint
		proof []verify.Hash
		want  verify.Kind
	}{
		{"the same", a, nil, ""},
		{"the same with a proof", a, []verify.Hash{{}}, verify.BadProof},
		{"another root", verify.Checkpoint{Origin: "d/t/0", Size: 4, Root: verify.Hash{2}}, nil, verify.Forked},
		{"smaller", verify.Checkpoint{Origin: "d/t/0", Size: 3}, nil, verify.Truncated},
		{"another log", verify.Checkpoint{Origin: "d/t/1", Size: 5}, nil, verify.WrongOrigin},
		{"no proof", verify.Checkpoint{Origin: "d/t/0", Size: 5}, nil, verify.NotConsistent},
		{"a wrong proof", verify.Checkpoint{Origin: "d/t/0", Size: 5}, []verify.Hash{{3}}, verify.NotConsistent},
	} {
		if err := verify.Consistency(a, c.later, c.proof); verify.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	if err := verify.Consistency(verify.Checkpoint{Origin: "d/t/0"}, a, nil); err != nil {
		t.Errorf("from nothing: %v", err)
	}
}

func TestParseCoverage(t *testing.T) {
	good := verify.Coverage{Topic: "acs.hooks.ü", Partition: 2, From: 5, To: 9, Records: 3, Steps: 4, Rejected: 1, DeadLetters: 2, Dropped: 7, ValuesHash: [32]byte{9}}
	gap := verify.Coverage{Topic: "acs.decisions", From: 1, To: 2, Gap: true}
	for _, c := range []verify.Coverage{good, gap} {
		text := c.Append(nil)
		if again, err := jcs.Canonicalize(nil, text); err != nil || !bytes.Equal(again, text) {
			t.Errorf("not canonical: %s", text)
		}
		if back, err := verify.ParseCoverage(text); err != nil || back != c {
			t.Errorf("%s comes back as %+v: %v", text, back, err)
		}
	}
	text := string(good.Append(nil))
	edit := func(old, new string) string { return strings.Replace(text, old, new, 1) }
	for name, bad := range map[string]string{
		"empty":            "",
		"no range":         edit(`"to":9`, `"to":5`),
		"negative":         edit(`"from":5`, `"from":-5`),
		"too many records": edit(`"records":3`, `"records":5`),
		"more rejected":    edit(`"rejected":1`, `"rejected":5`),
		"a member too few": edit(`"steps":4,`, ``),
		"an unknown one":   edit(`"steps":4,`, `"steps":4,"story":1,`),
		"a repeated one":   edit(`"steps":4,`, `"steps":4,"steps":4,`),
		"another order":    edit(`"steps":4,"to":9`, `"to":9,"steps":4`),
		"a space":          edit(`"steps":4`, `"steps": 4`),
		"a fraction":       edit(`"steps":4`, `"steps":4.0`),
		"half a gap":       edit(`"from":5`, `"from":5,"gap":true`),
		"gap false":        edit(`"from":5`, `"from":5,"gap":false`),
		"upper case hex":   edit(`"0900`, `"0A00`),
		"short hash":       edit(`00"}`, `"}`),
		"trailing":         text + " ",
		"string number":    edit(`"steps":4`, `"steps":"4"`),
	} {
		if _, err := verify.ParseCoverage([]byte(bad)); verify.KindOf(err) != verify.BadCoverage {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseCoverage(f *testing.F) {
	for _, c := range []verify.Coverage{{Topic: "t", To: 1, Records: 1, Steps: 1}, {Topic: "t", From: 3, To: 4, Gap: true}} {
		f.Add(c.Append(nil))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := verify.ParseCoverage(text); err == nil && !bytes.Equal(c.Append(nil), text) {
			t.Errorf("accepted %q, writes %q", text, c.Append(nil))
		}
	})
}

// FuzzRecord looks for a panic, and for a record that is accepted though it is
// not the one that was signed.
func FuzzRecord(f *testing.F) {
	d := evidencetest.New(f, 1, 3)
	l := d.DAGs[1]
	pinned, err := d.Ring.Verifier()
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(l.Value), []byte(l.Headers["tlog-proof"]))
	f.Add([]byte(`{"createdAt":"`), []byte("c2sp.org/tlog-proof@v1\nindex 1\n\n"))
	f.Fuzz(func(t *testing.T, value, proof []byte) {
		r, err := verify.NewVerifier(pinned).Record(value, proof)
		if err != nil {
			if verify.KindOf(err) == "" {
				t.Errorf("an error without a kind: %v", err)
			}
			return
		}
		at := func(s string) string { // all but signedAt
			i := strings.Index(s, `"signedAt":"`)
			return s[:i] + s[i+len(`"signedAt":"2026-11-29T22:00:00.000Z"`):]
		}
		if r.Proof.Index != 1 || at(string(value)) != at(l.Value) {
			t.Errorf("accepted something that was not signed: %q", value)
		}
	})
}
