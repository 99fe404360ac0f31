// Package evidence is the pure half of the signer: unsigned DAGs in; signed
// DAGs, inclusion proofs and a signed head of the log out.
//
// A [Log] is one append-only Merkle log: that of the DAGs of one partition of
// prov.runs, or that of the coverage records of one partition. It is a value:
// signing a batch returns the log that the batch leads to and leaves the old
// one as it was. The shell takes over the new one when its transaction has
// committed and forgets it when the transaction has aborted, so the order of
// effects is: parse and check all → sign → append to the log → prove → sign
// the head → verify what was made, by samples → produce and commit. A crash anywhere
// before the commit leaves heads that only a reader of uncommitted records
// sees, and each of them is a prefix of the same tree: leaf i is the i-th
// committed record of prov.runs, whatever is signed again.
//
// Nothing is signed that was not parsed: the bytes must be the RFC 8785 text
// of a Kindgi DAG 1.0.0 without signature, with a sound graph, of a tenant that
// there is a key for.
package evidence

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"provstream/internal/keys"
	"provstream/internal/merkle"
	"provstream/verify"
)

// Headers of records of prov.dags and prov.checkpoints.
const (
	HeaderProof       = "tlog-proof"       // prov.dags: C2SP tlog-proof
	HeaderFrontier    = "tlog-frontier"    // prov.checkpoints: see merkle.AppendHashes
	HeaderConsistency = "tlog-consistency" // prov.checkpoints: the proof from the previous head
)

// Log is the state of one log: where it ends. It never changes.
type Log struct {
	origin   string
	frontier merkle.Frontier
}

// NewLog is the empty log of an origin (see [merkle.Origin]).
func NewLog(origin string) (*Log, error) {
	if err := merkle.CheckOrigin(origin); err != nil {
		return nil, err
	}
	return &Log{origin: origin}, nil
}

// Origin is the log's name.
func (l *Log) Origin() string { return l.origin }

// Size is the number of leaves, which is the index of the next one.
func (l *Log) Size() int64 { return l.frontier.Size() }

// Root is the log's Merkle tree hash.
func (l *Log) Root() merkle.Hash { return l.frontier.Root() }

// ErrRestore is wrapped by every reason not to go on with a log.
var ErrRestore = errors.New("cannot continue the log")

// Restore goes on from the newest committed checkpoint record of an origin:
// its value and its tlog-frontier header. The head must be signed by one of
// the ring's own log keys, and the frontier must hash to its root; else the
// signer would fork its own log, and refuses.
func Restore(ring *keys.Ring, origin string, checkpoint, frontier []byte) (*Log, error) {
	const advice = "do not delete records to get past this: compare prov.checkpoints with the heads that your consumers have kept, " +
		"restore the topic or the key directory, or start a new deployment under another --prefix"
	fail := func(err error) (*Log, error) {
		return nil, fmt.Errorf("%w %s: %w; %s", ErrRestore, origin, err, advice)
	}
	pinned, err := ring.Verifier()
	if err != nil {
		return fail(err)
	}
	c, err := pinned.Checkpoint(checkpoint)
	if err != nil {
		return fail(fmt.Errorf("its newest checkpoint is not ours: %w", err))
	}
	if c.Origin != origin {
		return fail(fmt.Errorf("its newest checkpoint is of %s", c.Origin))
	}
	hashes, err := merkle.ParseHashes(frontier)
	if err != nil {
		return fail(fmt.Errorf("header %s: %w", HeaderFrontier, err))
	}
	f, err := merkle.NewFrontier(c.Size, hashes)
	if err != nil {
		return fail(fmt.Errorf("header %s: %w", HeaderFrontier, err))
	}
	if root := f.Root(); root != merkle.Hash(c.Root) {
		return fail(fmt.Errorf("header %s leads to root %s, the checkpoint of size %d says %s", HeaderFrontier, root, c.Size, merkle.Hash(c.Root)))
	}
	return &Log{origin: origin, frontier: f}, nil
}

// Checkpoint is one record of prov.checkpoints.
type Checkpoint struct {
	Note        []byte // the value: a C2SP signed note
	Frontier    []byte // header tlog-frontier
	Consistency []byte // header tlog-consistency; nil for the first head of a log, which has none
	Size        int64
	Root        merkle.Hash
}

