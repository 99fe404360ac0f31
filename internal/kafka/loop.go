package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LoopSpec says what a service consumes and how.
type LoopSpec struct {
	// Topics are names, without prefix; with Regex they are regular
	// expressions over the name without prefix.
	Topics []string
	Regex  bool
	// Resets lets the consumption of a partition start over or behind a hole;
	// without it the loop stops for good, because what is skipped is missing
	// from its state.
	Resets bool
	// OldTimestamps is set where records are produced with timestamps of the
	// past: they must not count as overdue.
	OldTimestamps bool
	last          func(context.Context) map[Partition]int64 // see [Parts.Last]
	// Once is set by a command for people, who are told at once when the brokers
	// refuse something; a service waits for its rights.
	Once bool
	// Align is how far a partition of a backlog may be ahead of the others, in
	// the time of its records; 0 lets each go as fast as it comes.
	Align time.Duration
	// OnTransaction is told of every end of a transaction.
	OnTransaction func(TransactionEnd)
	// OnTasks is told when tasks opened, are opening, or went.
	OnTasks func(open, opening int)

	// RunService's own: it is told of partitions and commits, and the hooks of
	// the client that consumes and produces.
	lag         *lagMonitor
	clientHooks func() []kgo.Hook
}

// TransactionEnd describes a transaction that ended.
type TransactionEnd struct {
	Committed bool
	Err       error
	Records   int           // of the input
	Produced  int64         // records
	Bytes     int64         // of their keys and values
	Duration  time.Duration // from its first record
	End       time.Duration // of it, flush and commit
}

// Bounds of one transaction beside its time: what a restart repeats at most.
const (
	maxTransactionRecords = 20_000
	maxTransactionBytes   = 64 << 20
	maxPollRecords        = 5_000

	// What one fetch may hold of one partition, and of all. The latter is not to
	// be met before the former: where it ends a response, kfake forgets to list
	// the aborted transactions in it.
	partitionBytes = 512 << 10
	alignedBytes   = 64 << 10 // where partitions are kept side by side: the grain of that
	fetchBytes     = 96 << 20

	// defaultMessageBytes is the brokers' message.max.bytes.
	defaultMessageBytes = 1_048_588

	transactionTimeout = 10 * time.Second
	heartbeatInterval  = 3 * time.Second
	metadataAge        = 10 * time.Second
	// A partition that is resumed waits for the fetch that is under way without it,
	// so this is also what a start, a rebalance and back pressure may cost.
	fetchMaxWait = 200 * time.Millisecond
	idlePoll     = 10 * time.Second
	endTimeout   = 30 * time.Second
	lastTimeout  = 3 * time.Second
)

// Partition is a partition of a topic.
type Partition struct {
	Topic     string
	Partition int32
}

// Loop is one life of a service: a client, its share of the partitions, and a
// task for each. Run it once; [Supervise] makes the next one after a fault.
//
// The goroutine of Run owns everything here but what mu guards.
type Loop struct {
	cfg     Config
	spec    LoopSpec
	cluster *Cluster
	open    OpenTask
	log     *slog.Logger
	session session
	// life ends with Run: lookups and tasks hang on it.
	life context.Context
	kill context.CancelFunc

	mu     sync.Mutex
	events []groupEvent // from the client's callbacks, in order
	wake   func()       // ends the poll that is under way
	// how many tasks are open, and are opening
	opened, opening int
	backlog         map[Partition]int64 // see align: ends of partitions that had something to read

	failed  chan error // first failure of a worker
	workers map[Partition]*worker

	// The transaction that is open, if out is not nil.
	out     *Out
	began   time.Time
	records int
	bytes   int
	jobs    sync.WaitGroup // jobs that workers have not finished

	// What align waits for, the offset it was at when it moved, and when.
	last      *worker
	lastGiven int64
	lastMoved time.Time
}

// groupEvent is a change of the assignment.
type groupEvent struct {
	lost       bool
	partitions map[string][]int32
}

