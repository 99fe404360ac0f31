package merkle

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/transparency-dev/formats/log"
	"github.com/transparency-dev/formats/proof"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

// The naive tree of RFC 9162 §2.1: the definitions, word by word, over all
// leaves. It shares nothing with package tlog.

func hash(parts ...[]byte) []byte {
	h := sha256.Sum256(bytes.Join(parts, nil))
	return h[:]
}

func split(n int) int { // the largest power of two smaller than n
	k := 1
	for k<<1 < n {
		k <<= 1
	}
	return k
}

func mth(d [][]byte) []byte {
	switch n := len(d); n {
	case 0:
		return hash()
	case 1:
		return hash([]byte{0}, d[0])
	default:
		k := split(n)
		return hash([]byte{1}, mth(d[:k]), mth(d[k:]))
	}
}

func path(m int, d [][]byte) [][]byte {
	if len(d) == 1 {
		return nil
	}
	if k := split(len(d)); m < k {
		return append(path(m, d[:k]), mth(d[k:]))
	} else {
		return append(path(m-k, d[k:]), mth(d[:k]))
	}
}

func subproof(m int, d [][]byte, b bool) [][]byte {
	if m == len(d) {
		if b {
			return nil
		}
		return [][]byte{mth(d)}
	}
	if k := split(len(d)); m <= k {
		return append(subproof(m, d[:k], b), mth(d[k:]))
	} else {
		return append(subproof(m-k, d[k:], false), mth(d[:k]))
	}
}

func leavesOf(n int) (values [][]byte, hashes []Hash) {
	for i := range n {
		v := fmt.Appendf(nil, "leaf %d", i)
		values = append(values, v)
		hashes = append(hashes, LeafHash(v))
	}
	return values, hashes
}

func equal(a []Hash, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i][:], b[i]) {
			return false
		}
	}
	return true
}

// The known tree of Certificate Transparency: its roots are published.
func TestKnownRoots(t *testing.T) {
	leaves := []string{"", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"}
	roots := []string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
		"fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
		"aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
		"d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
		"4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
		"76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
		"ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
		"5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
	}
	tail := NewTail(Frontier{})
	for i, want := range roots {
		if root := tail.Root(); hex.EncodeToString(root[:]) != want {
			t.Errorf("root of %d leaves: %x", i, root)
		}
		if i < len(leaves) {
			b, _ := hex.DecodeString(leaves[i])
			tail.Push(LeafHash(b))
		}
	}
}

// From the frontier and the batch alone come the root, every inclusion proof
// of the batch and the consistency proof that the whole tree would give.
func TestExtendIsTheTree(t *testing.T) {
	const most = 70
	values, hashes := leavesOf(most)
	for size := range most + 1 {
		frontier := NewTail(Frontier{})
		for _, h := range hashes[:size] {
			frontier.Push(h)
		}
		f := frontier.Frontier()
		if root := f.Root(); !bytes.Equal(root[:], mth(values[:size])) {
			t.Fatalf("root of %d leaves", size)
		}
		for n := size; n <= most; n++ {
			x := Extend(f, hashes[size:n])
			checkExtension(t, x, values[:n], size)
		}
	}
}

type fataler interface {
	Fatalf(format string, args ...any)
	Helper()
}

func checkExtension(t fataler, x *Extension, values [][]byte, size int) {
	t.Helper()
	n := len(values)
	root := x.To().Root()
	if x.To().Size() != int64(n) || !bytes.Equal(root[:], mth(values)) {
		t.Fatalf("%d+%d leaves: size or root", size, n-size)
	}
	for i := size; i < n; i++ {
		p, err := x.Inclusion(int64(i))
		if err != nil || !equal(p, path(i, values)) {
			t.Fatalf("%d+%d leaves: inclusion proof of %d: %v", size, n-size, i, err)
		}
		if err := tlog.CheckRecord(p, int64(n), root, int64(i), LeafHash(values[i])); err != nil {
			t.Fatalf("%d+%d leaves: inclusion proof of %d: %v", size, n-size, i, err)
		}
	}
	p, err := x.Consistency()
	var want [][]byte
	if size > 0 && n > size {
		want = subproof(size, values, true)
	}
	if err != nil || !equal(p, want) {
		t.Fatalf("%d+%d leaves: consistency proof: %v", size, n-size, err)
	}
}

