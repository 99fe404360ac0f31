package verify

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// Use says what a key signs.
type Use string

// A DAG key signs DAGs (and nothing else), a log key checkpoints (and nothing
// else). The words are those of the use member of the published JWKs.
const (
	UseDAG Use = "sig"
	UseLog Use = "log"
)

// Status is where a key is in its life.
type Status string

// A retired key signs no more; what it signed still verifies. A compromised
// key is good for what was logged before it leaked, and for nothing without a
// proof of when that was.
const (
	StatusActive      Status = "active"
	StatusRetired     Status = "retired"
	StatusCompromised Status = "compromised"
)

// Key is one public key that the verifier has been given.
type Key struct {
	// ID is the RFC 7638 thumbprint of the key as a JWK. It is computed, never
	// believed.
	ID     string
	Public ed25519.PublicKey
	Use    Use
	// Tenant binds a DAG key to one tenant; a key without tenant is the
	// deployment's and good for each of its tenants.
	Tenant string
	Status Status
	// From and To bound, per log origin, the log indices that the key may have
	// signed: From ≤ index < To. Of a checkpoint, that is the index of its last
	// leaf. An origin that is not in From has no lower bound. An origin that is
	// not in To has no upper bound, unless the key is compromised: then nothing
	// of that origin is good.
	From, To map[string]int64
}

// NewKey makes a key without bounds.
func NewKey(public ed25519.PublicKey, use Use, tenant string) (Key, error) {
	if len(public) != ed25519.PublicKeySize {
		return Key{}, fmt.Errorf("public key: %d bytes, an Ed25519 key has %d", len(public), ed25519.PublicKeySize)
	}
	if use != UseDAG && use != UseLog {
		return Key{}, fmt.Errorf("public key: unknown use %q, want %s or %s", use, UseDAG, UseLog)
	}
	return Key{ID: Thumbprint(public), Public: slices.Clone(public), Use: use, Tenant: tenant, Status: StatusActive}, nil
}

// Thumbprint is the key id: base64url of SHA-256 of the required members of
// the JWK in lexicographic order (RFC 7638 §3, RFC 8037 §2).
func Thumbprint(public ed25519.PublicKey) string {
	sum := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + base64.RawURLEncoding.EncodeToString(public) + `"}`))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// jwk is the JSON form (RFC 7517, RFC 8037) of a Key.
type jwk struct {
	KID    string           `json:"kid"`
	KTY    string           `json:"kty"`
	CRV    string           `json:"crv"`
	X      string           `json:"x"`
	D      string           `json:"d,omitzero"`
	Use    Use              `json:"use,omitzero"`
	Tenant string           `json:"tenant,omitzero"`
	Status Status           `json:"status,omitzero"`
	From   map[string]int64 `json:"from,omitzero"`
	To     map[string]int64 `json:"to,omitzero"`
}

// ParseJWK reads one public key in the form of the records of prov.keys.
// Members that are not ours are ignored, as RFC 7517 §4 wants; a repeated
// member, a private key, and a kid that is not the key's thumbprint are
// errors. A key without use is a DAG key, one without status is active.
func ParseJWK(text []byte) (Key, error) {
	var j jwk
	if err := json.Unmarshal(text, &j); err != nil {
		return Key{}, fmt.Errorf("jwk: %w", err)
	}
	return j.key()
}

func (j *jwk) key() (Key, error) {
	switch {
	case j.D != "":
		return Key{}, errors.New("jwk: this is a private key; give the verifier the public one and treat this file as leaked")
	case j.KTY != "OKP" || j.CRV != "Ed25519":
		return Key{}, fmt.Errorf("jwk %q: kty %q, crv %q: only OKP with Ed25519 is used here", j.KID, j.KTY, j.CRV)
	}
	x, err := base64.RawURLEncoding.Strict().DecodeString(j.X)
	if err != nil || strings.ContainsAny(j.X, "\r\n") || len(x) != ed25519.PublicKeySize {
		return Key{}, fmt.Errorf("jwk %q: x is not base64url of 32 bytes", j.KID)
	}
	if j.Use == "" {
		j.Use = UseDAG
	}
	k, err := NewKey(x, j.Use, j.Tenant)
	if err != nil {
		return Key{}, fmt.Errorf("jwk %q: %w", j.KID, err)
	}
	if j.KID != "" && j.KID != k.ID {
		return Key{}, fmt.Errorf("jwk %q: the kid is not the thumbprint of the key, which is %q", j.KID, k.ID)
	}
	switch j.Status {
	case "":
	case StatusActive, StatusRetired, StatusCompromised:
		k.Status = j.Status
	default:
		return Key{}, fmt.Errorf("jwk %q: unknown status %q", j.KID, j.Status)
	}
	if j.Use == UseLog && j.Tenant != "" {
		return Key{}, fmt.Errorf("jwk %q: a log key has no tenant", j.KID)
	}
	for _, m := range []map[string]int64{j.From, j.To} {
		for origin, n := range m {
			if n < 0 {
				return Key{}, fmt.Errorf("jwk %q: negative log index for %s", j.KID, origin)
			}
		}
	}
	k.From, k.To = j.From, j.To
	return k, nil
}

