// Package load sends the records of a fleet to the hook topics of a cluster:
// the producing end of `provctl replay`, `demo`, `up` and `bench`.
//
// A record's Kafka timestamp is its time_ms. Its partition is the hash of its
// key as Kafka's clients place it; a record without a key goes to partition 0,
// so that the same fleet always has the same coordinates on a fresh cluster.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/fleet"
	"provstream/internal/kafka"
	"provstream/internal/topics"
)

// Options of a Sender.
type Options struct {
	// CreateTopics makes a topic that a record names and the cluster lacks,
	// with the partitions and settings that hook topics have; else such a
	// record is an error.
	CreateTopics bool
	// Rate is records a second; 0 is as fast as the cluster takes them.
	Rate float64
	// Compression of the batches: none, snappy, lz4, zstd; "" is lz4.
	Compression string
}

// Sender sends records. It is used by one goroutine.
type Sender struct {
	flags  kafka.Flags
	opts   Options
	client *kgo.Client
	admin  *kadm.Client

	mu     sync.Mutex
	limits map[string]int32 // max.message.bytes by topic, read by the client

	topics map[string]*target
	start  time.Time
	sent   int64
	acked  atomic.Int64
	failed atomic.Pointer[error]
}

type target struct {
	name       string
	partitions int32
}

// NewSender connects to the cluster.
func NewSender(flags kafka.Flags, opts Options) (*Sender, error) {
	s := &Sender{flags: flags, opts: opts, limits: map[string]int32{}, topics: map[string]*target{}}
	codec, err := kafka.Codec(cmp.Or(opts.Compression, "lz4"))
	if err != nil {
		return nil, fmt.Errorf("compression: %w", err)
	}
	s.client, err = flags.Client(
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchMaxBytesFn(s.limit),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.MetadataMinAge(20*time.Millisecond), // a topic that was just created shows at once
		kgo.MaxBufferedRecords(1<<16),
		kgo.MaxBufferedBytes(128<<20),
		kgo.ProducerBatchCompression(codec),
	)
	if err != nil {
		return nil, err
	}
	s.admin = kadm.NewClient(s.client)
	return s, nil
}

// limit is the batch limit of a topic, which its max.message.bytes sets.
func (s *Sender) limit(topic string) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, ok := s.limits[topic]; ok {
		return n
	}
	return 1_000_012
}

// Send hands one record to the client, which sends it in the background. It
// waits while too much is under way. An error of an earlier record ends it.
func (s *Sender) Send(ctx context.Context, r *fleet.Record) error {
	if err := s.failure(); err != nil {
		return err
	}
	t := s.topics[r.Topic]
	if t == nil {
		var err error
		if t, err = s.target(ctx, r.Topic); err != nil {
			return err
		}
		s.topics[r.Topic] = t
	}
	if err := s.pace(ctx); err != nil {
		return err
	}
	rec := &kgo.Record{Topic: t.name, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.TimeMs)}
	if r.Key != nil {
		rec.Partition = topics.Partition(r.Key, t.partitions)
	}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
	}
	number := s.sent + 1
	s.sent++
	s.client.Produce(ctx, rec, func(_ *kgo.Record, err error) {
		if err != nil {
			if errors.Is(err, kerr.MessageTooLarge) {
				err = fmt.Errorf("%w: raise max.message.bytes of the topic", err)
			}
			err = fmt.Errorf("send record %d to %s/%d: %w", number, rec.Topic, rec.Partition, err)
			s.failed.CompareAndSwap(nil, &err)
			return
		}
		s.acked.Add(1)
	})
	return nil
}

// pace keeps to the rate, counted from the first record, so that a pause is
// caught up with.
func (s *Sender) pace(ctx context.Context) error {
	if s.opts.Rate <= 0 {
		return nil
	}
	if s.sent == 0 {
		s.start = time.Now()
	}
	due := s.start.Add(time.Duration(float64(s.sent) / s.opts.Rate * float64(time.Second)))
	wait := time.Until(due)
	if wait <= time.Millisecond {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait):
		return nil
	}
}

