package kindgi

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"provstream/internal/jcs"
)

// bundleVersion is the version of the body of a signed export that is made.
const bundleVersion = "1.2.0"

// ExportKeyID names an export key: "ex_" and the first 16 characters of
// base64url of SHA-256 of the public key. A name, not a proof.
func ExportKeyID(public ed25519.PublicKey) string {
	sum := sha256.Sum256(public)
	return "ex_" + base64.RawURLEncoding.EncodeToString(sum[:])[:16]
}

// Export makes Kindgi's signed-export envelope of the document that was read
// last: another signature than that of the DAG, over another body, in the form
// that Kindgi's own tools verify. It says nothing about the DAG's signature;
// verify that first.
func (r *Reader) Export(key ed25519.PrivateKey, at time.Time) ([]byte, error) {
	if len(r.buf) == 0 || r.ID.End == 0 {
		return nil, errors.New("export: no document was read")
	}
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("export: not an Ed25519 key")
	}
	exported := at.UTC().Format("2006-01-02T15:04:05.000Z")
	body := make([]byte, 0, len(r.buf)+256)
	raw := func(text string) { body = append(body, text...) }
	span := func(name string, s Span) {
		raw(name)
		body = append(body, r.Bytes(s)...)
	}
	raw(`{"bundleSchemaVersion":"` + bundleVersion + `"`)
	span(`,"createdAt":"`, r.CreatedAt)
	span(`","dag":{"edges":`, r.edges)
	span(`,"nodes":`, r.nodes)
	raw(`},"exportedAt":"` + exported + `"`)
	if r.FlowRef.End > r.FlowRef.Start {
		span(`,"flowRef":`, r.FlowRef)
	}
	span(`,"provenanceId":"`, r.ID)
	span(`","runId":"`, r.RunID)
	span(`","tenantId":"`, r.TenantID)
	raw(`","version":"` + Version + `"}`)
	// The body was put together from canonical pieces; that the whole is
	// canonical is checked, not believed.
	if again, err := jcs.Canonicalize(nil, body); err != nil || string(again) != string(body) {
		return nil, fmt.Errorf("export: the body is not canonical: %w", errors.Join(err, errors.New("a fault of this program")))
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	var out []byte
	member := func(name, value string) {
		out = append(out, name...)
		out = jcs.AppendString(out, value)
	}
	member(`{"algorithm":`, "ed25519")
	member(`,"bundle":`, base64.StdEncoding.EncodeToString(body))
	member(`,"bundleSchemaVersion":`, bundleVersion)
	member(`,"canonicalization":`, "sorted-key-json")
	member(`,"exportedAt":`, exported)
	member(`,"kind":`, "provenance")
	member(`,"publicKey":`, string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
	member(`,"runId":`, r.Text(r.RunID))
	member(`,"signature":`, base64.StdEncoding.EncodeToString(ed25519.Sign(key, body)))
	member(`,"signingKeyId":`, ExportKeyID(public))
	return append(out, '}'), nil
}
