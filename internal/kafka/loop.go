package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/topics"
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
	last   func(context.Context) map[Partition]int64 // see [Parts.Last]
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
	maxTransactionRecords = 50_000
	maxTransactionBytes   = 64 << 20
	maxPollRecords        = 10_000

	// What one fetch may hold of one partition, and of all. The latter is not to
	// be met before the former: where it ends a response, kfake forgets to list
	// the aborted transactions in it.
	partitionBytes = 512 << 10
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

	failed  chan error // first failure of a worker
	workers map[Partition]*worker

	// The transaction that is open, if out is not nil.
	out     *Out
	began   time.Time
	records int
	bytes   int
	jobs    sync.WaitGroup // jobs that workers have not finished
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
		failed: make(chan error, 1), workers: make(map[Partition]*worker),
	}
	l.life, l.kill = context.WithCancel(context.Background())
	return l
}

// connect makes the client. The producer id comes first, with a client of its
// own: that fences a former process of this name and finishes what it left
// open. Otherwise its undecided transaction hides the committed offsets from
// the group's new session.
func (l *Loop) connect(ctx context.Context) error {
	base, err := l.cfg.options()
	if err != nil {
		return Fatal(err)
	}
	base = slices.Clip(base) // two clients append to it
	if !l.cfg.NoTransactions {
		id := TransactionalID(l.cfg.Prefix, l.cfg.Service, l.cfg.Instance)
		cl, err := kgo.NewClient(append(base, kgo.WithLogger(NewLogger(l.log)), kgo.TransactionalID(id), kgo.TransactionTimeout(transactionTimeout))...)
		if err != nil {
			return Fatal(fmt.Errorf("kafka client: %w", err))
		}
		_, _, err = cl.ProducerID(ctx)
		cl.Close()
		if err != nil {
			return fmt.Errorf("producer id of %s: %w", id, err)
		}
	}
	if l.session, err = newSession(l.cfg.NoTransactions, append(base, l.options()...)); err != nil {
		return Fatal(fmt.Errorf("kafka client: %w", err))
	}
	return nil
}

