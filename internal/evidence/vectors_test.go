package evidence

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"provstream/internal/jcs"
	"provstream/internal/keys"
	"provstream/internal/kindgi"
	"provstream/internal/merkle"
	"provstream/verify"
)

// vectors are the signed DAGs that were made in Node from Kindgi's published
// list of signed members (key of RFC 8032 §7.1 test 1), the shared folder's
// derived-dag.json in short.
type vectors struct {
	Key struct {
		SeedHex, PublicKeyRawHex, PKCS8Base64, PublicKeyPem, ExportKeyID string
	}
	DAGs []struct {
		Name                              string
		Record                            json.RawMessage
		BytesUTF8, SHA256, SignatureValue string
		WithVersionSignatureValue         string
	}
	Export struct {
		BodyUTF8 string
		Envelope map[string]string
	}
}

func loadVectors(t *testing.T) *vectors {
	t.Helper()
	text, err := os.ReadFile("testdata/kindgi-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

func (v *vectors) private(t *testing.T) *keys.Private {
	t.Helper()
	seed, err := hex.DecodeString(v.Key.SeedHex)
	if err != nil {
		t.Fatal(err)
	}
	k, err := keys.FromSeed(seed, verify.UseDAG, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(k.Public); got != v.Key.PublicKeyRawHex {
		t.Fatalf("public key %s", got)
	}
	return k
}

// The signing bytes and signatures of the vectors come out of our Reader, and
// verify as foreign DAGs under our own key ids.
func TestVectors(t *testing.T) {
	v := loadVectors(t)
	key := v.private(t)
	if string(verify.PublicPEM(key.Public)) != v.Key.PublicKeyPem {
		t.Error("PEM differs from the vector's")
	}
	for _, d := range v.DAGs {
		signed, err := jcs.Canonicalize(nil, d.Record)
		if err != nil {
			t.Fatal(err)
		}
		r := kindgi.Reader{Foreign: true}
		if err := r.Read(signed); err != nil {
			t.Fatalf("%s: %v", d.Name, err)
		}
		message := r.AppendSigningBytes(nil)
		if string(message) != d.BytesUTF8 {
			t.Errorf("%s: signing bytes\n%s\nwant\n%s", d.Name, message, d.BytesUTF8)
		}
		if sum := sha256.Sum256(message); hex.EncodeToString(sum[:]) != d.SHA256 {
			t.Errorf("%s: hash of the signing bytes differs", d.Name)
		}
		if got := base64.StdEncoding.EncodeToString(ed25519.Sign(key.Signer, message)); got != d.SignatureValue {
			t.Errorf("%s: signature %s, want %s", d.Name, got, d.SignatureValue)
		}

		// With the vector's signature and our key id it verifies; with the
		// signature that covers version too it does not.
		pinned, err := verify.NewKeys(key.Key)
		if err != nil {
			t.Fatal(err)
		}
		ver := verify.NewVerifier(pinned)
		ver.Foreign = true
		for value, want := range map[string]verify.Kind{d.SignatureValue: "", d.WithVersionSignatureValue: verify.BadSignature} {
			text := strings.Replace(string(signed), r.Text(r.Signature), value, 1)
			text = strings.Replace(text, `"keyId":"acme-2026-10"`, `"keyId":"`+key.ID+`"`, 1)
			if _, err := ver.DAG([]byte(text)); verify.KindOf(err) != want {
				t.Errorf("%s: got %v, want %q", d.Name, err, want)
			}
		}
	}
}

// Our export of the second vector is its export, but for callUsage and the
// conversation, which no ACS hook tells.
func TestExportVector(t *testing.T) {
	v := loadVectors(t)
	key := v.private(t)
	if got := kindgi.ExportKeyID(key.Public); got != v.Key.ExportKeyID {
		t.Errorf("export key id %s, want %s", got, v.Key.ExportKeyID)
	}
	signed, err := jcs.Canonicalize(nil, v.DAGs[1].Record)
	if err != nil {
		t.Fatal(err)
	}
	r := kindgi.Reader{Foreign: true}
	if err := r.Read(signed); err != nil {
		t.Fatal(err)
	}
	at, err := time.Parse(time.RFC3339, v.Export.Envelope["exportedAt"])
	if err != nil {
		t.Fatal(err)
	}
	text, err := r.Export(key.Signer, at)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	body, err := base64.StdEncoding.DecodeString(got["bundle"])
	if err != nil {
		t.Fatal(err)
	}
	var ours, theirs map[string]json.RawMessage
	if json.Unmarshal(body, &ours) != nil || json.Unmarshal([]byte(v.Export.BodyUTF8), &theirs) != nil {
		t.Fatal("bodies are no JSON")
	}
	delete(theirs, "callUsage")
	delete(theirs, "messages")
	for name, want := range theirs {
		if string(ours[name]) != string(want) {
			t.Errorf("body member %s: %s, want %s", name, ours[name], want)
		}
	}
	if len(ours) != len(theirs) {
		t.Errorf("body has %d members, want %d", len(ours), len(theirs))
	}
	signature, _ := base64.StdEncoding.DecodeString(got["signature"])
	if !ed25519.Verify(key.Public, body, signature) {
		t.Error("the export's signature does not verify")
	}
	for _, name := range []string{"kind", "bundleSchemaVersion", "algorithm", "signingKeyId", "publicKey", "canonicalization", "exportedAt", "runId"} {
		if got[name] != v.Export.Envelope[name] {
			t.Errorf("envelope member %s: %q, want %q", name, got[name], v.Export.Envelope[name])
		}
	}
}

// The vectors here are those of the shared folder, where that exists.
func TestVectorsAreTheSharedOnes(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	text, err := os.ReadFile(filepath.Join(dir, "..", "shared", "vectors", "kindgi", "derived-dag.json"))
	if err != nil {
		t.Skip("SKIPPED: the folder shared is not beside the project")
	}
	var shared struct {
		DAGs []struct {
			SchemaTextProjection struct{ BytesUTF8, SHA256, SignatureValue string }
		}
	}
	if err := json.Unmarshal(text, &shared); err != nil {
		t.Fatal(err)
	}
	v := loadVectors(t)
	for i, d := range shared.DAGs {
		if p := d.SchemaTextProjection; p.BytesUTF8 != v.DAGs[i].BytesUTF8 || p.SignatureValue != v.DAGs[i].SignatureValue || p.SHA256 != v.DAGs[i].SHA256 {
			t.Errorf("vector %d differs", i)
		}
	}
}

// A DAG made by hand: three nodes, two edges, every byte written down. Its
// signature was computed with OpenSSL (pkeyutl -sign -rawin) over the bytes in
// hand-message.json with the key of the vectors.
func TestHandMadeDAG(t *testing.T) {
	v := loadVectors(t)
	key := v.private(t)
	read := func(name string) []byte {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return []byte(strings.TrimSuffix(string(b), "\n"))
	}
	logKey, err := keys.FromSeed(make([]byte, 32), verify.UseLog, "")
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keys.NewRing(logKey, key)
	if err != nil {
		t.Fatal(err)
	}
	log, err := NewLog("provstream/prov.dags/0")
	if err != nil {
		t.Fatal(err)
	}
	b, err := log.SignDAGs(ring, [][]byte{read("hand-unsigned.json")}, 1764000000000)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(b.Records[0].Value), string(read("hand-signed.json")); got != want {
		t.Errorf("signed DAG\n%s\nwant\n%s", got, want)
	}
	if got, want := string(b.Records[0].Proof), string(read("hand-proof.txt"))+"\n"; got != want {
		t.Errorf("proof\n%s\nwant\n%s", got, want)
	}
	if got := merkle.LeafHash(read("hand-unsigned.json")); b.Checkpoint.Root != got {
		t.Error("the root of one leaf is not its hash")
	}
}
