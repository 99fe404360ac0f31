package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// lagInterval is how often the ends of the input partitions are looked up;
	// while a service catches up after its start, catchUpInterval.
	lagInterval     = 15 * time.Second
	catchUpInterval = time.Second
	// fewOffsets may be nothing but the markers of transactions. A consumer that
	// does not keep control records never commits past the last of them, so
	// that many offsets are looked at before they are called lag.
	fewOffsets = 64
	// caughtUpRecords and caughtUpSeconds are what a service may lag and still
	// count as having caught up.
	caughtUpRecords = 10_000
	caughtUpSeconds = 30
)

// PartitionStatus is one input partition that an instance owns.
type PartitionStatus struct {
	Topic     string
	Partition int32
	Next      int64 // committed; -1 while the task opens
	Lag       int64 // records (offsets) that are not committed yet
	// LagSeconds is how long ago the oldest of them came, as far as is known:
	// the time since the partition was last seen without lag, or the age of the
	// last record that was processed, whichever is less.
	LagSeconds float64
	// HeldSeconds is for how long, at least, an open transaction of some producer
	// has kept records from everybody who reads committed ones. They are no lag:
	// nobody could have read them.
	HeldSeconds float64
}

// lagMonitor follows, beside the loop, how far the committed offsets of the
// owned partitions lie behind the last stable offsets. It asks the brokers:
// what a poll tells goes stale just when a service hangs.
//
// The loop tells it of partitions and commits; the goroutine of run samples.
// All methods work on a nil monitor.
type lagMonitor struct {
	cluster *Cluster
	metrics *loopMetrics
	health  *Health

	mu     sync.Mutex
	parts  map[Partition]*lagPart
	began  time.Time
	caught bool
}

// lagPart is what is known of one partition; lagMonitor.mu guards it.
type lagPart struct {
	next    int64 // committed; -1 while it opens
	stamp   int64 // timestamp of the last committed record, ms; 0 when unknown
	clear   time.Time
	added   time.Time
	seen    [2]int64 // next and end at the last sample
	emptyTo int64    // no record stands from next up to here
	lag     int64
	seconds float64
	stable  int64     // last stable offset at the last sample
	held    time.Time // since when it stands still below the end; zero if it does not
}

func newLagMonitor(c *Cluster, m *loopMetrics, h *Health) *lagMonitor {
	return &lagMonitor{cluster: c, metrics: m, health: h, parts: make(map[Partition]*lagPart), began: time.Now()}
}

func (m *lagMonitor) add(key Partition) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.parts[key] == nil {
		m.parts[key] = &lagPart{next: -1, added: time.Now(), seen: [2]int64{-1, -1}}
	}
}

// remove forgets a partition and its series.
func (m *lagMonitor) remove(key Partition) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.parts, key)
	m.metrics.dropLag(key)
}

// commit tells of a committed offset, and of the last record before it.
func (m *lagMonitor) commit(key Partition, next, stamp int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.parts[key]; p != nil {
		p.next = next
		if stamp != 0 {
			p.stamp = stamp
		}
	}
}

// run samples until ctx ends, then drops all series.
func (m *lagMonitor) run(ctx context.Context) {
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for key := range m.parts {
			m.metrics.dropLag(key)
		}
	}()
	for {
		m.mu.Lock()
		pause := lagInterval
		if !m.caught {
			pause = catchUpInterval
		}
		m.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		m.sample(ctx)
	}
}

