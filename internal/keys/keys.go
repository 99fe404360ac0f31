// Package keys holds the private side of the evidence: key files, the
// directory that a signer loads them from, and their rotation. The public
// side (JWK, thumbprint, validity) is that of package verify.
//
// A key directory is flat, so that it can be a mounted secret:
//
//	log.pem              the log key: signs checkpoints
//	dag.pem              the deployment's DAG key
//	dag.<tenant>.pem     a tenant's DAG key; the tenant path-escaped
//	log.jwk.json, …      the public half of each of them
//	<kid>.jwk.json       a public key that was in use before, with its status
//	<kid>.retired.pem    a private key that rotation has put aside; nothing
//	                     opens it again
//
// Private files are PKCS#8 PEM (`openssl genpkey -algorithm ed25519` makes
// such a file) and must be readable by their owner alone. A [Ring] is what a
// signer has loaded; it never changes. Rotation is loading the directory again
// ([Load]) when its [Stamp] has changed and going on with the new Ring: the
// files are replaced by rename, so each load sees the old key or the new one.
package keys

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"provstream/verify"
)

// File names of a key directory.
const (
	LogFile       = "log.pem"
	DAGFile       = "dag.pem"
	tenantPrefix  = "dag."
	pemSuffix     = ".pem"
	jwkSuffix     = ".jwk.json"
	retiredSuffix = ".retired.pem"
)

// TenantFile is the name of the file with a tenant's DAG key.
func TenantFile(tenant string) string { return tenantPrefix + url.PathEscape(tenant) + pemSuffix }

// Private is a key that can sign.
type Private struct {
	verify.Key
	Signer ed25519.PrivateKey
}

// Generate makes a new key. Its id does not begin with a hyphen, so that it
// can be typed on a command line.
func Generate(use verify.Use, tenant string) (*Private, error) {
	for {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("generate key: %w", err)
		}
		if k, err := newPrivate(private, public, use, tenant); err != nil || k.ID[0] != '-' {
			return k, err
		}
	}
}

// FromSeed makes the key of a fixed seed: for tests and demonstrations.
func FromSeed(seed []byte, use verify.Use, tenant string) (*Private, error) {
	if len(seed) != ed25519.SeedSize {
		return nil, fmt.Errorf("key from seed: %d bytes, want %d", len(seed), ed25519.SeedSize)
	}
	private := ed25519.NewKeyFromSeed(seed)
	return newPrivate(private, private.Public().(ed25519.PublicKey), use, tenant)
}

func newPrivate(private ed25519.PrivateKey, public ed25519.PublicKey, use verify.Use, tenant string) (*Private, error) {
	k, err := verify.NewKey(public, use, tenant)
	if err != nil {
		return nil, err
	}
	return &Private{Key: k, Signer: private}, nil
}

// ErrMode is wrapped when a private key file can be read by others.
var ErrMode = errors.New("private key file is open to others")

// ReadPrivate reads a PKCS#8 PEM file. A file that group or others may read is
// refused: the key must count as leaked, or the mode is a mistake.
func ReadPrivate(path string, use verify.Use, tenant string) (*Private, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("private key %s: %w (mode %04o): run chmod 600 on it, or replace the key if others may have read it", path, ErrMode, info.Mode().Perm())
	}
	if info.Size() > 1<<16 {
		return nil, fmt.Errorf("private key %s: %d bytes: this is no key file", path, info.Size())
	}
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	k, err := parsePrivate(text, use, tenant)
	if err != nil {
		return nil, fmt.Errorf("private key %s: %w", path, err)
	}
	return k, nil
}

func parsePrivate(text []byte, use verify.Use, tenant string) (*Private, error) {
	block, rest := pem.Decode(text)
	switch {
	case block == nil:
		return nil, errors.New("no PEM block")
	case block.Type == "ENCRYPTED PRIVATE KEY":
		return nil, errors.New("encrypted PEM is not supported; decrypt it with openssl pkey into a file of mode 0600")
	case block.Type != "PRIVATE KEY":
		return nil, fmt.Errorf("PEM block %q, want PRIVATE KEY (PKCS#8)", block.Type)
	case len(strings.TrimSpace(string(rest))) > 0:
		return nil, errors.New("more than one PEM block")
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("not PKCS#8: %w", err)
	}
	private, ok := k.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%T, want Ed25519 (openssl genpkey -algorithm ed25519)", k)
	}
	return newPrivate(private, private.Public().(ed25519.PublicKey), use, tenant)
}

