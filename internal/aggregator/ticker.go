package aggregator

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/codec"
	"provstream/internal/kafka"
	"provstream/internal/topics"
)

const (
	// tickInterval is the shortest time between two ticks of a partition.
	tickInterval = 100 * time.Millisecond
	// freshInterval is the longest time between two ticks of a partition while
	// records come: graces start from a clock that is at most so old.
	freshInterval = time.Second
	// watchInterval is the longest time between two observations, so that the
	// age of the clock can be told also while nobody waits for a tick.
	watchInterval = 15 * time.Second
	// catchUp is how far a tick goes where much is open.
	catchUp = 30 * time.Second
)

// A tick makes everything due that lies before it, in one transaction. Where more
// than calmSteps records of a partition are open or unread, as after hours in which
// nobody ticked, time goes on by catchUp from timer to timer: any earlier tick is
// true as well. Tests change it.
var calmSteps int64 = 500_000

// ticker appends ticks to the partitions that this instance owns, with the
// plain idempotent producer that the cluster's client is: a tick is a fact about the hook topics, true
// whatever becomes of the transaction that is open, and one more of them does
// no harm. A lost tick is replaced by a later one.
//
// The tasks tell what their machines wait for; the ticker's goroutine looks
// every tickInterval, and observes the hook topics only when a tick would serve.
type ticker struct {
	s     *service
	hooks kafka.HookClock
	topic string

	mu         sync.Mutex
	partitions map[int32]*partitionClock
}

// partitionClock is what the ticker knows of a partition; ticker.mu guards it.
type partitionClock struct {
	clock    int64 // of the machine
	known    bool
	due      int64 // earliest timer
	timer    bool
	open     int64 // records of open segments
	next     int64 // offset of the record to be processed next
	fresh    bool  // records came since the last tick
	sent     int64
	hasSent  bool
	lastSent time.Time
}

func newTicker(s *service) *ticker {
	return &ticker{
		s: s, topic: s.cfg.Topic(topics.Steps), partitions: make(map[int32]*partitionClock),
		hooks: kafka.HookClock{Cluster: s.cluster, IngestGroup: s.cfg.IngestGroup, Tolerance: s.cfg.ClockTolerance},
	}
}

func (t *ticker) add(partition int32) *partitionClock {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := &partitionClock{}
	t.partitions[partition] = c
	return c
}

// remove forgets a task's partition, unless a newer task has it.
func (t *ticker) remove(partition int32, c *partitionClock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.partitions[partition] == c {
		delete(t.partitions, partition)
		t.s.metrics.forget(partition)
	}
}

// update tells what a partition's machine has come to; the members that ticks
// change stay.
func (t *ticker) update(c *partitionClock, now partitionClock) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.clock, c.known, c.due, c.timer, c.open, c.next = now.clock, now.known, now.due, now.timer, now.open, now.next
	c.fresh = c.fresh || now.fresh
}

func (t *ticker) run(ctx context.Context) {
	pause, still := tickInterval, time.Duration(0)
	last, behind := int64(math.MinInt64), false
	var looked time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = tickInterval
		if now := time.Now(); !t.wanted(now) && now.Sub(looked) < watchInterval {
			continue
		} else {
			looked = now
		}
		o, err := t.hooks.Observe(ctx)
		if err != nil {
			if ctx.Err() == nil {
				t.s.metrics.observeErrors.Inc()
				t.s.cfg.Logger.Warn("no tick: the hook topics could not be observed", "error", kafka.ExplainRights(err, Service))
			}
			continue
		}
		t.s.metrics.observed(o)
		if !o.OK || o.T == last && !behind {
			// Time stands still: a record is on its way through ingest, or ingest is
			// down or has not begun.
			still = min(max(2*tickInterval, 2*still), freshInterval)
			pause = still
		} else {
			still = 0
		}
		if o.OK {
			// A partition whose end nobody tells is taken for one that is read.
			ends, _ := t.s.cluster.Admin.ListEndOffsets(ctx, t.topic)
			last, behind = o.T, t.send(ctx, time.Now(), o.T, ends)
		}
	}
}