func (s *Sender) failure() error {
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// target looks a topic up, and creates it where that is asked for.
func (s *Sender) target(ctx context.Context, base string) (*target, error) {
	name := s.flags.Topic(base)
	if !kafka.IsHookTopic(s.flags.Prefix, name) {
		return nil, fmt.Errorf("topic %s: records of a fleet go to %s… and %s only", base, topics.HookPrefix, topics.Decisions)
	}
	for attempt := 0; ; attempt++ {
		details, err := s.admin.ListTopics(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", name, err)
		}
		d, ok := details[name]
		switch {
		case ok && d.Err == nil && len(d.Partitions) > 0:
			s.readLimit(ctx, name)
			return &target{name, int32(len(d.Partitions))}, nil
		case ok && d.Err != nil && !errors.Is(d.Err, kerr.UnknownTopicOrPartition):
			return nil, fmt.Errorf("topic %s: %w", name, d.Err)
		case !s.opts.CreateTopics:
			return nil, fmt.Errorf("topic %s does not exist: create it, or let replay do it with --create-topics; `provctl topics create --hooks` makes those of the ACS methods", name)
		case attempt == 0:
			err = s.create(ctx, name)
		case attempt > 250:
			err = fmt.Errorf("topic %s: created, but no leader came up", name)
		default:
			err = sleep(ctx, 20*time.Millisecond)
		}
		if err != nil {
			return nil, err
		}
	}
}

// create makes a hook topic as the deployment's others are: as many partitions
// as acs.decisions, or as prov.steps, and its settings.
func (s *Sender) create(ctx context.Context, name string) error {
	like := s.flags.Topic(topics.Decisions)
	details, err := s.admin.ListTopics(ctx, like)
	if err != nil {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	d := details[like]
	partitions, replicas := int32(len(d.Partitions)), int16(d.Partitions.NumReplicas())
	if d.Err != nil || partitions == 0 {
		partitions, replicas = -1, -1 // the cluster's defaults
	}
	configs := map[string]*string{}
	if resources, err := s.admin.DescribeTopicConfigs(ctx, like); err == nil {
		for _, r := range resources {
			for _, c := range r.Configs {
				switch c.Key {
				case "retention.ms", "max.message.bytes", "message.timestamp.type", "cleanup.policy", "min.insync.replicas":
					if c.Value != nil {
						configs[c.Key] = c.Value
					}
				}
			}
		}
	}
	r, err := s.admin.CreateTopic(ctx, partitions, replicas, configs, name)
	if err == nil {
		err = r.Err
	}
	if err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return fmt.Errorf("create topic %s: %w", name, err)
	}
	return nil
}

// readLimit reads max.message.bytes. A cluster that does not tell keeps the
// client's default: no permission to describe is no reason not to send.
func (s *Sender) readLimit(ctx context.Context, name string) {
	resources, _ := s.admin.DescribeTopicConfigs(ctx, name)
	for _, r := range resources {
		for _, c := range r.Configs {
			if c.Key != "max.message.bytes" || c.Value == nil {
				continue
			}
			if n, err := strconv.ParseInt(*c.Value, 10, 32); err == nil && n >= 512 {
				s.mu.Lock()
				s.limits[name] = int32(min(n, 1<<30))
				s.mu.Unlock()
			}
		}
	}
}

// Acked is how many records the cluster has acknowledged so far.
func (s *Sender) Acked() int64 { return s.acked.Load() }

// Flush waits until everything sent is acknowledged.
func (s *Sender) Flush(ctx context.Context) error {
	if err := s.client.Flush(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return s.failure()
}

// Close ends the connection; what is not flushed is lost.
func (s *Sender) Close() { s.client.Close() }

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