// WritePrivate writes the key to a new file of mode 0600. It never overwrites.
func WritePrivate(path string, k *Private) error {
	der, err := x509.MarshalPKCS8PrivateKey(k.Signer)
	if err != nil {
		return fmt.Errorf("write private key: %w", err)
	}
	return writeNew(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

func writeNew(path string, data []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// Ring is the set of keys that a signer works with. It never changes.
type Ring struct {
	log     *Private
	dag     *Private
	tenants map[string]*Private
	public  []verify.Key // every public key of the directory
}

// NewRing makes a ring from keys in memory: for tests and for services that
// run in one process. dag may be nil when every tenant has a key.
func NewRing(log, dag *Private, tenants ...*Private) (*Ring, error) {
	r := &Ring{log: log, dag: dag, tenants: make(map[string]*Private)}
	if log == nil || log.Use != verify.UseLog {
		return nil, errors.New("keys: no log key")
	}
	r.public = append(r.public, log.Key)
	if dag != nil {
		if dag.Use != verify.UseDAG || dag.Tenant != "" {
			return nil, errors.New("keys: the deployment's DAG key has another use or a tenant")
		}
		r.public = append(r.public, dag.Key)
	}
	for _, t := range tenants {
		if t.Use != verify.UseDAG || t.Tenant == "" {
			return nil, errors.New("keys: a tenant's DAG key has another use or no tenant")
		}
		if r.tenants[t.Tenant] != nil {
			return nil, fmt.Errorf("keys: two DAG keys for tenant %q", t.Tenant)
		}
		r.tenants[t.Tenant] = t
		r.public = append(r.public, t.Key)
	}
	if dag == nil && len(r.tenants) == 0 {
		return nil, errors.New("keys: no DAG key")
	}
	return r, nil
}

// readDir lists a key directory.
func readDir(dir string) ([]fs.DirEntry, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("key directory: %w: make it with provctl keys new --dir %s", err, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("key directory: %w", err)
	}
	return entries, nil
}

// Load reads a key directory.
func Load(dir string) (*Ring, error) {
	entries, err := readDir(dir)
	if err != nil {
		return nil, err
	}
	var log, dag *Private
	var tenants []*Private
	var public []verify.Key
	var errs []error
	for _, e := range entries {
		name, path := e.Name(), filepath.Join(dir, e.Name())
		var err error
		switch {
		case strings.HasSuffix(name, retiredSuffix):
		case strings.HasSuffix(name, pemSuffix):
			var k *Private
			switch k, err = readSlot(dir, name); {
			case k == nil:
			case k.Use == verify.UseLog:
				log = k
			case k.Tenant == "":
				dag = k
			default:
				tenants = append(tenants, k)
			}
		case strings.HasSuffix(name, jwkSuffix):
			var k verify.Key
			if k, err = readJWK(path); err == nil {
				public = append(public, k)
			}
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("key directory %s: %w", dir, err)
	}
	r, err := NewRing(log, dag, tenants...)
	if err != nil {
		return nil, fmt.Errorf("key directory %s: %w: make the missing one with provctl keys new --dir %s", dir, err, dir)
	}
	if err := r.merge(public); err != nil {
		return nil, fmt.Errorf("key directory %s: %w", dir, err)
	}
	return r, nil
}

func readTenant(path, name string) (*Private, error) {
	tenant, err := url.PathUnescape(strings.TrimSuffix(strings.TrimPrefix(name, tenantPrefix), pemSuffix))
	if err != nil || tenant == "" {
		return nil, fmt.Errorf("private key %s: the file name has no path-escaped tenant", path)
	}
	return ReadPrivate(path, verify.UseDAG, tenant)
}

func readJWK(path string) (verify.Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return verify.Key{}, fmt.Errorf("public key: %w", err)
	}
	k, err := verify.ParseJWK(text)
	if err != nil {
		return verify.Key{}, fmt.Errorf("public key %s: %w", path, err)
	}
	return k, nil
}

// merge takes over what the public files say of the private keys, and the
// keys that have no private file any more.
func (r *Ring) merge(public []verify.Key) error {
	for _, k := range public {
		i := slices.IndexFunc(r.public, func(o verify.Key) bool { return o.ID == k.ID && o.Use == k.Use && o.Tenant == k.Tenant })
		if i < 0 {
			r.public = append(r.public, k)
			continue
		}
		if k.Status != verify.StatusActive {
			return fmt.Errorf("key %s is %s and must not sign: rotate it with provctl keys new --rotate", k.ID, k.Status)
		}
		r.public[i] = k
	}
	slices.SortFunc(r.public, compareKeys)
	return nil
}

func compareKeys(a, b verify.Key) int {
	if c := strings.Compare(string(a.Use), string(b.Use)); c != 0 {
		return c
	}
	if c := strings.Compare(a.Tenant, b.Tenant); c != 0 {
		return c
	}
	return strings.Compare(a.ID, b.ID)
}

// DAG returns the key that signs a tenant's DAGs: its own, else the
// deployment's.
func (r *Ring) DAG(tenant string) (*Private, error) {
	if k := r.tenants[tenant]; k != nil {
		return k, nil
	}
	if r.dag == nil {
		return nil, fmt.Errorf("no DAG key for tenant %q and none for the deployment: put %s or %s into the key directory", tenant, TenantFile(tenant), DAGFile)
	}
	return r.dag, nil
}

// Log returns the key that signs checkpoints.
func (r *Ring) Log() *Private { return r.log }

// Public returns every public key of the ring, those of earlier private keys
// too.
func (r *Ring) Public() []verify.Key { return slices.Clone(r.public) }

// Verifier returns the ring's own keys as pinned keys.
func (r *Ring) Verifier() (*verify.Keys, error) { return verify.NewKeys(r.public...) }

// Stamp changes whenever a file of the directory does; it opens none of them.
func Stamp(dir string) (string, error) {
	entries, err := readDir(dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("key directory: %w", err)
		}
		fmt.Fprintf(&b, "%s %d %d %o\n", e.Name(), info.Size(), info.ModTime().UnixNano(), info.Mode())
	}
	return b.String(), nil
}