// NewLoop prepares a loop. cluster is used for lookups and must outlive it.
func NewLoop(cfg Config, cluster *Cluster, spec LoopSpec, open OpenTask) *Loop {
	cfg = cfg.WithDefaults()
	l := &Loop{
		cfg: cfg, spec: spec, cluster: cluster, open: open, log: cfg.Logger,
		failed: make(chan error, 1), workers: make(map[Partition]*worker), backlog: make(map[Partition]int64),
	}
	l.life, l.kill = context.WithCancel(context.Background())
	return l
}

// assigned and lost run on the client's goroutine. A partition that arrives is
// paused at once: its task is not open yet, and it must not hold up the
// records of others.
func (l *Loop) assigned(_ context.Context, cl *kgo.Client, p map[string][]int32) {
	if len(p) != 0 {
		cl.PauseFetchPartitions(p)
	}
	l.event(groupEvent{partitions: p})
}

func (l *Loop) lost(_ context.Context, _ *kgo.Client, p map[string][]int32) {
	l.event(groupEvent{lost: true, partitions: p})
}

func (l *Loop) event(e groupEvent) {
	if len(e.partitions) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	if l.wake != nil {
		l.wake()
	}
}

// poll waits for records, for at most so long, or for something else to do.
func (l *Loop) poll(ctx context.Context, wait time.Duration) kgo.Fetches {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	l.mu.Lock()
	l.wake = cancel
	if len(l.events) != 0 || len(l.failed) != 0 {
		cancel()
	}
	l.mu.Unlock()
	return l.session.poll(ctx, maxPollRecords)
}

// Run consumes until ctx ends; then it finishes the open transaction and
// returns nil. Any error means that this loop is over; what it had not
// committed has not happened.
func (l *Loop) Run(ctx context.Context) (err error) {
	if err := l.connect(ctx); err != nil {
		return err
	}
	defer func() {
		l.kill()
		for _, w := range l.workers {
			w.stop()
		}
		l.session.close()
		// Leave when the client is gone: its heartbeats would take the answer
		// for a reason to join again.
		if err == nil && l.cfg.LeaveOnStop {
			l.leave()
		}
	}()
	for {
		if ctx.Err() != nil {
			return l.leaveOff(l.finish())
		}
		if err := l.turn(ctx); err != nil {
			return l.usurped(l.leaveOff(err))
		}
	}
}

// usurped tells whether a transaction failed because another process has this
// one's name: then each would take it back from the other for ever.
func (l *Loop) usurped(err error) error {
	if !errors.Is(err, kerr.InvalidProducerEpoch) && !errors.Is(err, kerr.ProducerFenced) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.InstanceID = l.cfg.Group, &l.cfg.Instance
	req.MemberID, req.Generation = l.session.client().GroupMetadata()
	if resp, asked := req.RequestWith(ctx, l.cluster.Client); asked == nil && errors.Is(kerr.ErrorForCode(resp.ErrorCode), kerr.FencedInstanceID) {
		return l.twin(err)
	}
	return err
}

func (l *Loop) twin(err error) error {
	return Fatal(fmt.Errorf("another process runs as --instance %s of group %s: %w", l.cfg.Instance, l.cfg.Group, err))
}

// leaveOff aborts the transaction that an error leaves open.
func (l *Loop) leaveOff(err error) error {
	if err != nil && l.out != nil {
		l.out.fail(err)
		l.jobs.Wait()
		l.abandon()
	}
	return err
}

// finish is the graceful stop: the open transaction commits; where the service
// has a last word, the loop reads on until it is in it.
func (l *Loop) finish() error {
	if l.spec.last != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastTimeout)
		defer cancel()
		last := l.spec.last(ctx)
		reached := func() bool {
			for p, offset := range last {
				if w := l.workers[p]; w != nil && w.given <= offset {
					return false
				}
			}
			return true
		}
		for ctx.Err() == nil && !reached() {
			if err := l.take(ctx, lastTimeout); err != nil {
				return err
			}
		}
	}
	if l.out == nil {
		return nil
	}
	l.out.Final = true
	return l.end()
}

