package keys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"provstream/verify"
)

// slot is the base name of a key's files: the current key of a use and tenant
// has the files <slot>.pem and <slot>.jwk.json.
func slot(use verify.Use, tenant string) string {
	if use == verify.UseLog {
		return strings.TrimSuffix(LogFile, pemSuffix)
	}
	if tenant == "" {
		return strings.TrimSuffix(DAGFile, pemSuffix)
	}
	return strings.TrimSuffix(TenantFile(tenant), pemSuffix)
}

// ErrExists is wrapped when a key would be overwritten.
var ErrExists = errors.New("there is a key already")

// Create puts the first key of a use and tenant into the directory, which is
// made if need be.
func Create(dir string, use verify.Use, tenant string) (*Private, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("key directory: %w", err)
	}
	k, err := Generate(use, tenant)
	if err != nil {
		return nil, err
	}
	base := filepath.Join(dir, slot(use, tenant))
	if _, err := os.Lstat(base + pemSuffix); err == nil {
		return nil, fmt.Errorf("%s: %w: replace it with --rotate", base+pemSuffix, ErrExists)
	}
	// A public key whose private key was lost stays: what it has signed is still
	// to be verified, by the signer too.
	if old, err := readJWK(base + jwkSuffix); err == nil {
		if err := replace(filepath.Join(dir, old.ID+jwkSuffix), append(old.JWK(), '\n'), 0o644); err != nil {
			return nil, err
		}
	}
	return k, install(base, k)
}

// install puts both files in place, the public one first: whoever finds the
// private key finds the public one too.
func install(base string, k *Private) error {
	if err := replace(base+jwkSuffix, append(k.JWK(), '\n'), 0o644); err != nil {
		return err
	}
	tmp := base + ".new"
	_ = os.Remove(tmp) // of a run that was killed
	if err := WritePrivate(tmp, k); err != nil {
		return fmt.Errorf("write private key: %w", err)
	}
	if err := os.Rename(tmp, base+pemSuffix); err != nil {
		return errors.Join(fmt.Errorf("write private key: %w", err), os.Remove(tmp))
	}
	return nil
}

