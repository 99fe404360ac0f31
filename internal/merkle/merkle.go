// Package merkle is the append-only log of RFC 9162 (the hashing is that of
// RFC 6962) as it is kept by someone who has no tree: the signer knows only
// the [Frontier], the hashes of the complete subtrees on the right edge, and
// the leaves of the batch at hand. That is enough to extend the log, to prove
// the inclusion of every new leaf, and to prove that the new head continues
// the old one.
//
// The hash functions and the proofs are those of golang.org/x/mod/sumdb/tlog,
// the signatures those of golang.org/x/mod/sumdb/note. The texts are the
// published ones: a checkpoint is a C2SP tlog-checkpoint, e.g.
//
//	provstream/prov.dags/3
//	1042
//	CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=
//
//	— provstream/prov.dags/3 Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
//
// and an inclusion proof a C2SP tlog-proof ([Proof]). Headers that carry
// several hashes ([AppendHashes]) write them in standard base64, comma-joined.
//
// The package is pure: no clock, no Kafka, no files.
package merkle

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// Hash is a SHA-256 digest of the tree.
type Hash = tlog.Hash

// MaxSize bounds the number of leaves of a log that is read from outside, so
// that no arithmetic on tree sizes can overflow.
const MaxSize = 1 << 50

var leafPrefix = []byte{0}

// LeafHash is SHA-256(0x00 || leaf) (RFC 9162 §2.1.1). A leaf that lies in
// several pieces need not be joined first.
func LeafHash(pieces ...[]byte) Hash {
	d := sha256.New()
	d.Write(leafPrefix)
	for _, p := range pieces {
		d.Write(p)
	}
	var h Hash
	d.Sum(h[:0])
	return h
}

// Frontier is what must be kept of a log to go on with it: its size and the
// roots of the complete subtrees that the size decomposes into, largest
// first; one for each 1 bit of the size. The zero Frontier is the empty log.
// A Frontier is a value: nothing here changes one that exists.
type Frontier struct {
	size   int64
	hashes []Hash
}

// NewFrontier checks that hashes can be the frontier of a log of that size.
// Whether they are is told by the root: compare [Frontier.Root].
func NewFrontier(size int64, hashes []Hash) (Frontier, error) {
	if size < 0 || size > MaxSize {
		return Frontier{}, fmt.Errorf("frontier of a log of size %d: size out of range", size)
	}
	if want := bits.OnesCount64(uint64(size)); len(hashes) != want {
		return Frontier{}, fmt.Errorf("frontier of a log of size %d: %d hashes, want %d (one for each complete subtree)", size, len(hashes), want)
	}
	return Frontier{size: size, hashes: append([]Hash(nil), hashes...)}, nil
}

// Size is the number of leaves.
func (f Frontier) Size() int64 { return f.size }

// Hashes returns a copy of the subtree roots, largest first.
func (f Frontier) Hashes() []Hash { return append([]Hash(nil), f.hashes...) }

// Root is the Merkle tree hash. That of the empty log is SHA-256 of nothing.
func (f Frontier) Root() Hash {
	if f.size == 0 {
		return sha256.Sum256(nil)
	}
	root := f.hashes[len(f.hashes)-1]
	for i := len(f.hashes) - 2; i >= 0; i-- {
		root = tlog.NodeHash(f.hashes[i], root)
	}
	return root
}

// Append returns the frontier with one more leaf. Use [Extend] where proofs
// are wanted.
func (f Frontier) Append(leaf Hash) Frontier {
	hashes := make([]Hash, len(f.hashes), len(f.hashes)+1)
	copy(hashes, f.hashes)
	g := Frontier{size: f.size, hashes: hashes}
	g.push(leaf)
	return g
}

// push appends in place; only for a Frontier whose storage is not shared.
func (f *Frontier) push(leaf Hash) {
	// Each trailing 1 bit of the old size is a subtree that the new leaf completes.
	for n := f.size; n&1 == 1; n >>= 1 {
		last := len(f.hashes) - 1
		leaf = tlog.NodeHash(f.hashes[last], leaf)
		f.hashes = f.hashes[:last]
	}
	f.hashes = append(f.hashes, leaf)
	f.size++
}

// A Tail follows a log leaf by leaf in place: the form of a Frontier for
// readers that only want the root at some sizes.
type Tail struct{ f Frontier }

// NewTail starts after f.
func NewTail(f Frontier) *Tail {
	return &Tail{Frontier{size: f.size, hashes: append(make([]Hash, 0, 64), f.hashes...)}}
}

// Push appends a leaf.
func (t *Tail) Push(leaf Hash) { t.f.push(leaf) }

// Size is the number of leaves so far.
func (t *Tail) Size() int64 { return t.f.size }

// Root is the tree hash of the leaves so far.
func (t *Tail) Root() Hash { return t.f.Root() }

// Frontier returns a copy that stays as it is.
func (t *Tail) Frontier() Frontier {
	return Frontier{size: t.f.size, hashes: append([]Hash(nil), t.f.hashes...)}
}

var errHashes = errors.New("hash list: want standard base64 of 32 bytes each, comma-joined")

// AppendHashes appends the header form of a list of hashes: standard base64,
// comma-joined; the empty list is the empty string.
func AppendHashes(dst []byte, hashes []Hash) []byte {
	for i := range hashes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = base64.StdEncoding.AppendEncode(dst, hashes[i][:])
	}
	return dst
}

// ParseHashes reads what AppendHashes writes, and nothing else.
func ParseHashes(text []byte) ([]Hash, error) {
	if len(text) == 0 {
		return nil, nil
	}
	const one = 44 // base64 of 32 bytes
	if (len(text)+1)%(one+1) != 0 {
		return nil, errHashes
	}
	hashes := make([]Hash, 0, (len(text)+1)/(one+1))
	for {
		h, ok := parseHash(text[:one])
		if !ok {
			return nil, errHashes
		}
		hashes = append(hashes, h)
		if len(text) == one {
			return hashes, nil
		}
		if text[one] != ',' {
			return nil, errHashes
		}
		text = text[one+1:]
	}
}

var strictBase64 = base64.StdEncoding.Strict()

// parseHash reads exactly 44 bytes of canonical base64: line breaks, which
// the decoder of the standard library would skip, and unused bits are refused.
func parseHash(text []byte) (h Hash, ok bool) {
	if len(text) != 44 {
		return h, false
	}
	var buf [33]byte
	n, err := strictBase64.Decode(buf[:], text)
	if err != nil || n != len(h) {
		return h, false
	}
	copy(h[:], buf[:])
	return h, true
}