// The same with random sizes and batches, larger, and the frontier written to
// a header and read back in between.
func TestRapidExtend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f Frontier
		var values [][]byte
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			before := len(values)
			n := rapid.IntRange(1, 90).Draw(t, "batch")
			var batch []Hash
			for range n {
				v := rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "leaf")
				values = append(values, v)
				batch = append(batch, LeafHash(v))
			}
			x := Extend(f, batch)
			if before == 0 || n < 20 {
				checkExtension(t, x, values, before)
			}
			hashes, err := ParseHashes(AppendHashes(nil, x.To().Hashes()))
			if err != nil {
				t.Fatalf("%v", err)
			}
			if f, err = NewFrontier(int64(len(values)), hashes); err != nil {
				t.Fatalf("%v", err)
			}
			root := f.Root()
			if !bytes.Equal(root[:], mth(values)) {
				t.Fatalf("root after %d leaves", len(values))
			}
		}
	})
}

func TestExtendKeepsTheOldFrontier(t *testing.T) {
	_, hashes := leavesOf(20)
	f := Frontier{}
	for _, h := range hashes[:7] {
		f = f.Append(h)
	}
	root := f.Root()
	Extend(f, hashes[7:])
	f.Append(hashes[8])
	if f.Root() != root || f.Size() != 7 {
		t.Error("extending a frontier changed it")
	}
	if _, err := Extend(f, hashes[7:]).Inclusion(3); err == nil {
		t.Error("an inclusion proof of a leaf that is not known")
	}
}

func testKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
}