// replace writes a file so that a reader sees the old or the new content.
func replace(path string, data []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".tmp-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Prepare makes the next key of a use and tenant without putting it in place,
// so that it can be published before it signs anything.
func Prepare(dir string, use verify.Use, tenant string) (*Private, error) {
	if _, err := os.Stat(filepath.Join(dir, slot(use, tenant)+pemSuffix)); err != nil {
		return nil, fmt.Errorf("rotate: there is no key to replace: %w", err)
	}
	return Generate(use, tenant)
}

// Rotate puts next in the place of the current key of its use and tenant. The
// old private key stays beside it as <kid>.retired.pem, which nothing opens,
// and its public half as <kid>.jwk.json, still active: retire it when the
// signer has taken the new one. It returns the old public key.
func Rotate(dir string, next *Private) (old verify.Key, err error) {
	base := filepath.Join(dir, slot(next.Use, next.Tenant))
	if old, err = currentPublic(dir, next.Use, next.Tenant); err != nil {
		return old, fmt.Errorf("rotate: %w", err)
	}
	keep := filepath.Join(dir, old.ID)
	if err := replace(keep+jwkSuffix, append(old.JWK(), '\n'), 0o644); err != nil {
		return old, err
	}
	// A second name for the old file, so that the slot is never empty.
	if err := os.Link(base+pemSuffix, keep+retiredSuffix); err != nil && !errors.Is(err, fs.ErrExist) {
		return old, fmt.Errorf("rotate: %w", err)
	}
	return old, install(base, next)
}

// currentPublic is the public half of the key in a slot.
func currentPublic(dir string, use verify.Use, tenant string) (verify.Key, error) {
	base := filepath.Join(dir, slot(use, tenant))
	if k, err := readJWK(base + jwkSuffix); err == nil {
		return k, nil
	}
	p, err := ReadPrivate(base+pemSuffix, use, tenant)
	if err != nil {
		return verify.Key{}, err
	}
	return p.Key, nil
}

// Entry is a public key of a directory.
type Entry struct {
	verify.Key
	File    string // its JWK; "" for a private key that has none yet
	Current bool   // its private key is in place
}

// List returns the public keys of a directory. Of a private key without a
// public file (one made by openssl) the public half is computed.
func List(dir string) ([]Entry, error) {
	files, err := readDir(dir)
	if err != nil {
		return nil, err
	}
	var out []Entry
	have := map[string]bool{}
	for _, f := range files {
		if base, ok := strings.CutSuffix(f.Name(), jwkSuffix); ok {
			k, err := readJWK(filepath.Join(dir, f.Name()))
			if err != nil {
				return nil, err
			}
			current := base == slot(k.Use, k.Tenant)
			if current {
				_, err := os.Stat(filepath.Join(dir, base+pemSuffix))
				current = err == nil
			}
			have[base] = true
			out = append(out, Entry{k, filepath.Join(dir, f.Name()), current})
		}
	}
	for _, f := range files {
		base, ok := strings.CutSuffix(f.Name(), pemSuffix)
		if !ok || have[base] || strings.HasSuffix(f.Name(), retiredSuffix) {
			continue
		}
		k, err := readSlot(dir, f.Name())
		if err != nil {
			return nil, err
		}
		if k != nil {
			out = append(out, Entry{k.Key, "", true})
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return compareKeys(a.Key, b.Key) })
	return out, nil
}

// readSlot opens the private key of a file name; nil for other files.
func readSlot(dir, name string) (*Private, error) {
	path := filepath.Join(dir, name)
	switch {
	case name == LogFile:
		return ReadPrivate(path, verify.UseLog, "")
	case name == DAGFile:
		return ReadPrivate(path, verify.UseDAG, "")
	case strings.HasPrefix(name, tenantPrefix):
		return readTenant(path, name)
	}
	return nil, nil
}

// ErrCurrent is wrapped when a key that still signs would be put out of use.
var ErrCurrent = errors.New("the key is in place and signs: replace it first with provctl keys new --rotate")

// SetStatus marks a key of the directory, which must not be in place any more.
// to are the log indices, by origin, that it is not valid from on; origins
// that are not named keep theirs.
func SetStatus(dir, kid string, status verify.Status, to map[string]int64) (verify.Key, error) {
	list, err := List(dir)
	if err != nil {
		return verify.Key{}, err
	}
	i := slices.IndexFunc(list, func(e Entry) bool { return e.ID == kid })
	if i < 0 {
		return verify.Key{}, fmt.Errorf("key %s is not in %s", kid, dir)
	}
	e := list[i]
	if e.Current {
		return e.Key, fmt.Errorf("key %s: %w", kid, ErrCurrent)
	}
	k := e.Key
	if k.Status == verify.StatusCompromised && status != verify.StatusCompromised {
		return k, fmt.Errorf("key %s is compromised and stays so", kid)
	}
	k.Status = status
	ends := make(map[string]int64, len(k.To)+len(to))
	for _, m := range []map[string]int64{k.To, to} {
		for origin, n := range m {
			if before, ok := ends[origin]; !ok || n < before {
				ends[origin] = n
			}
		}
	}
	k.To = ends
	return k, replace(e.File, append(k.JWK(), '\n'), 0o644)
}

// ExportFile is the name of the export key, which signs Kindgi envelopes and
// nothing else. It is made once and kept out of prov.keys; its public half
// stands beside it in PEM.
const (
	ExportFile       = "export.pem"
	exportPublicFile = "export.pub.pem"
)

// CreateExport puts an export key into the directory.
func CreateExport(dir string) (*Private, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("key directory: %w", err)
	}
	k, err := Generate(verify.UseDAG, "")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, ExportFile)
	switch err := WritePrivate(path, k); {
	case errors.Is(err, fs.ErrExist):
		return nil, fmt.Errorf("%s: %w: move it away to replace it", path, ErrExists)
	case err != nil:
		return nil, fmt.Errorf("write private key: %w", err)
	}
	return k, replace(filepath.Join(dir, exportPublicFile), verify.PublicPEM(k.Public), 0o644)
}
