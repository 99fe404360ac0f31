// Package redrive sends dead letters back to the topics they came from, after
// the cause is gone: a schema that was too strict, a tenant map that lacked a
// topic, an agent that was mended. It is `provctl redrive`.
//
// It is a transactional loop like the services: what is sent and how far the
// dead letters were read commit together, so an interrupted run goes on where it
// stopped and sends nothing twice. How far is kept by a consumer group whose name
// follows from the filter: the same filter goes on, another one begins at the
// oldest dead letter.
//
// A record that is sent again has the key, value, headers, partition and
// timestamp it had, and two headers more: provstream.error.attempts, which
// ingest counts up if it fails again, and provstream.redrive.from, where its dead
// letter stands. A record that now passes is a step like any other, beside the
// node that tells of its rejection; a good element of a batch that comes twice is
// a copy.
package redrive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/ingest"
	"provstream/internal/kafka"
	"provstream/internal/topics"
)

// Service is the name in the transactional id.
const Service = "redrive"

// HeaderFrom of a record that was sent again: topic/partition/offset of its dead
// letter.
const HeaderFrom = "provstream.redrive.from"

// DefaultMaxAttempts ends the loop of a record that never passes.
const DefaultMaxAttempts = 5

// Config says which dead letters go back.
type Config struct {
	kafka.Config
	Kinds  []string // dead-letter kinds; all when empty
	Topics []string // source topics; all when empty
	// Since and Until bound the time at which a record was rejected; zero does
	// not.
	Since, Until time.Time
	// MaxAttempts leaves alone what was tried so often already.
	MaxAttempts int
	// DryRun counts and sends nothing.
	DryRun bool
	// Progress is told now and then how far it is; may be nil.
	Progress func(Report)
}

// Report counts dead letters.
type Report struct {
	Read    int64 `json:"read"`
	Redrive int64 `json:"redriven"` // of a dry run: would be
	DryRun  bool  `json:"dry_run"`
	// What matched the filter and was not sent: tried too often; the value is in
	// neither the dead letter nor the source topic; too large to send.
	TooOften    int64            `json:"too_often"`
	Unavailable int64            `json:"unavailable"`
	TooLarge    int64            `json:"too_large"` // for the source topic as brokers limit it by default
	ByKind      map[string]int64 `json:"by_kind"`
	ByTopic     map[string]int64 `json:"by_topic"`
}

func (r *Report) add(o Report) {
	r.Read += o.Read
	r.Redrive += o.Redrive
	r.TooOften += o.TooOften
	r.Unavailable += o.Unavailable
	r.TooLarge += o.TooLarge
	for k, n := range o.ByKind {
		r.ByKind[k] += n
	}
	for k, n := range o.ByTopic {
		r.ByTopic[k] += n
	}
}

func newReport() Report { return Report{ByKind: map[string]int64{}, ByTopic: map[string]int64{}} }

