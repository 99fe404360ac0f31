// Package reconcile is the oracle: it reads the topics of a deployment as a
// committed reader sees them and proves that nothing was lost, repeated or
// altered between the raw hook records and the signed DAGs.
//
// Every record of the hook topics, and every element of a batch, must be in
// exactly one place:
//
//   - a node of a signed DAG (its contentRef names the record),
//   - a copy of such a node,
//   - an open run,
//   - dropped by rule: pings and their answers, ServerHello results, handshakes,
//   - a dead letter alone.
//
// Every rejected record has exactly one dead letter; no DAG, turn revision,
// session revision or dead letter exists twice; every step on prov.steps is
// what reading its record gives; every coverage record adds up; every
// signature, inclusion proof and checkpoint holds. And what the aggregator
// wrote is recomputed from prov.steps by the naive [reference], byte for byte.
//
// It shares no code with the services but what reads bytes: codec, verify and
// the table of topics.
package reconcile

import (
	"context"
	"fmt"

	"provstream/internal/codec"
	"provstream/internal/reference"
	"provstream/verify"
)

// Record is one record of a topic.
type Record struct {
	Topic             string // with the deployment's prefix
	Partition         int32
	Offset, Timestamp int64 // milliseconds
	Key, Value        []byte
	Headers           []codec.Header
}

func (r *Record) header(name string) (string, bool) {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value), true
		}
	}
	return "", false
}

// Partition is one partition of a topic, as far as it is read.
type Partition struct {
	Topic string // with the deployment's prefix
	Base  string // without it
	Index int32
	Start int64 // the first offset that is there
}

// Source is where the records are.
type Source interface {
	// Partitions lists those of the hook topics, of the decisions topic and of
	// the prov.* topics. What they hold is fixed from then on.
	Partitions(ctx context.Context) ([]Partition, error)
	// Read calls f with the committed records of a partition in offset order. The
	// record is valid during the call only; its bytes may be kept.
	Read(ctx context.Context, p Partition, f func(*Record) error) error
}

// Options say how the services were configured.
type Options struct {
	// Reader is ingest's configuration.
	Reader codec.Config
	// Windows is the aggregator's, where its state topic does not say it. Without
	// Lineage it is not used.
	Windows reference.Config
	// Lineage recomputes every turn, session and DAG from prov.steps.
	Lineage bool
	// Keys are the pinned public keys. Without them no signature is checked and
	// the report says so.
	Keys *verify.Keys
	// Drained: nothing is under way, so a record that no coverage accounts for, an
	// output that the aggregator has not committed and a DAG that is not signed are
	// missing and not just to come.
	Drained bool
	// DeadLetterReference: dead letters hold no values.
	DeadLetterReference bool
	// Only, if not empty, names the partitions of the prov.* topics whose runs are
	// looked at. All hook records are read, those of other runs are not held: what
	// is too large for the memory is judged in parts.
	Only []int32
	// Progress, if set, is told what is being read.
	Progress func(topic string, partition int32, records int64)
	// MaxProblems bounds the list in the report; the counts go on. 0: 10,000.
	MaxProblems int
}

// What a Problem is.
const (
	Missing  = "missing"
	Repeated = "repeated"
	Wrong    = "wrong"
)

// Problem is one record that is not as it must be.
type Problem struct {
	What      string `json:"what"` // missing, repeated or wrong
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"` // -1: no record of the topic in particular
	Index     *int32 `json:"index,omitempty"`
	Detail    string `json:"detail"`
}

func (p Problem) String() string {
	at := fmt.Sprintf("%s/%d", p.Topic, p.Partition)
	if p.Offset >= 0 {
		at += fmt.Sprintf("/%d", p.Offset)
	}
	if p.Index != nil {
		at += fmt.Sprintf("/%d", *p.Index)
	}
	return fmt.Sprintf("%s %s: %s", p.What, at, p.Detail)
}

// Report is what was found.
type Report struct {
	Holds bool `json:"holds"`

	Inputs      int64 `json:"inputs"`    // records of the hook topics and decisions
	Envelopes   int64 `json:"envelopes"` // elements of batches counted on their own
	Steps       int64 `json:"steps"`     // on prov.steps, decisions aside
	Decisions   int64 `json:"decisions"`
	Rejected    int64 `json:"rejected"` // of both, those that were rejected
	Ticks       int64 `json:"ticks"`
	Dropped     int64 `json:"dropped"` // by rule, handshakes among them
	DeadLetters int64 `json:"dead_letters"`

	Nodes  int64 `json:"nodes"`  // envelopes that are a node
	Copies int64 `json:"copies"` // envelopes that are a copy of one
	Open   int64 `json:"open"`   // envelopes in runs that are not sealed yet

	// What is under way, while the deployment is at work.
	Unread   int64 `json:"unread"`   // records that ingest has not read yet
	Ahead    int64 `json:"ahead"`    // records that were written since the coverage was read
	Unsigned int64 `json:"unsigned"` // envelopes in DAGs that are not signed yet
	Pending  int64 `json:"pending"`  // outputs and DAGs still to come

	Runs           int64 `json:"runs"` // with at least one DAG
	DAGs           int64 `json:"dags"`
	Turns          int64 `json:"turns"`    // revisions
	Sessions       int64 `json:"sessions"` // revisions
	Checkpoints    int64 `json:"checkpoints"`
	Coverage       int64 `json:"coverage"`
	Signatures     int64 `json:"signatures"`      // that were checked
	Recomputed     int64 `json:"recomputed"`      // outputs that were recomputed
	ExpiredInputs  int64 `json:"expired_inputs"`  // steps whose record the hook topic no longer holds
	ExpiredOutputs int64 `json:"expired_outputs"` // outputs that compaction or retention removed

	Missing  int64     `json:"missing"`
	Repeated int64     `json:"repeated"`
	Wrong    int64     `json:"wrong"`
	Problems []Problem `json:"problems"`
	Notes    []string  `json:"notes,omitempty"` // what could not be checked, and why
}

// Run reads everything and reports. The error says why it could not run; what
// does not hold is in the report.
func Run(ctx context.Context, src Source, opt Options) (Report, error) {
	if opt.MaxProblems == 0 {
		opt.MaxProblems = 10_000
	}
	partitions, err := src.Partitions(ctx)
	if err != nil {
		return Report{}, err
	}
	o := newOracle(src, opt, partitions)
	if err := o.choose(); err != nil {
		return Report{}, err
	}
	for _, phase := range []func(context.Context) error{
		o.readHeads, o.readCoverage, o.readInputs, o.readDeadLetters, o.readSteps, o.readOutputs, o.readDAGs, o.closeLogs,
	} {
		if err := phase(ctx); err != nil {
			return Report{}, err
		}
	}
	o.account()
	r := &o.report
	r.Holds = r.Missing+r.Repeated+r.Wrong == 0
	if r.Problems == nil {
		r.Problems = []Problem{}
	}
	return *r, nil
}