// wanted tells whether any partition could use a tick now.
func (t *ticker) wanted(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	best := now.Add(-t.s.cfg.ClockTolerance).UnixMilli() // no tick is later than this
	for _, c := range t.partitions {
		if c.wants(now, best) {
			return true
		}
	}
	return false
}

// wants tells whether tick at would serve: it makes a timer due, or it keeps
// the clock fresh. A tick that was sent and not yet processed is given a while.
func (c *partitionClock) wants(now time.Time, at int64) bool {
	if c.hasSent && at <= c.sent || c.known && at <= c.clock {
		return false
	}
	underway := c.hasSent && (!c.known || c.clock < c.sent) && now.Sub(c.lastSent) < freshInterval
	if c.timer && c.due <= at && !(underway && c.due <= c.sent) {
		return true
	}
	return c.fresh && !underway && (!c.known || now.Sub(c.lastSent) >= freshInterval)
}

// step is how far a tick takes the partition on the way to T, with a log that ends
// at end; ok is false when nothing is known yet of what it would make due.
func (c *partitionClock) step(T, end int64) (at int64, ok bool) {
	if c.open+max(0, end-c.next) <= calmSteps {
		return T, true
	}
	from := int64(math.MinInt64)
	if c.known {
		from = c.clock
	}
	if c.hasSent {
		from = max(from, c.sent)
	}
	if c.timer {
		from = max(from, c.due)
	}
	if from == math.MinInt64 {
		return T, false
	}
	return min(T, from+catchUp.Milliseconds()), true
}

// send writes a tick to each partition that wants one. It reports whether one
// stays behind T.
func (t *ticker) send(ctx context.Context, now time.Time, T int64, ends kadm.ListedOffsets) (behind bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p, c := range t.partitions {
		end, _ := ends.Lookup(t.topic, p)
		at, ok := c.step(T, end.Offset)
		if !ok {
			behind = true
			continue
		}
		behind = behind || at < T
		if !c.wants(now, at) {
			continue
		}
		c.sent, c.hasSent, c.lastSent, c.fresh = at, true, now, false
		t.s.cluster.Client.Produce(ctx, &kgo.Record{Topic: t.topic, Partition: p, Value: codec.AppendTick(nil, at)}, func(_ *kgo.Record, err error) {
			if err == nil {
				t.s.metrics.ticks.Inc()
				return
			}
			t.unsent(c, at)
			if ctx.Err() == nil {
				t.s.metrics.tickErrors.Inc()
				t.s.cfg.Logger.Warn("a tick could not be written", "partition", p, "error", kafka.ExplainRights(err, Service))
			}
		})
	}
	return behind
}

// unsent takes back that a tick was sent.
func (t *ticker) unsent(c *partitionClock, at int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.sent == at {
		c.hasSent = false
	}
}

// last is [kafka.Parts.Last]: it repeats each partition's clock as a tick, which
// says nothing new, so that the last transaction has something to commit. Where
// nobody has ticked yet it is 0, which is before everything.
func (t *ticker) last(ctx context.Context) map[kafka.Partition]int64 {
	t.mu.Lock()
	var ticks []*kgo.Record
	for p, c := range t.partitions {
		if c.known || c.open > 0 {
			ticks = append(ticks, &kgo.Record{Topic: t.topic, Partition: p, Value: codec.AppendTick(nil, c.clock)})
		}
	}
	t.mu.Unlock()
	written := make(map[kafka.Partition]int64)
	for _, r := range t.s.cluster.Client.ProduceSync(ctx, ticks...) {
		if r.Err != nil {
			t.s.cfg.Logger.Warn("a partition is left without its last snapshot", "partition", r.Record.Partition, "error", r.Err)
			continue
		}
		written[kafka.Partition{Topic: r.Record.Topic, Partition: r.Record.Partition}] = r.Record.Offset
	}
	return written
}