// JWK is the record of the key in prov.keys: its JSON form with the members
// in the order of RFC 8785. Bounds that there are none of are empty objects.
func (k Key) JWK() []byte {
	j := struct {
		CRV    string           `json:"crv"`
		From   map[string]int64 `json:"from"`
		KID    string           `json:"kid"`
		KTY    string           `json:"kty"`
		Status Status           `json:"status"`
		Tenant string           `json:"tenant,omitzero"`
		To     map[string]int64 `json:"to"`
		Use    Use              `json:"use"`
		X      string           `json:"x"`
	}{"Ed25519", k.From, k.ID, "OKP", k.Status, k.Tenant, k.To, k.Use, base64.RawURLEncoding.EncodeToString(k.Public)}
	b, err := json.Marshal(&j, json.Deterministic(true))
	if err != nil {
		panic("verify: " + err.Error()) // strings and integers only
	}
	return b
}

// ParseJWKS reads a JWK Set (RFC 7517 §5), or a single JWK.
func ParseJWKS(text []byte) ([]Key, error) {
	var set struct {
		Keys *[]jwk `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("jwks: %w", err)
	}
	if set.Keys == nil {
		k, err := ParseJWK(text)
		if err != nil {
			return nil, err
		}
		return []Key{k}, nil
	}
	keys := make([]Key, 0, len(*set.Keys))
	for i := range *set.Keys {
		k, err := (*set.Keys)[i].key()
		if err != nil {
			return nil, fmt.Errorf("jwks: key %d: %w", i, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// JWKS writes keys as a JWK Set.
func JWKS(keys []Key) []byte {
	b := []byte(`{"keys":[`)
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, k.JWK()...)
	}
	return append(b, `]}`...)
}

// ParsePublicPEM reads an Ed25519 public key in PEM (SubjectPublicKeyInfo), as
// `openssl pkey -pubout` writes it.
func ParsePublicPEM(text []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("public key: no PEM block")
	}
	if block.Type != "PUBLIC KEY" {
		return nil, fmt.Errorf("public key: PEM block %q, want PUBLIC KEY", block.Type)
	}
	k, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	p, ok := k.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("public key: %T, want Ed25519", k)
	}
	return p, nil
}

// PublicPEM writes a public key as `openssl pkey -pubout` does.
func PublicPEM(public ed25519.PublicKey) []byte {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		panic("verify: " + err.Error())
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

// Keys is the set of pinned keys. It does not change once it is made, and is
// safe for concurrent use.
type Keys struct {
	byID map[string][]Key // DAG keys; several when one key is bound to several tenants
	logs []Key
}

// NewKeys makes a set. A key that is given twice with contradicting status is
// taken at its worst.
func NewKeys(keys ...Key) (*Keys, error) {
	s := &Keys{byID: make(map[string][]Key)}
	for _, k := range keys {
		if k.ID != Thumbprint(k.Public) {
			return nil, fmt.Errorf("key %q: the id is not the key's thumbprint; make keys with NewKey or ParseJWK", k.ID)
		}
		switch k.Use {
		case UseLog:
			s.logs = append(s.logs, k)
		case UseDAG:
			s.byID[k.ID] = append(s.byID[k.ID], k)
		default:
			return nil, fmt.Errorf("key %s: unknown use %q", k.ID, k.Use)
		}
	}
	return s, nil
}

// All returns the keys, DAG keys first, by id.
func (s *Keys) All() []Key {
	var all []Key
	for _, ks := range s.byID {
		all = append(all, ks...)
	}
	slices.SortFunc(all, func(a, b Key) int {
		if c := strings.Compare(a.ID, b.ID); c != 0 {
			return c
		}
		return strings.Compare(a.Tenant, b.Tenant)
	})
	return append(all, s.logs...)
}

// covers tells whether the key may have signed that index of that log.
func (k *Key) covers(origin string, index int64) bool {
	if from, ok := k.From[origin]; ok && index < from {
		return false
	}
	to, ok := k.To[origin]
	if ok {
		return index < to
	}
	return k.Status != StatusCompromised
}
