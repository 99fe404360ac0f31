package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// worker runs the task of one partition on a goroutine of its own. The loop
// owns touched to held; the goroutine owns task, next, stamp and metadata (the loop reads
// them only between jobs). The jobs channel is the bounded queue: a slow
// partition holds up the loop.
type worker struct {
	loop *Loop
	key  Partition
	jobs chan job
	done chan struct{}
	ctx  context.Context
	end  context.CancelFunc

	touched bool  // took part in the open transaction
	given   int64 // the offset behind the last record that was given to it
	givenAt int64 // and that record's time, ms, at most the time it came
	readTo  int64 // the end of the partition as it was then
	held    bool  // paused by align

	task     Task
	next     int64
	stamp    int64 // timestamp of the last record, ms
	metadata string

	mu      sync.Mutex
	stopped bool
}

// job is a batch of records, or the flush before a commit.
type job struct {
	records  []*kgo.Record
	logStart int64
	flush    bool
	out      *Out
}

// committedOnce reads the committed offsets of a group once for all partitions
// of one assignment.
type committedOnce func() (map[Partition]Input, error)

func (l *Loop) lookup(of map[string][]int32) committedOnce {
	return sync.OnceValues(func() (map[Partition]Input, error) {
		offsets, err := l.cluster.CommittedOf(l.life, l.cfg.Group, of)
		if err != nil {
			return nil, err
		}
		l.findBacklog(offsets, slices.Collect(maps.Keys(of)))
		m := make(map[Partition]Input)
		for topic, partitions := range offsets {
			for p, o := range partitions {
				m[Partition{topic, p}] = Input{topic, p, o.At, o.Metadata}
			}
		}
		return m, nil
	})
}

func (l *Loop) start(key Partition, committed committedOnce) {
	ctx, cancel := context.WithCancel(l.life)
	w := &worker{loop: l, key: key, jobs: make(chan job, 2), done: make(chan struct{}), ctx: ctx, end: cancel}
	l.workers[key] = w
	l.spec.lag.add(key)
	l.count(1, 0)
	go w.run(committed)
}

// run opens the task and serves its jobs. After a failure it only takes them
// off the queue.
func (w *worker) run(committed committedOnce) {
	defer close(w.done)
	err := w.openTask(committed)
	w.loop.count(-1, 1)
	defer w.loop.count(0, -1)
	if err != nil && w.ctx.Err() == nil {
		w.loop.fail(err)
	}
	for j := range w.jobs {
		if err == nil && j.out.failure() == nil {
			if err = w.do(j); err != nil {
				j.out.fail(err)
			}
		} else if err != nil {
			j.out.fail(err)
		}
		w.loop.jobs.Done()
	}
	if w.task != nil {
		w.task.Close()
	}
}

func (w *worker) openTask(committed committedOnce) error {
	in, err := w.input(committed)
	if err != nil {
		return err
	}
	task, err := w.loop.open(w.ctx, in)
	if IsFatal(err) {
		// What was read later may be of an instance that the partition has moved to
		// meanwhile: then nothing is wrong with it.
		if now, again := w.input(w.loop.lookup(map[string][]int32{w.key.Topic: {w.key.Partition}})); again != nil || now.Committed != in.Committed {
			err = fmt.Errorf("the partition has moved, or cannot be asked for (%v), while it was opened; what was found: %v", again, err)
		}
	}
	if err != nil {
		return fmt.Errorf("open %s/%d: %w", w.key.Topic, w.key.Partition, err)
	}
	w.task, w.next = task, max(0, in.Committed)
	w.loop.spec.lag.commit(w.key, w.next, 0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.stopped {
		w.loop.session.client().ResumeFetchPartitions(map[string][]int32{w.key.Topic: {w.key.Partition}})
	}
	return nil
}

// input is what is committed of the worker's partition.
func (w *worker) input(committed committedOnce) (Input, error) {
	all, err := committed()
	in, ok := all[w.key]
	if !ok {
		in = Input{Topic: w.key.Topic, Partition: w.key.Partition, Committed: -1}
	}
	return in, err
}

func (w *worker) do(j job) error {
	if j.flush {
		if err := w.task.Flush(w.next, j.out); err != nil {
			return fmt.Errorf("finish %s/%d@%d: %w", w.key.Topic, w.key.Partition, w.next, err)
		}
		w.metadata = w.task.Metadata()
		return nil
	}
	first := j.records[0].Offset
	if first < w.next && !w.loop.spec.Resets {
		return fmt.Errorf("record %s/%d@%d stands below %d, which was to be next", w.key.Topic, w.key.Partition, first, w.next)
	}
	// Offsets may be missing because a transaction was aborted or the topic is
	// compacted. They are lost only where the log now begins behind them.
	if lost := min(j.logStart, first); lost > w.next {
		if err := w.task.Gap(w.next, lost, j.out); err != nil {
			return fmt.Errorf("%s/%d lost offsets %d to %d: %w", w.key.Topic, w.key.Partition, w.next, lost-1, err)
		}
		w.next = lost
	}
	last := j.records[len(j.records)-1]
	next, stamp := last.Offset+1, last.Timestamp.UnixMilli() // the task may recycle the records
	if err := w.task.Process(j.records, j.out); err != nil {
		return fmt.Errorf("process %s/%d@%d: %w", w.key.Topic, w.key.Partition, first, err)
	}
	w.next, w.stamp = next, stamp
	return nil
}

// stop ends the worker and waits for it.
func (w *worker) stop() {
	w.mu.Lock()
	w.stopped = true
	w.mu.Unlock()
	w.end()
	close(w.jobs)
	<-w.done
}

// reopen drops the state of a partition and builds it again from what is
// committed.
func (l *Loop) reopen(key Partition) {
	l.session.client().PauseFetchPartitions(map[string][]int32{key.Topic: {key.Partition}})
	w := l.workers[key]
	w.stop()
	l.start(key, l.lookup(map[string][]int32{key.Topic: {key.Partition}}))
}

// rebalance applies the changes of the assignment since the last poll. While a
// transaction is open the group cannot rebalance, but it can be lost.
func (l *Loop) rebalance() error {
	l.mu.Lock()
	events := l.events
	l.events = nil
	l.mu.Unlock()
	for _, e := range events {
		committed := l.lookup(e.partitions)
		for topic, partitions := range e.partitions {
			for _, p := range partitions {
				key := Partition{topic, p}
				w := l.workers[key]
				if w != nil {
					if w.touched {
						return fmt.Errorf("%s/%d was lost while a transaction was open", topic, p)
					}
					w.stop()
					delete(l.workers, key)
					l.spec.lag.remove(key)
				}
				if !e.lost {
					l.start(key, committed)
				}
			}
		}
		l.log.Info("assignment", "lost", e.lost, "partitions", e.partitions)
	}
	return nil
}

// count keeps the numbers of tasks that are opening and open.
func (l *Loop) count(opening, open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opening += opening
	l.opened += open
	if l.spec.OnTasks != nil {
		l.spec.OnTasks(l.opened, l.opening)
	}
}

func (l *Loop) fail(err error) {
	select {
	case l.failed <- err:
	default:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wake != nil {
		l.wake()
	}
}
