package keys

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"provstream/verify"
)

func create(t *testing.T, dir string) (log, dag *Private) {
	t.Helper()
	var err error
	if log, err = Create(dir, verify.UseLog, ""); err != nil {
		t.Fatal(err)
	}
	if dag, err = Create(dir, verify.UseDAG, ""); err != nil {
		t.Fatal(err)
	}
	return log, dag
}

func TestCreateAndLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	log, dag := create(t, dir)
	own, err := Create(dir, verify.UseDAG, "acme air/é")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, verify.UseDAG, ""); !errors.Is(err, ErrExists) {
		t.Errorf("a second time: %v", err)
	}
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if r.Log().ID != log.ID {
		t.Error("log key")
	}
	for tenant, want := range map[string]string{"acme air/é": own.ID, "other": dag.ID, "": dag.ID} {
		if k, err := r.DAG(tenant); err != nil || k.ID != want {
			t.Errorf("key of %q: %v", tenant, err)
		}
	}
	if n := len(r.Public()); n != 3 {
		t.Errorf("%d public keys", n)
	}
	for _, f := range []string{LogFile, DAGFile, TenantFile("acme air/é")} {
		info, err := os.Stat(filepath.Join(dir, f))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", f, info.Mode(), err)
		}
	}
	if log.ID[0] == '-' || dag.ID[0] == '-' || own.ID[0] == '-' {
		t.Error("a key id that looks like a flag")
	}
}

// A private key that others can read is no private key.
func TestModeIsEnforced(t *testing.T) {
	dir := t.TempDir()
	create(t, dir)
	path := filepath.Join(dir, DAGFile)
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o644: false, 0o660: false, 0o610: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		_, err := Load(dir)
		if ok != (err == nil) || !ok && (!errors.Is(err, ErrMode) || !strings.Contains(err.Error(), "chmod 600")) {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

func TestReadPrivateRefuses(t *testing.T) {
	dir := t.TempDir()
	_, dag := create(t, dir)
	good, err := os.ReadFile(filepath.Join(dir, DAGFile))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":     {"", "no PEM block"},
		"public":    {string(verify.PublicPEM(dag.Public)), "want PRIVATE KEY"},
		"two":       {string(good) + string(good), "more than one"},
		"encrypted": {"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n", "encrypted"},
		"garbage":   {"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not PKCS#8"},
	} {
		path := filepath.Join(dir, "x.pem")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPrivate(path, verify.UseDAG, ""); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A directory without a key says which one and how to make it.
func TestLoadSaysWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "no log key") || !strings.Contains(err.Error(), "provctl keys new") {
		t.Errorf("empty: %v", err)
	}
	if _, err := Create(dir, verify.UseLog, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "no DAG key") {
		t.Errorf("log key alone: %v", err)
	}
	if _, err := Create(dir, verify.UseDAG, "acme"); err != nil {
		t.Fatal(err)
	}
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.DAG("other"); err == nil || !strings.Contains(err.Error(), TenantFile("other")) {
		t.Errorf("tenant without a key: %v", err)
	}
}

func TestRotate(t *testing.T) {
	dir := t.TempDir()
	_, first := create(t, dir)
	before, err := Stamp(dir)
	if err != nil {
		t.Fatal(err)
	}
	// A key in place is never retired: it still signs.
	if _, err := SetStatus(dir, first.ID, verify.StatusRetired, nil); !errors.Is(err, ErrCurrent) {
		t.Errorf("retire a key in place: %v", err)
	}
	next, err := Prepare(dir, verify.UseDAG, "")
	if err != nil {
		t.Fatal(err)
	}
	old, err := Rotate(dir, next)
	if err != nil || old.ID != first.ID {
		t.Fatalf("%s %v", old.ID, err)
	}
	if after, err := Stamp(dir); err != nil || after == before {
		t.Errorf("the stamp does not show it: %v", err)
	}
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if k, err := r.DAG("x"); err != nil || k.ID != next.ID {
		t.Errorf("after rotation: %v", err)
	}
	if len(r.Public()) != 3 {
		t.Errorf("public keys: %v", r.Public())
	}
	k, err := SetStatus(dir, first.ID, verify.StatusRetired, map[string]int64{"o": 9})
	if err != nil || k.To["o"] != 9 {
		t.Fatal(err)
	}
	// An end is moved to the front and never back.
	if k, err = SetStatus(dir, first.ID, verify.StatusCompromised, map[string]int64{"o": 12, "p": 4}); err != nil || k.To["o"] != 9 || k.To["p"] != 4 {
		t.Errorf("%+v %v", k, err)
	}
	if _, err := SetStatus(dir, first.ID, verify.StatusRetired, nil); err == nil {
		t.Error("a compromised key became a retired one")
	}
	if _, err := Load(dir); err != nil {
		t.Errorf("after all that: %v", err)
	}
	list, err := List(dir)
	if err != nil {
		t.Fatal(err)
	}
	status := map[string]verify.Status{}
	for _, e := range list {
		status[e.ID] = e.Status
	}
	if status[first.ID] != verify.StatusCompromised || status[next.ID] != verify.StatusActive {
		t.Errorf("%v", status)
	}
	if _, err := os.Stat(filepath.Join(dir, first.ID+retiredSuffix)); err != nil {
		t.Errorf("the old private key is gone: %v", err)
	}
}

// A key that is marked while it is in place (by hand) is not signed with.
func TestLoadRefusesAMarkedKey(t *testing.T) {
	dir := t.TempDir()
	_, dag := create(t, dir)
	k := dag.Key
	k.Status = verify.StatusCompromised
	if err := os.WriteFile(filepath.Join(dir, "dag.jwk.json"), k.JWK(), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "must not sign") {
		t.Errorf("%v", err)
	}
}

// Keys of openssl work, without public files.
func TestKeysOfOpenSSL(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("SKIPPED: openssl is not here")
	}
	dir := t.TempDir()
	for _, f := range []string{LogFile, DAGFile} {
		path := filepath.Join(dir, f)
		if out, err := exec.Command("openssl", "genpkey", "-algorithm", "ed25519", "-out", path).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: openssl makes no Ed25519 keys: %s", out)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := List(dir)
	if err != nil || len(list) != 2 || !list[0].Current {
		t.Fatalf("%+v %v", list, err)
	}
	public, err := exec.Command("openssl", "pkey", "-in", filepath.Join(dir, DAGFile), "-pubout").Output()
	if err != nil {
		t.Fatal(err)
	}
	if k, _ := r.DAG(""); string(verify.PublicPEM(k.Public)) != string(public) {
		t.Error("the public key is not openssl's")
	}
	next, err := Prepare(dir, verify.UseDAG, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Rotate(dir, next); err != nil {
		t.Errorf("rotate a key without a public file: %v", err)
	}
}

// A lost private key is replaced, and its public key stays.
func TestCreateAfterLoss(t *testing.T) {
	dir := t.TempDir()
	log, _ := create(t, dir)
	if err := os.Remove(filepath.Join(dir, LogFile)); err != nil {
		t.Fatal(err)
	}
	next, err := Create(dir, verify.UseLog, "")
	if err != nil {
		t.Fatal(err)
	}
	r, err := Load(dir)
	if err != nil || r.Log().ID != next.ID {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, k := range r.Public() {
		ids[k.ID] = true
	}
	if !ids[log.ID] {
		t.Error("the public key of the lost one is gone")
	}
}
