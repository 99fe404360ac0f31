package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (l *Loop) begin() error {
	if err := l.session.begin(); err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	// A context of its own: a stop lets the open transaction finish.
	l.out = &Out{ctx: context.Background(), produce: l.session.produce}
	l.out.promise = l.out.done
	l.began = time.Now()
	l.records, l.bytes = 0, 0
	return nil
}

// end finishes the transaction: steps 4 to 7 of the package comment.
func (l *Loop) end() error {
	start := time.Now()
	l.jobs.Wait()
	if l.out.failure() == nil {
		for _, w := range l.workers {
			if w.touched {
				l.jobs.Add(1)
				w.jobs <- job{flush: true, out: l.out}
			}
		}
		l.jobs.Wait()
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	// Every record must have been acknowledged before the commit is decided:
	// the client's own flush inside End only waits, and would commit without a
	// record that has just failed.
	if l.out.failure() == nil {
		if err := l.session.client().Flush(ctx); err != nil {
			l.out.fail(fmt.Errorf("flush: %w", err))
		}
	}
	failure := l.out.failure()
	metadata := make(map[Partition]string)
	for key, w := range l.workers {
		if w.touched {
			metadata[key] = w.metadata
		}
	}
	committed, err := l.endSession(withMetadata(ctx, metadata), failure == nil)
	if l.spec.OnTransaction != nil {
		l.out.mu.Lock()
		e := TransactionEnd{
			Committed: committed && err == nil, Err: errors.Join(err, failure), Records: l.records, Produced: l.out.records, Bytes: l.out.bytes,
			Duration: time.Since(l.began), End: time.Since(start),
		}
		l.out.mu.Unlock()
		l.spec.OnTransaction(e)
	}
	l.out.settled.Store(committed && err == nil && failure == nil)
	l.out = nil
	switch {
	case failure != nil:
		return failure
	case err != nil:
		return fmt.Errorf("end a transaction: %w", err)
	case !committed:
		if err := l.positions(ctx); err != nil {
			return err
		}
	}
	for key, w := range l.workers {
		if !w.touched {
			continue
		}
		w.touched = false
		if committed {
			l.spec.lag.commit(key, w.next, w.stamp)
		} else {
			// What the task has seen did not happen.
			l.log.Info("a transaction was aborted; its partition starts again from what is committed", "topic", key.Topic, "partition", key.Partition)
			l.reopen(key)
		}
	}
	l.session.allowRebalance()
	return nil
}

// A commit takes milliseconds; one that takes so long may be waiting for what it
// itself holds up.
const endPatience = 500 * time.Millisecond

// endSession ends the client's transaction. Before a commit the client waits for a
// heartbeat of its own. Where the group has thrown this member out (the process
// was frozen, or cut off) no heartbeat comes any more: the client wants to tell of
// the loss first, which the poll forbids until the end of the transaction. So an
// end that takes long lets it tell; it then aborts. A commit that has got past its
// heartbeat holds the client's own lock against rebalances and is not disturbed.
func (l *Loop) endSession(ctx context.Context, commit bool) (committed bool, err error) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ended:
		case <-time.After(endPatience):
			l.session.allowRebalance()
		}
	})
	defer wg.Wait()
	defer close(ended)
	return l.session.end(ctx, commit)
}

// positions compares what the client goes on from after a commit that failed
// without an error with what the brokers have. After some answers (an
// UNKNOWN_SERVER_ERROR) the client takes for aborted what may have committed;
// it would then read, and write, a batch twice.
func (l *Loop) positions(ctx context.Context) error {
	touched := make(map[string][]int32)
	for key, w := range l.workers {
		if w.touched {
			touched[key.Topic] = append(touched[key.Topic], key.Partition)
		}
	}
	committed, err := l.cluster.CommittedOf(ctx, l.cfg.Group, touched)
	if err != nil {
		return err
	}
	mine := l.session.client().CommittedOffsets()
	for key, w := range l.workers {
		if !w.touched {
			continue
		}
		theirs := int64(-1)
		if o, ok := committed.Lookup(key.Topic, key.Partition); ok {
			theirs = o.At
		}
		o, known := mine[key.Topic][key.Partition]
		switch {
		case !known && theirs > 0:
			// It goes on at the start, after a first commit that it takes for
			// aborted; or it has lost the partition, and coming back is as good.
			return fmt.Errorf("%s/%d: %d is committed, and the client knows of no commit: it has lost the partition, or the transaction committed after all",
				key.Topic, key.Partition, theirs)
		case known && max(0, o.Offset) != max(0, theirs):
			return fmt.Errorf("%s/%d: the client goes on at %d, but %d is committed: the transaction committed after all", key.Topic, key.Partition, o.Offset, theirs)
		}
	}
	return nil
}

// abandon aborts a transaction whose loop is over, so that readers need not
// wait for its timeout.
func (l *Loop) abandon() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	_, err := l.session.end(ctx, false)
	if l.spec.OnTransaction != nil {
		l.spec.OnTransaction(TransactionEnd{Err: errors.Join(err, l.out.failure()), Records: l.records, Duration: time.Since(l.began)})
	}
	l.out = nil
}

// withMetadata lets the commit of offsets carry the tasks' metadata.
func withMetadata(ctx context.Context, metadata map[Partition]string) context.Context {
	ctx = kgo.PreTxnCommitFnContext(ctx, func(req *kmsg.TxnOffsetCommitRequest) error {
		for i := range req.Topics {
			t := &req.Topics[i]
			for j := range t.Partitions {
				if m := metadata[Partition{t.Topic, t.Partitions[j].Partition}]; m != "" {
					t.Partitions[j].Metadata = &m
				}
			}
		}
		return nil
	})
	return kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			t := &req.Topics[i]
			for j := range t.Partitions {
				if m := metadata[Partition{t.Topic, t.Partitions[j].Partition}]; m != "" {
					t.Partitions[j].Metadata = &m
				}
			}
		}
		return nil
	})
}

func produceError(r *kgo.Record, err error) error {
	err = fmt.Errorf("produce to %s/%d (key %d bytes, value %d bytes): %w", r.Topic, r.Partition, len(r.Key), len(r.Value), err)
	switch {
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		return Fatal(fmt.Errorf("%w; run `provctl topics check`: max.message.bytes of the topic must be as `provctl topics create` sets it", err))
	case errors.Is(err, kerr.TopicAuthorizationFailed), errors.Is(err, kerr.TransactionalIDAuthorizationFailed), errors.Is(err, kerr.ClusterAuthorizationFailed):
		return fmt.Errorf("%w; `provctl topics acls` prints what this service needs", err)
	}
	return err
}