// Record is one signed DAG: what goes to prov.dags.
type Record struct {
	Value     []byte // RFC 8785 text of the signed DAG
	Proof     []byte // header tlog-proof
	ID        string
	RunID     string
	TenantID  string
	CreatedAt string // RFC 3339, as written
	KeyID     string
	Nodes     int
	Edges     int
	Index     int64 // of the leaf in the log
}

// Batch is what a batch of records leads to.
type Batch struct {
	Records    []Record // as many as there were values, in their order; none for coverage
	Checkpoint Checkpoint
	Log        *Log // after the batch
}

// RecordError says which value of a batch could not be taken, and why.
type RecordError struct {
	Position int // in the batch, from 0
	Err      error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("record %d of the batch: %v", e.Position, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }

// SignDAGs signs unsigned DAGs, the values of records of prov.runs in order,
// and appends them to the log. signedAt is the time of signing in
// milliseconds. An error (a [RecordError] if one of the values is at fault)
// leaves nothing behind.
func (l *Log) SignDAGs(ring *keys.Ring, values [][]byte, signedAt int64) (*Batch, error) {
	b, err := l.signDAGs(ring, values, signedAt)
	if err != nil {
		return nil, err
	}
	if err := b.check(ring, l); err != nil {
		return nil, err
	}
	return b, nil
}

// signDAGs is SignDAGs without the check of what came of it.
func (l *Log) signDAGs(ring *keys.Ring, values [][]byte, signedAt int64) (*Batch, error) {
	records := make([]Record, len(values))
	leaves := make([]merkle.Hash, len(values))
	var s signer
	for i, value := range values {
		r, leaf, err := s.sign(ring, value, signedAt)
		if err != nil {
			return nil, &RecordError{i, err}
		}
		r.Index = l.Size() + int64(i)
		records[i], leaves[i] = r, leaf
	}
	x, b, err := l.extend(ring, leaves)
	if err != nil {
		return nil, err
	}
	for i := range records {
		hashes, err := x.Inclusion(records[i].Index)
		if err != nil {
			return nil, fmt.Errorf("log %s: %w", l.origin, err)
		}
		records[i].Proof = merkle.Proof{Index: records[i].Index, Hashes: hashes, Checkpoint: b.Checkpoint.Note}.Append(nil)
	}
	b.Records = records
	return b, nil
}

// LogCoverage appends coverage records, the values of records of
// prov.coverage in order, to the log.
func (l *Log) LogCoverage(ring *keys.Ring, values [][]byte) (*Batch, error) {
	leaves := make([]merkle.Hash, len(values))
	for i, value := range values {
		if _, err := verify.ParseCoverage(value); err != nil {
			return nil, &RecordError{i, err}
		}
		leaves[i] = merkle.LeafHash(value)
	}
	_, b, err := l.extend(ring, leaves)
	if err != nil {
		return nil, err
	}
	if err := b.check(ring, l); err != nil {
		return nil, err
	}
	return b, nil
}

// extend appends leaves and signs the head.
func (l *Log) extend(ring *keys.Ring, leaves []merkle.Hash) (*merkle.Extension, *Batch, error) {
	if len(leaves) == 0 {
		return nil, nil, fmt.Errorf("log %s: a head needs at least one new leaf", l.origin)
	}
	x := merkle.Extend(l.frontier, leaves)
	s, err := merkle.NewSigner(l.origin, ring.Log().Signer)
	if err != nil {
		return nil, nil, err
	}
	b := &Batch{Log: &Log{origin: l.origin, frontier: x.To()}}
	if b.Checkpoint, err = l.head(s, x); err != nil {
		return nil, nil, fmt.Errorf("log %s: %w", l.origin, err)
	}
	return x, b, nil
}

func (l *Log) head(s note.Signer, x *merkle.Extension) (Checkpoint, error) {
	to := x.To()
	c := Checkpoint{Size: to.Size(), Root: to.Root()}
	var err error
	if c.Note, err = (merkle.Checkpoint{Origin: l.origin, Size: c.Size, Root: c.Root}).Sign(s); err != nil {
		return c, err
	}
	c.Frontier = merkle.AppendHashes(nil, to.Hashes())
	if l.Size() > 0 {
		proof, err := x.Consistency()
		if err != nil {
			return c, err
		}
		c.Consistency = merkle.AppendHashes([]byte{}, proof)
	}
	return c, nil
}