func (l *Loop) options() []kgo.Opt {
	reset := kgo.NoResetOffset()
	if l.spec.Resets {
		reset = kgo.NewOffset().AtStart()
	}
	opts := []kgo.Opt{
		kgo.WithLogger(NewLogger(l.log)),
		kgo.ConsumerGroup(l.cfg.Group),
		kgo.InstanceID(l.cfg.Instance),
		kgo.SessionTimeout(l.cfg.SessionTimeout),
		kgo.HeartbeatInterval(min(heartbeatInterval, l.cfg.SessionTimeout/3)),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.BlockRebalanceOnPoll(),
		kgo.DisableAutoCommit(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// The markers of transactional producers come along, so that committed
		// offsets reach the end of a partition: lag 0 is lag 0, and the clock
		// passes them.
		kgo.KeepControlRecords(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(reset),
		kgo.FetchMaxWait(fetchMaxWait),
		kgo.FetchMaxBytes(fetchBytes),
		kgo.BrokerMaxReadBytes(fetchBytes + 16<<20), // a fetch may exceed its limit by a batch
		kgo.FetchMaxPartitionBytes(partitionBytes),
		kgo.MetadataMaxAge(metadataAge),
		kgo.OnPartitionsAssigned(l.assigned),
		kgo.OnPartitionsRevoked(l.lost),
		kgo.OnPartitionsLost(l.lost),
	}
	opts = append(opts, producerOptions(l.cfg.Prefix)...)
	if l.spec.clientHooks != nil {
		opts = append(opts, kgo.WithHooks(l.spec.clientHooks()...))
	}
	if !l.cfg.NoTransactions {
		opts = append(opts,
			kgo.TransactionalID(TransactionalID(l.cfg.Prefix, l.cfg.Service, l.cfg.Instance)),
			kgo.TransactionTimeout(transactionTimeout))
	}
	names := make([]string, len(l.spec.Topics))
	for i, t := range l.spec.Topics {
		if names[i] = l.cfg.Prefix + t; l.spec.Regex {
			names[i] = "^" + regexp.QuoteMeta(l.cfg.Prefix) + t + "$"
		}
	}
	opts = append(opts, kgo.ConsumeTopics(names...))
	if l.spec.Regex {
		opts = append(opts, kgo.ConsumeRegex())
	}
	return opts
}

// producerOptions are those of everything that writes to the prov.* topics.
// Every record names its partition. The linger is long for the sake of large
// batches: the end of a transaction flushes what lingers.
func producerOptions(prefix string) []kgo.Opt {
	limits := make(map[string]int32)
	for _, t := range topics.All() {
		if t.MaxMessageBytes != 0 {
			limits[prefix+t.Name] = int32(t.MaxMessageBytes)
		}
	}
	return []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytesFn(func(topic string) int32 {
			if n, ok := limits[topic]; ok {
				return n
			}
			return defaultMessageBytes
		}),
		kgo.ProducerLinger(25 * time.Millisecond),
		// As small as lz4 on these texts, for 1 µs of CPU a record less in ingest
		// alone: its Go implementation has assembly.
		kgo.ProducerBatchCompression(kgo.SnappyCompression(), kgo.NoCompression()),
		kgo.MaxBufferedRecords(1 << 17),
		kgo.RecordDeliveryTimeout(endTimeout),
	}
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
			return l.leaveOff(err)
		}
	}
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
	return l.end(true)
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
		return l.end(true)
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
	return l.dispatch(fetches)
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
	w.touched, w.given = true, ft.Records[len(ft.Records)-1].Offset+1
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
		l.log.Warn("a topic is gone", "topic", key.Topic, "partition", key.Partition)
		if l.spec.Resets {
			return nil
		}
		return fmt.Errorf("consume %s/%d: %w", key.Topic, key.Partition, err)
	case errors.Is(err, kerr.FencedInstanceID):
		return Fatal(fmt.Errorf("another process runs as --instance %s of group %s: %w", l.cfg.Instance, l.cfg.Group, err))
	default:
		return fmt.Errorf("consume %s/%d: %w", key.Topic, key.Partition, err)
	}
}

func (l *Loop) begin() error {
	if err := l.session.begin(); err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	// A context of its own: a stop lets the open transaction finish.
	l.out = &Out{ctx: context.Background(), produce: l.session.produce}
	l.began = time.Now()
	l.records, l.bytes = 0, 0
	return nil
}

// end finishes the transaction: steps 4 to 7 of the package comment.
func (l *Loop) end(commit bool) error {
	start := time.Now()
	l.jobs.Wait()
	if commit && l.out.failure() == nil {
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
	if commit && l.out.failure() == nil {
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
	committed, err := l.session.end(withMetadata(ctx, metadata), commit && failure == nil)
	if l.spec.OnTransaction != nil {
		l.out.mu.Lock()
		e := TransactionEnd{
			Committed: committed && err == nil, Err: errors.Join(err, failure), Records: l.records, Produced: l.out.records, Bytes: l.out.bytes,
			Duration: time.Since(l.began), End: time.Since(start),
		}
		l.out.mu.Unlock()
		l.spec.OnTransaction(e)
	}
	l.out = nil
	switch {
	case failure != nil:
		return failure
	case err != nil:
		return fmt.Errorf("end a transaction: %w", err)
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

// positions compares what the client goes on from after a commit that failed
// without an error with what the brokers have. After some answers (an
// UNKNOWN_SERVER_ERROR) the client takes for aborted what may have committed;
// it would then read, and write, a batch twice.
func (l *Loop) positions(ctx context.Context) error {
	committed, err := l.cluster.Committed(ctx, l.cfg.Group)
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
		if o, ok := mine[key.Topic][key.Partition]; ok && max(0, o.Offset) != max(0, theirs) {
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

// leave gives the partitions of this static member away at once.
func (l *Loop) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := l.cluster.leaveGroup(ctx, l.cfg.Group, l.cfg.Instance); err != nil {
		l.log.Warn("could not leave the group; the partitions move after the session timeout", "error", err)
	}
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