// Group is the consumer group that keeps how far a filter has come.
func (c *Config) Group() string {
	kinds, from := slices.Clone(c.Kinds), slices.Clone(c.Topics)
	slices.Sort(kinds)
	slices.Sort(from)
	h := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d %d", kinds, from, millis(c.Since), millis(c.Until), c.MaxAttempts))
	return kafka.DefaultGroup(c.Prefix, Service) + "-" + hex.EncodeToString(h[:4])
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// Run sends back what matches among the dead letters that there are when it
// begins, and returns when all of it is committed.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = DefaultMaxAttempts
	}
	cfg.Service = Service
	cfg.Config.Group = cfg.Group()
	cfg.LeaveOnStop = true
	cfg.Config = cfg.Config.WithDefaults()
	cluster, err := kafka.Open(ctx, cfg.Flags)
	if err != nil {
		return newReport(), err
	}
	defer cluster.Close()
	r := &run{cfg: cfg, cluster: cluster, report: newReport(), left: make(map[int32]int64), flushed: make(map[int32]flush)}
	r.report.DryRun = cfg.DryRun
	if err := r.bounds(ctx); err != nil {
		return r.report, err
	}
	if len(r.left) == 0 {
		return r.report, nil
	}
	if cfg.DryRun {
		return r.dry(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.done = cancel
	spec := kafka.LoopSpec{Topics: []string{topics.DeadLetter}, Resets: true, OldTimestamps: true, Once: true, OnTransaction: r.ended}
	err = kafka.RunService(ctx, cfg.Config, nil, nil, spec, func(*kafka.Cluster) (kafka.Parts, error) { return kafka.Parts{Open: r.open}, nil })
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && len(r.left) != 0 {
		err = errors.New("stopped before the end; the same command goes on where this one was")
	}
	return r.report, err
}

// run is one run. Its tasks share what mu guards.
type run struct {
	cfg     Config
	cluster *kafka.Cluster
	done    func()
	from    map[int32]int64 // where each partition begins

	mu      sync.Mutex
	report  Report          // of committed transactions
	left    map[int32]int64 // the end of each partition that is not done
	flushed map[int32]flush // by tasks, in a transaction of which no end was told
}

// flush is what a task did in a transaction.
type flush struct {
	next   int64
	report Report
}

// bounds finds the dead letters there are now and how far they were read.
func (r *run) bounds(ctx context.Context) error {
	committed, err := r.cluster.Committed(ctx, r.cfg.Config.Group)
	if err != nil {
		return err
	}
	topic := r.cfg.Topic(topics.DeadLetter)
	r.from = make(map[int32]int64)
	for p := range r.cluster.Partitions {
		b, err := r.cluster.Bounds(ctx, topic, p)
		if err != nil {
			return err
		}
		r.from[p] = b.Start
		if o, ok := committed.Lookup(topic, p); ok {
			r.from[p] = max(b.Start, o.At)
		}
		if r.from[p] < b.End {
			r.left[p] = b.End
		}
	}
	return nil
}

// dry counts without sending.
func (r *run) dry(ctx context.Context) (Report, error) {
	topic := r.cfg.Topic(topics.DeadLetter)
	for p, end := range r.left {
		err := r.cluster.Read(ctx, topic, p, r.from[p], end, kafka.ReadCommitted, func(records []*kgo.Record) error {
			for _, rec := range records {
				if _, err := r.judge(ctx, rec, &r.report); err != nil {
					return err
				}
			}
			r.progress()
			return nil
		})
		if err != nil {
			return r.report, err
		}
	}
	return r.report, nil
}

func (r *run) progress() {
	if r.cfg.Progress != nil {
		r.cfg.Progress(r.report)
	}
}

// ended takes over what a committed transaction did, and ends the run when
// every partition is read to its end.
func (r *run) ended(e kafka.TransactionEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Committed {
		for p := range r.flushed {
			r.take(p)
		}
	}
	// What did not commit may have all the same, with the answer lost: the
	// offset with which the partition opens again tells.
}

// take counts what a task flushed and is committed now. mu is held.
func (r *run) take(p int32) {
	f := r.flushed[p]
	delete(r.flushed, p)
	r.report.add(f.report)
	r.progress()
	r.reached(p, f.next)
}

// reached ends the run when every partition is read to its end. mu is held.
func (r *run) reached(p int32, next int64) {
	if next >= r.left[p] {
		delete(r.left, p)
	}
	if len(r.left) == 0 {
		r.done()
	}
}

// task redrives one partition of the dead letters.
type task struct {
	r         *run
	ctx       context.Context
	partition int32
	end       int64
	report    Report
}

func (r *run) open(ctx context.Context, in kafka.Input) (kafka.Task, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &task{r: r, ctx: ctx, partition: in.Partition, end: r.left[in.Partition], report: newReport()}
	if f, ok := r.flushed[in.Partition]; ok && f.next == in.Committed {
		r.take(in.Partition)
	}
	delete(r.flushed, in.Partition)
	r.reached(in.Partition, in.Committed)
	return t, nil
}

// Process implements [kafka.Task]. Dead letters that came after the run began
// are left to the next one: what is redriven now may be among them.
func (t *task) Process(records []*kgo.Record, out *kafka.Out) error {
	for _, rec := range records {
		if rec.Attrs.IsControl() || rec.Offset >= t.end {
			continue
		}
		again, err := t.r.judge(t.ctx, rec, &t.report)
		if err != nil {
			return err
		}
		if again != nil {
			out.Produce(again)
		}
	}
	return nil
}

// Gap implements [kafka.Task]: expired dead letters are nobody's to send.
func (t *task) Gap(int64, int64, *kafka.Out) error { return nil }

// Flush implements [kafka.Task].
func (t *task) Flush(next int64, _ *kafka.Out) error {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.r.flushed[t.partition] = flush{next, t.report}
	t.report = newReport()
	return nil
}

// Metadata implements [kafka.Task].
func (t *task) Metadata() string { return "" }

// Close implements [kafka.Task].
func (t *task) Close() {}

// judge decides about one dead letter and counts it. It returns the record to
// send, nil for none.
func (r *run) judge(ctx context.Context, dead *kgo.Record, count *Report) (*kgo.Record, error) {
	count.Read++
	h := make(map[string]string)
	for _, header := range dead.Headers {
		if ingest.OwnHeader(header.Key) {
			h[header.Key] = string(header.Value)
		}
	}
	kind, topic := h[ingest.HeaderKind], h[ingest.HeaderTopic]
	switch {
	case topic == "" || !kafka.IsHookTopic(r.cfg.Prefix, topic): // not ingest's
		return nil, nil
	case len(r.cfg.Kinds) != 0 && !slices.Contains(r.cfg.Kinds, kind),
		len(r.cfg.Topics) != 0 && !slices.Contains(r.cfg.Topics, topic),
		!r.cfg.Since.IsZero() && dead.Timestamp.Before(r.cfg.Since),
		!r.cfg.Until.IsZero() && !dead.Timestamp.Before(r.cfg.Until):
		return nil, nil
	}
	attempts, err := strconv.Atoi(h[ingest.HeaderAttempts])
	if err != nil {
		attempts = 1
	}
	if attempts >= r.cfg.MaxAttempts {
		count.TooOften++
		return nil, nil
	}
	again, err := r.source(ctx, dead, h)
	if err != nil {
		return nil, err
	}
	switch {
	case again == nil:
		count.Unavailable++
		return nil, nil
	case size(again) > maxRecordBytes:
		count.TooLarge++
		return nil, nil
	}
	again.Headers = append(again.Headers,
		kgo.RecordHeader{Key: ingest.HeaderAttempts, Value: []byte(strconv.Itoa(attempts))},
		kgo.RecordHeader{Key: HeaderFrom, Value: fmt.Appendf(nil, "%s/%d/%d", dead.Topic, dead.Partition, dead.Offset)})
	count.Redrive++
	count.ByKind[kind]++
	count.ByTopic[topic]++
	return again, nil
}

// maxRecordBytes fits a batch of the brokers' message.max.bytes with our headers.
const maxRecordBytes = 1_048_588 - 1024

func size(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 10
	}
	return n
}