// Our proof and checkpoint texts are those of transparency-dev/formats and of
// x/mod/sumdb/note, written and read.
func TestFormatsOfTheField(t *testing.T) {
	values, hashes := leavesOf(11)
	x := Extend(Frontier{}, hashes)
	c := Checkpoint{Origin: Origin("dep", "prov.dags", 3), Size: 11, Root: x.To().Root()}
	key := testKey(t)
	s, err := NewSigner(c.Origin, key)
	if err != nil {
		t.Fatal(err)
	}
	msg, err := c.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	if want := (log.Checkpoint{Origin: c.Origin, Size: 11, Hash: c.Root[:]}).Marshal(); c.Text() != string(want) {
		t.Errorf("checkpoint text %q, want %q", c.Text(), want)
	}
	vkey, err := VerifierKey(c.Origin, key.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	nv, err := note.NewVerifier(vkey)
	if err != nil {
		t.Fatal(err)
	}
	parsed, _, _, err := log.ParseCheckpoint(msg, c.Origin, nv)
	if err != nil || parsed.Size != 11 {
		t.Errorf("transparency-dev does not read our checkpoint: %v", err)
	}
	{
		theirs, err := note.NewSigner("PRIVATE+KEY+" + strings.SplitN(vkey, "+", 3)[0] + "+" + strings.SplitN(vkey, "+", 3)[1] + "+" + base64.StdEncoding.EncodeToString(append([]byte{1}, key.Seed()...)))
		if err != nil {
			t.Fatal(err)
		}
		again, err := note.Sign(&note.Note{Text: c.Text()}, theirs)
		if err != nil || !bytes.Equal(again, msg) {
			t.Error("note.Sign with its own signer gives another note")
		}
	}
	for i := range values {
		hashes, err := x.Inclusion(int64(i))
		if err != nil {
			t.Fatal(err)
		}
		ours := Proof{Index: int64(i), Hashes: hashes, Checkpoint: msg}.Append(nil)
		theirs := proof.TLogProof{Index: uint64(i), Checkpoint: msg}
		for _, h := range hashes {
			theirs.Hashes = append(theirs.Hashes, h)
		}
		if !bytes.Equal(ours, theirs.Marshal()) {
			t.Errorf("proof %d differs from transparency-dev's", i)
		}
		var back proof.TLogProof
		if err := back.Unmarshal(ours); err != nil || back.Index != uint64(i) || !bytes.Equal(back.Checkpoint, msg) {
			t.Errorf("transparency-dev does not read proof %d: %v", i, err)
		}
		p, err := ParseProof(ours)
		if err != nil || !bytes.Equal(p.Append(nil), ours) {
			t.Errorf("proof %d does not come back: %v", i, err)
		}
	}
}

func TestOpenCheckpoint(t *testing.T) {
	key := testKey(t)
	public := key.Public().(ed25519.PublicKey)
	stranger := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, 32)).Public().(ed25519.PublicKey)
	c := Checkpoint{Origin: "dep/prov.dags/0", Size: 3, Root: Hash{1}}
	s, _ := NewSigner(c.Origin, key)
	msg, err := c.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	if got, by, err := OpenCheckpoint(msg, []ed25519.PublicKey{stranger, public, public}); err != nil || got != c || by != 1 {
		t.Errorf("open: %+v %d %v", got, by, err)
	}
	witness := append(bytes.Clone(msg), "— witness.example/w Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n"...)
	if _, _, err := OpenCheckpoint(witness, []ed25519.PublicKey{public}); err != nil {
		t.Errorf("a witness's line spoils the note: %v", err)
	}
	text := string(msg)
	for name, bad := range map[string]string{
		"empty":              "",
		"no signature":       c.Text() + "\n",
		"two lines":          strings.Replace(text, "\n3\n", "\n", 1),
		"four lines":         strings.Replace(text, "\n\n", "\nmore\n\n", 1),
		"negative size":      strings.Replace(text, "\n3\n", "\n-3\n", 1),
		"leading zero":       strings.Replace(text, "\n3\n", "\n03\n", 1),
		"too large":          strings.Replace(text, "\n3\n", "\n9223372036854775807\n", 1),
		"another size":       strings.Replace(text, "\n3\n", "\n4\n", 1),
		"short root":         strings.Replace(text, "AQAAAA", "AQAA", 1),
		"root bits":          strings.Replace(text, "AAAA=\n", "AAAB=\n", 1),
		"carriage return":    strings.Replace(text, "\n3\n", "\n3\r\n", 1),
		"signature repeated": text + text[strings.Index(text, "— "):],
		"no final newline":   text[:len(text)-1],
		"invalid UTF-8":      "\xff" + text,
	} {
		if _, _, err := OpenCheckpoint([]byte(bad), []ed25519.PublicKey{public}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, _, err := OpenCheckpoint(msg, []ed25519.PublicKey{stranger}); err == nil || !strings.Contains(err.Error(), "unknown key") {
		t.Errorf("unknown key: %v", err)
	}
	for _, origin := range []string{"", "a b", "a+b", "a\nb", "a\u00a0b", "\xff"} {
		if CheckOrigin(origin) == nil {
			t.Errorf("origin %q accepted", origin)
		}
	}
}

func FuzzParseProof(f *testing.F) {
	f.Add([]byte("c2sp.org/tlog-proof@v1\nindex 0\n\ncheckpoint\n"))
	f.Add([]byte("c2sp.org/tlog-proof@v1\nindex 7\ny/+IMKP+PO9wBrkwmiTYnV5+keMdSlZHgY3u4QgfToo=\n\nx\n1\nAA\n"))
	f.Add([]byte("c2sp.org/tlog-proof@v1\nextra AA==\nindex 1\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := ParseProof(text)
		if err != nil {
			return
		}
		if !bytes.Equal(p.Append(nil), text) {
			t.Errorf("accepted %q, writes %q", text, p.Append(nil))
		}
		var theirs proof.TLogProof
		if err := theirs.Unmarshal(text); err != nil && !bytes.Contains(text, []byte("\r")) && len(text) < 60_000 {
			t.Errorf("accepted %q, transparency-dev says %v", text, err)
		}
	})
}

func FuzzParseHashes(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("y/+IMKP+PO9wBrkwmiTYnV5+keMdSlZHgY3u4QgfToo="))
	f.Add([]byte("y/+IMKP+PO9wBrkwmiTYnV5+keMdSlZHgY3u4QgfToo=,y/+IMKP+PO9wBrkwmiTYnV5+keMdSlZHgY3u4QgfToo="))
	f.Fuzz(func(t *testing.T, text []byte) {
		if h, err := ParseHashes(text); err == nil && !bytes.Equal(AppendHashes(nil, h), text) {
			t.Errorf("accepted %q, writes %q", text, AppendHashes(nil, h))
		}
	})
}

func FuzzOpenCheckpoint(f *testing.F) {
	key := testKey(f)
	s, _ := NewSigner("dep/prov.dags/0", key)
	msg, _ := Checkpoint{Origin: "dep/prov.dags/0", Size: 3, Root: Hash{1}}.Sign(s)
	f.Add(msg)
	f.Fuzz(func(t *testing.T, text []byte) {
		c, _, err := OpenCheckpoint(text, []ed25519.PublicKey{key.Public().(ed25519.PublicKey)})
		if err == nil && !bytes.HasPrefix(text, []byte(c.Text()+"\n")) {
			t.Errorf("opened %q as %+v", text, c)
		}
	})
}