// sample looks once. Without an answer the last figures stay; that the brokers
// do not answer shows elsewhere.
func (m *lagMonitor) sample(ctx context.Context) {
	names := m.topics()
	if len(names) == 0 {
		m.publish()
		return
	}
	// The high watermarks first: what stands below them and not below the last
	// stable offset was undecided when that was asked for.
	highs, err := m.cluster.Admin.ListEndOffsets(ctx, names...)
	if err != nil {
		return
	}
	ends, err := m.cluster.Admin.ListCommittedOffsets(ctx, names...)
	if err != nil {
		return
	}
	starts, err := m.cluster.Admin.ListStartOffsets(ctx, names...)
	if err != nil {
		return
	}
	type gap struct {
		key      Partition
		from, to int64
	}
	var small []gap // to be looked at without the lock
	now := time.Now()
	m.mu.Lock()
	for key, p := range m.parts {
		end, ok := ends.Lookup(key.Topic, key.Partition)
		start, ok2 := starts.Lookup(key.Topic, key.Partition)
		if !ok || !ok2 || end.Err != nil || start.Err != nil {
			continue
		}
		high, _ := highs.Lookup(key.Topic, key.Partition)
		p.undecided(end.Offset, high.Offset, now)
		at := max(p.next, start.Offset)
		still := p.seen == [2]int64{at, end.Offset}
		p.seen = [2]int64{at, end.Offset}
		lag := max(0, end.Offset-at)
		switch {
		case lag == 0 || p.emptyTo >= end.Offset:
			lag = 0
		case lag <= fewOffsets && still && p.next >= 0:
			small = append(small, gap{key, at, end.Offset})
		}
		p.set(lag, now)
	}
	m.mu.Unlock()
	for _, g := range small {
		records := false
		err := m.cluster.Read(ctx, g.key.Topic, g.key.Partition, g.from, g.to, ReadCommitted, func([]*kgo.Record) error { records = true; return nil })
		if err != nil || records {
			continue
		}
		m.mu.Lock()
		if p := m.parts[g.key]; p != nil && p.next <= g.from {
			p.emptyTo = g.to
			p.set(0, now)
		}
		m.mu.Unlock()
	}
	m.publish()
}

// set takes over a lag that was seen now.
func (p *lagPart) set(lag int64, now time.Time) {
	p.lag, p.seconds = lag, 0
	if lag == 0 {
		p.clear = now
		return
	}
	since := p.clear
	if stamp := time.UnixMilli(p.stamp); p.stamp != 0 && stamp.After(since) {
		since = stamp
	}
	if since.IsZero() {
		since = p.added
	}
	p.seconds = max(0, now.Sub(since).Seconds())
}

// undecided follows the last stable offset: below the end, and where it was at the
// sample before, it is held by one open transaction.
func (p *lagPart) undecided(stable, high int64, now time.Time) {
	switch {
	case high <= stable:
		p.held = time.Time{}
	case p.held.IsZero() || stable != p.stable:
		p.held = now
	}
	p.stable = stable
}

// heldSeconds is how long an open transaction has held the partition at least.
func (p *lagPart) heldSeconds() float64 {
	if p.held.IsZero() {
		return 0
	}
	return time.Since(p.held).Seconds()
}

func (m *lagMonitor) topics() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := make(map[string]bool)
	var names []string
	for key := range m.parts {
		if !seen[key.Topic] {
			seen[key.Topic] = true
			names = append(names, key.Topic)
		}
	}
	return names
}

// publish writes the gauges and the status.
func (m *lagMonitor) publish() {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]PartitionStatus, 0, len(m.parts))
	var records int64
	var seconds float64
	for key, p := range m.parts {
		held := p.heldSeconds()
		m.metrics.setLag(key, p.lag, p.seconds, held)
		all = append(all, PartitionStatus{key.Topic, key.Partition, p.next, p.lag, p.seconds, held})
		records += p.lag
		seconds = max(seconds, p.seconds)
	}
	if !m.caught {
		near := records <= caughtUpRecords || seconds <= caughtUpSeconds
		// An instance may be spare: no partitions is nothing to catch up with.
		m.caught = near && (len(m.parts) != 0 || time.Since(m.began) > 10*time.Second)
	}
	m.health.update(func(s *Status) { s.Partitions, s.CaughtUp = all, s.CaughtUp || m.caught })
}