// source builds the source record again, from the dead letter or, where that
// has not all of it, from the source topic; nil if neither has.
func (r *run) source(ctx context.Context, dead *kgo.Record, h map[string]string) (*kgo.Record, error) {
	partition, err := strconv.ParseInt(h[ingest.HeaderPartition], 10, 32)
	if err != nil {
		return nil, nil
	}
	again := &kgo.Record{Topic: h[ingest.HeaderTopic], Partition: int32(partition), Key: dead.Key, Value: dead.Value}
	if ms, err := strconv.ParseInt(h[ingest.HeaderTimestamp], 10, 64); err == nil {
		again.Timestamp = time.UnixMilli(ms)
	}
	headers := dead.Headers
	if h[ingest.HeaderTruncated] != "" {
		offset, err := strconv.ParseInt(h[ingest.HeaderOffset], 10, 64)
		if err != nil {
			return nil, nil
		}
		original, err := r.read(ctx, again.Topic, again.Partition, offset)
		if original == nil || err != nil {
			return nil, err
		}
		again.Key, again.Value, headers = original.Key, original.Value, original.Headers
	}
	for _, header := range headers {
		if !ingest.OwnHeader(header.Key) && header.Key != HeaderFrom {
			again.Headers = append(again.Headers, header)
		}
	}
	return again, nil
}

// read fetches one record; nil if it is gone.
func (r *run) read(ctx context.Context, topic string, partition int32, offset int64) (*kgo.Record, error) {
	var found *kgo.Record
	err := r.cluster.Read(ctx, topic, partition, offset, offset+1, kafka.ReadCommitted, func(records []*kgo.Record) error {
		for _, rec := range records {
			if rec.Offset == offset {
				found = rec
			}
		}
		return nil
	})
	if errors.Is(err, kafka.ErrOffsetOutOfRange) || errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil, nil
	}
	return found, err
}

// String is a line for people.
func (r Report) String() string {
	done := "sent again"
	if r.DryRun {
		done = "would be sent again"
	}
	parts := []string{fmt.Sprintf("%d dead letters read, %d %s", r.Read, r.Redrive, done)}
	if r.TooOften != 0 {
		parts = append(parts, fmt.Sprintf("%d tried too often", r.TooOften))
	}
	if r.Unavailable != 0 {
		parts = append(parts, fmt.Sprintf("%d whose value is gone", r.Unavailable))
	}
	if r.TooLarge != 0 {
		parts = append(parts, fmt.Sprintf("%d too large", r.TooLarge))
	}
	return strings.Join(parts, ", ")
}
