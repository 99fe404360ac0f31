package aggregator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/kafka"
	"provstream/internal/topics"
	"provstream/internal/window"
)

// metaKey is the key of the record in prov.aggregator.state/p that is about the
// whole partition, sealsKey what the keys of seals under pressure begin with. The
// others are snapshots of runs (window.Partition.Save), whose keys are longer.
const (
	metaKey  = "meta"
	sealsKey = "seals@"
	// sealsBytes bounds one record of seals, of which there may be thousands.
	sealsBytes = 256 << 10
)

// meta is its value. Every transaction that reads records of prov.steps/p writes
// it to prov.aggregator.state/p, in the transaction: it and the committed offset
// cannot disagree unless one of them was reset by hand.
type meta struct {
	// Next is the offset that the transaction commits.
	Next int64 `json:"next"`
	// Low is the offset from which prov.steps/p must be read to build the state
	// at Next again, beginning with Clock, the clock before that record; null
	// before the first tick.
	Low   int64  `json:"low"`
	Clock *int64 `json:"clock"`
	// Partitions is the count that run keys were placed with.
	Partitions int32 `json:"partitions"`
	// Window is the configuration that the records from Low to Next were taken
	// with.
	Window window.Config `json:"window"`
	// Pressures are the seals under pressure from Low on, where an earlier version
	// wrote them; now they are records of their own.
	Pressures []window.Pressure `json:"pressures,omitempty"`
}

// seals is a record of seals under pressure. A replay is told of those from Low
// on, because it does not hold all the runs that they were chosen among.
type seals struct {
	key  string
	last int64 // offset of the last of them
}

// writeState writes the snapshots that are due, and the meta record, which says
// what a restart reads beside them. What is due is a run with a change that no
// snapshot holds and that lies more than --replay-records behind; at a stop, and
// when the windows' configuration has changed, every run.
func (t *task) writeState(next int64, out *kafka.Out) error {
	behind := t.s.cfg.ReplayRecords
	if out.Final || t.saveAll {
		behind = -1
	}
	t.begin(out)
	t.window.Save(next, behind, t.put)
	t.saveAll = false
	m := meta{Next: next, Partitions: t.s.cluster.Partitions, Window: t.s.cfg.Window}
	low, clock, known := t.window.Low(next)
	m.Low = low
	if known {
		m.Clock = &clock
	}
	value, err := json.Marshal(m)
	if err == nil {
		err = t.writeSeals(low, next)
	}
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	t.put(metaKey, value)
	return nil
}

// writeSeals writes the seals under pressure of this transaction, and takes back
// the records of those that no replay will meet.
func (t *task) writeSeals(low, next int64) error {
	fresh := t.window.Pressures(low)
	since, _ := slices.BinarySearchFunc(fresh, t.written, func(p window.Pressure, at int64) int { return cmp.Compare(p.Offset, at) })
	fresh = fresh[since:]
	for n := 0; len(fresh) > 0; n++ {
		size, count := 0, 0
		for count < len(fresh) && (count == 0 || size < sealsBytes) {
			size += len(fresh[count].Key) + 40
			count++
		}
		value, err := json.Marshal(fresh[:count])
		if err != nil {
			return err
		}
		s := seals{fmt.Sprintf("%s%d.%d", sealsKey, next, n), fresh[count-1].Offset}
		t.put(s.key, value)
		t.seals, fresh = append(t.seals, s), fresh[count:]
	}
	for len(t.seals) > 0 && t.seals[0].last < low {
		t.put(t.seals[0].key, nil)
		t.seals = t.seals[1:]
	}
	t.written = next
	return nil
}

// put writes a record of the state topic; nil is a tombstone.
func (t *task) put(key string, value []byte) {
	r := t.slab.Record()
	r.Topic, r.Partition = t.stateTopic, t.partition
	r.Key, r.Value = []byte(key), value
	t.stateBytes.Add(float64(len(key) + len(value)))
	t.out.Produce(r)
}

// open builds a partition's state from the logs. The same code runs at the
// start, when a partition arrives, and after an aborted transaction:
//
//  1. The committed offset was read as stable, so no transaction that carries
//     this partition's offsets is undecided.
//  2. The state topic is read up to its present high watermark under
//     read_committed, which waits for the last stable offset: a transaction's
//     markers reach partitions independently, and the state that belongs to
//     the committed offset may still lack its marker.
//  3. The snapshots of runs are loaded, and prov.steps is read from low to next
//     with outputs off; what a run's snapshot holds already is skipped.
func (s *service) open(ctx context.Context, in kafka.Input) (kafka.Task, error) {
	stored, err := s.readState(ctx, in.Partition)
	if err != nil {
		return nil, err
	}
	if stored == nil && in.Committed < 0 {
		return s.newTask(in.Partition, window.NewPartition(s.cfg.Window)).attach(0, false), nil
	}
	if err := s.checkState(in, stored); err != nil {
		return nil, kafka.Fatal(err)
	}
	t, err := s.rebuild(ctx, in, stored)
	if err != nil {
		return nil, err
	}
	// What was replayed was taken with the configuration of its time; the
	// present one holds from here on, and no later replay may reach back
	// behind this offset.
	t.window.SetConfig(s.cfg.Window)
	t.saveAll = stored.Window != s.cfg.Window
	t.baseline()
	return t.attach(stored.Next, true), nil
}

