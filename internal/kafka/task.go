package kafka

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Input is one partition that a service consumes, as it is when a task opens.
type Input struct {
	Topic     string
	Partition int32
	// Committed is the group's committed offset: the first record that the
	// task will be given stands there or after. -1 without a commit.
	Committed int64
	// Metadata is what [Task.Metadata] returned when that was committed.
	Metadata string
}

// Task is a service's work on one input partition. All its methods are called
// from one goroutine of its own, one after the other, so a task owns its state
// without locks. An error ends the loop.
type Task interface {
	// Process takes records in the order of their offsets, control records
	// (transaction markers) among them. Each offset is given once while
	// the task lives. The slice is not used afterwards; the records' bytes
	// may be kept. A task that keeps nothing of a record, and has put nothing of
	// it into an Out, may call its Recycle, and not look at it afterwards: the
	// next batch goes to the same memory.
	Process(records []*kgo.Record, out *Out) error
	// Gap tells of offsets [from, to) that the partition has lost.
	Gap(from, to int64, out *Out) error
	// Flush adds what belongs to the end of a transaction in which the task
	// took part; next is the offset that it commits.
	Flush(next int64, out *Out) error
	// Metadata goes with the offset that is committed after Flush.
	Metadata() string
	// Close releases what the task holds: its partition went to another
	// instance, or its transaction did not commit. No method follows.
	Close()
}

// OpenTask makes the task of a partition from what is committed. It may take
// long (a restore); the partition's fetches are paused meanwhile and the others
// go on. It must end when ctx does.
type OpenTask func(ctx context.Context, in Input) (Task, error)

// Out takes the output of one transaction. Tasks of all partitions share it.
type Out struct {
	// Final says that the loop stops after this transaction: what a restart
	// would have to work out again is best written down now.
	Final bool

	settled atomic.Bool // committed: nobody holds what was produced any more
	ctx     context.Context
	produce func(context.Context, *kgo.Record, func(*kgo.Record, error))
	promise func(*kgo.Record, error) // done, made once

	mu      sync.Mutex
	records int64
	bytes   int64
	err     error // the first failure; the transaction must abort
}

// Produce sends a record to r.Partition of r.Topic, which must be set. The
// record and its bytes belong to the client until the transaction has ended. A
// failure shows at the commit, which then aborts.
func (o *Out) Produce(r *kgo.Record) {
	o.produce(o.ctx, r, o.promise)
}

func (o *Out) done(r *kgo.Record, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.records++
	o.bytes += int64(len(r.Key) + len(r.Value))
	if err != nil && o.err == nil {
		o.err = produceError(r, err)
	}
}

func (o *Out) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
}

func (o *Out) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
