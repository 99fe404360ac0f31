package merkle

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// proofHeader is the first line of a C2SP tlog-proof.
const proofHeader = "c2sp.org/tlog-proof@v1\n"

// maxProofHashes is more than any tree that fits MaxSize needs.
const maxProofHashes = 64

// Proof is a C2SP tlog-proof: an inclusion proof together with the checkpoint
// that it leads to. Text form:
//
//	c2sp.org/tlog-proof@v1
//	index 1041
//	<base64 of a hash>, one a line, from the leaf's sibling up
//	(empty line)
//	<the checkpoint, verbatim>
//
// We write no extra line and refuse one: nothing would authenticate it.
type Proof struct {
	Index      int64
	Hashes     []Hash
	Checkpoint []byte // the signed note
}

// Append appends the text form.
func (p Proof) Append(dst []byte) []byte {
	dst = append(dst, proofHeader...)
	dst = append(dst, "index "...)
	dst = strconv.AppendInt(dst, p.Index, 10)
	dst = append(dst, '\n')
	for i := range p.Hashes {
		dst = AppendHashes(dst, p.Hashes[i:i+1])
		dst = append(dst, '\n')
	}
	dst = append(dst, '\n')
	return append(dst, p.Checkpoint...)
}

// ErrProof is wrapped by every error about a tlog-proof that is not
// well-formed.
var ErrProof = errors.New("malformed tlog-proof")

// ParseProof reads the text form strictly: what it accepts is, byte for byte,
// what Append writes of the result. The checkpoint aliases text and is not
// looked into.
func ParseProof(text []byte) (Proof, error) {
	var p Proof
	rest, ok := bytes.CutPrefix(text, []byte(proofHeader))
	if !ok {
		return p, fmt.Errorf("%w: the first line is not c2sp.org/tlog-proof@v1", ErrProof)
	}
	line, rest, ok := bytes.Cut(rest, []byte("\n"))
	index, isIndex := bytes.CutPrefix(line, []byte("index "))
	if !ok || !isIndex {
		return p, fmt.Errorf("%w: the second line is not an index", ErrProof)
	}
	if p.Index, ok = parseSize(string(index)); !ok {
		return p, fmt.Errorf("%w: the index is no decimal number", ErrProof)
	}
	for {
		line, rest, ok = bytes.Cut(rest, []byte("\n"))
		if !ok {
			return p, fmt.Errorf("%w: no empty line before the checkpoint", ErrProof)
		}
		if len(line) == 0 {
			break
		}
		h, isHash := parseHash(line)
		if !isHash {
			return p, fmt.Errorf("%w: hash %d is not base64 of 32 bytes", ErrProof, len(p.Hashes))
		}
		if p.Hashes = append(p.Hashes, h); len(p.Hashes) > maxProofHashes {
			return p, fmt.Errorf("%w: more than %d hashes", ErrProof, maxProofHashes)
		}
	}
	if len(rest) == 0 {
		return p, fmt.Errorf("%w: no checkpoint", ErrProof)
	}
	p.Checkpoint = rest
	return p, nil
}