// turn is one poll, and the end of the transaction when it is time.
func (l *Loop) turn(ctx context.Context) error {
	wait := idlePoll
	if l.out != nil {
		wait = max(0, time.Until(l.began.Add(l.cfg.CommitInterval)))
	}
	if err := l.take(ctx, wait); err != nil {
		return err
	}
	if l.out == nil {
		l.session.allowRebalance()
		return nil
	}
	if time.Since(l.began) >= l.cfg.CommitInterval || l.records >= maxTransactionRecords || l.bytes >= maxTransactionBytes {
		return l.end()
	}
	return nil
}

// take is one poll: what it brings goes to the workers.
func (l *Loop) take(ctx context.Context, wait time.Duration) error {
	fetches := l.poll(ctx, wait)
	if err := l.rebalance(); err != nil {
		return err
	}
	select {
	case err := <-l.failed:
		return err
	default:
	}
	if err := l.dispatch(fetches); err != nil {
		return err
	}
	l.align(time.Now())
	return nil
}

// dispatch gives a poll's records to their workers, beginning a transaction
// with the first.
func (l *Loop) dispatch(fetches kgo.Fetches) error {
	var first error
	fetches.EachPartition(func(ft kgo.FetchTopicPartition) {
		if first == nil {
			first = l.dispatchPartition(ft)
		}
	})
	return first
}

func (l *Loop) dispatchPartition(ft kgo.FetchTopicPartition) error {
	key := Partition{ft.Topic, ft.Partition}
	if err := l.fetchError(key, ft.Err); err != nil {
		return err
	}
	if len(ft.Records) == 0 {
		return nil
	}
	w := l.workers[key]
	if w == nil {
		return fmt.Errorf("records of %s/%d, which is not assigned", ft.Topic, ft.Partition)
	}
	if l.out == nil {
		if err := l.begin(); err != nil {
			return err
		}
	}
	last := ft.Records[len(ft.Records)-1]
	w.touched, w.given, w.readTo = true, last.Offset+1, ft.LastStableOffset
	w.givenAt = min(last.Timestamp.UnixMilli(), time.Now().UnixMilli())
	l.records += len(ft.Records)
	for _, r := range ft.Records {
		l.bytes += len(r.Key) + len(r.Value)
	}
	l.jobs.Add(1)
	w.jobs <- job{records: ft.Records, logStart: ft.LogStartOffset, out: l.out}
	return nil
}

// fetchError judges an error that a poll brought.
func (l *Loop) fetchError(key Partition, err error) error {
	var loss *kgo.ErrDataLoss
	switch {
	case err == nil, errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return nil
	case errors.As(err, &loss) && l.spec.Resets:
		l.log.Error("the broker lost records that were read", "topic", key.Topic, "partition", key.Partition,
			"read_to", loss.ConsumedTo, "goes_on_at", loss.ResetTo)
		return nil
	case errors.As(err, &loss), errors.Is(err, kerr.OffsetOutOfRange):
		return Fatal(fmt.Errorf("consume %s/%d: %w: the records between the committed offset and the log are gone, and with them a part of this "+
			"service's state; restore the topic, or start a new deployment under another --prefix", key.Topic, key.Partition, err))
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		// Deleted, or deleted and made again. The client would ask for what is
		// gone, as fast as it is refused, and never find the new one of the name;
		// a new client does.
		return fmt.Errorf("consume %s/%d, which was deleted: %w", key.Topic, key.Partition, err)
	case errors.Is(err, kerr.FencedInstanceID):
		return l.twin(err)
	default:
		return fmt.Errorf("consume %s/%d: %w", key.Topic, key.Partition, err)
	}
}

// leave gives the partitions of this static member away at once.
func (l *Loop) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := l.cluster.leaveGroup(ctx, l.cfg.Group, l.cfg.Instance); err != nil {
		l.log.Warn("could not leave the group; the partitions move after the session timeout", "error", err)
	}
}