// rebuild is step 3.
func (s *service) rebuild(ctx context.Context, in kafka.Input, stored *stored) (*task, error) {
	w := window.NewPartition(stored.Window)
	if stored.Clock != nil {
		w.RestoreClock(*stored.Clock)
	}
	l := window.NewLoader(w)
	for _, r := range stored.records {
		if err := l.Add(string(r.Key), r.Value); err != nil {
			return nil, kafka.Fatal(fmt.Errorf("%s/%d@%d: %w", r.Topic, r.Partition, r.Offset, err))
		}
	}
	loaded, err := l.Load()
	if err != nil {
		return nil, kafka.Fatal(fmt.Errorf("snapshots in %s/%d: %w: another version of this program wrote them, or they were altered; start the version that wrote them, it goes on from here", s.cfg.Topic(topics.AggregatorState), in.Partition, err))
	}
	stored.records = nil
	w.BeginReplay(stored.Pressures)
	t := s.newTask(in.Partition, w)
	t.loaded, t.seals, t.written = loaded, stored.seals, stored.written
	restoring := s.metrics.restoreBegins(in.Partition, stored.Next-stored.Low)
	defer restoring.done()
	err = s.cluster.Read(ctx, in.Topic, in.Partition, stored.Low, stored.Next, kafka.ReadCommitted, func(recs []*kgo.Record) error {
		t.replayed += len(recs)
		restoring.read(recs, stored.Next)
		t.feed(recs, func(window.Emission) {})
		return nil
	})
	if errors.Is(err, kafka.ErrOffsetOutOfRange) {
		err = kafka.Fatal(fmt.Errorf("%w: open runs of partition %d began at offset %d, which %s no longer holds; "+
			"restore the topic, or start a new deployment under another --prefix and raise the retention", err, in.Partition, stored.Low, in.Topic))
	}
	if err != nil {
		return nil, err
	}
	w.EndReplay()
	s.cfg.Logger.Info("partition restored", "partition", in.Partition, "snapshot_records", t.loaded, "records", t.replayed, "low", stored.Low, "next", stored.Next)
	return t, nil
}

// stored is what the state topic holds of a partition.
type stored struct {
	meta
	records []*kgo.Record // of runs: the last of each key, in the order of the topic
	seals   []seals
	written int64 // the seals up to this offset are records of their own
}

// takeSeals moves the seals under pressure from the records to the meta record's.
func (st *stored) takeSeals() error {
	var err error
	st.records = slices.DeleteFunc(st.records, func(r *kgo.Record) bool {
		if !strings.HasPrefix(string(r.Key), sealsKey) {
			return false
		}
		var of []window.Pressure
		e := json.Unmarshal(r.Value, &of)
		if e == nil && len(of) == 0 {
			e = errors.New("it names no seal")
		}
		if e != nil {
			err = fmt.Errorf("state record %s/%d@%d: %w", r.Topic, r.Partition, r.Offset, e)
			return true
		}
		st.seals = append(st.seals, seals{string(r.Key), of[len(of)-1].Offset})
		st.Pressures = append(st.Pressures, of...)
		return true
	})
	return err
}

// readState returns what is committed of a partition's state, nil without a
// meta record.
func (s *service) readState(ctx context.Context, partition int32) (*stored, error) {
	topic := s.cfg.Topic(topics.AggregatorState)
	bounds, err := s.cluster.Bounds(ctx, topic, partition)
	if err != nil {
		return nil, err
	}
	last := make(map[string]*kgo.Record)
	err = s.cluster.Read(ctx, topic, partition, bounds.Start, bounds.End, kafka.ReadCommitted, func(recs []*kgo.Record) error {
		for _, r := range recs {
			if r.Value == nil {
				delete(last, string(r.Key))
				continue
			}
			last[string(r.Key)] = r
		}
		return nil
	})
	r := last[metaKey]
	if err != nil || r == nil {
		return nil, err
	}
	st := &stored{meta: meta{Window: window.DefaultConfig()}}
	if err := json.Unmarshal(r.Value, &st.meta); err != nil {
		return nil, kafka.Fatal(fmt.Errorf("state record %s/%d@%d: %w", topic, partition, r.Offset, err))
	}
	delete(last, metaKey)
	st.records = slices.SortedFunc(maps.Values(last), func(a, b *kgo.Record) int { return cmp.Compare(a.Offset, b.Offset) })
	st.written = st.Next
	if len(st.Pressures) > 0 {
		st.written = 0 // an earlier version's, in its meta record
	}
	if err := st.takeSeals(); err != nil {
		return nil, kafka.Fatal(err)
	}
	return st, nil
}

// checkState refuses state that does not belong to the committed offset.
func (s *service) checkState(in kafka.Input, m *stored) error {
	state := s.cfg.Topic(topics.AggregatorState)
	const cure = "put back what was reset, or start a new deployment under another --prefix; to go on would lose or repeat evidence"
	switch {
	case m == nil:
		return fmt.Errorf("%s/%d has no state, but group %s has committed offset %d of %s/%d: the state topic was emptied or created again; %s",
			state, in.Partition, s.cfg.Group, in.Committed, in.Topic, in.Partition, cure)
	case in.Committed < 0:
		return fmt.Errorf("group %s has no committed offset of %s/%d, but %s/%d has state up to %d: the group was deleted or its offsets expired; %s",
			s.cfg.Group, in.Topic, in.Partition, state, in.Partition, m.Next, cure)
	case m.Next != in.Committed:
		return fmt.Errorf("group %s has committed offset %d of %s/%d, but its state in %s/%d ends at %d: the group's offsets were reset, or the state topic lost its end; %s",
			s.cfg.Group, in.Committed, in.Topic, in.Partition, state, in.Partition, m.Next, cure)
	case m.Partitions != s.cluster.Partitions:
		return fmt.Errorf("the state in %s/%d was made with %d partitions, the topics have %d now: runs would be torn; "+
			"to change the count create a deployment under a new --prefix, drain this one and switch", state, in.Partition, m.Partitions, s.cluster.Partitions)
	}
	return nil
}
