package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/json"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/reference"
	"provstream/internal/topics"
)

// emission is what the reference says that the aggregator must have written.
type emission struct {
	key   string
	id    string
	value [32]byte
	time  int64 // ce_time
	at    int64 // the offset of prov.steps that brought it about
}

// emissions of a partition, by kind, in order.
type emissions [3][]emission

// readSteps holds prov.steps against what reading the hook topics gives, and
// lets the reference say what must follow from it.
func (o *oracle) readSteps(ctx context.Context) error {
	if err := o.readState(ctx); err != nil {
		return err
	}
	for _, p := range o.partitions[topics.Steps] {
		w := &stepReader{o: o, p: p, windows: o.windows[p.Index]}
		if o.opt.Lineage {
			if p.Start > 0 {
				o.note("%s/%d begins at offset %d: what follows from it cannot be recomputed", p.Topic, p.Index, p.Start)
			} else {
				w.sim = reference.New(o.opt.Windows)
				w.out = &emissions{}
				o.emitted[p.Index] = w.out
			}
		}
		if err := o.read(ctx, p, w.record); err != nil {
			return err
		}
		if w.sim != nil {
			w.sim.Open(func(runKey string, s *acs.Step) { w.open(runKey, s) })
		}
	}
	if len(o.partitions[topics.Steps]) == 0 {
		o.note("there is no prov.steps")
	}
	return nil
}

type stepReader struct {
	o       *oracle
	p       Partition
	sim     *reference.Partition
	out     *emissions
	windows []windowsUntil
}

// windowsUntil is the configuration that the aggregator took the records before
// an offset with.
type windowsUntil struct {
	next int64
	cfg  reference.Config
}

// readState reads from the aggregator's state what its windows were configured
// as: each of its transactions says so. Where the topic says nothing the
// configuration of the options holds.
func (o *oracle) readState(ctx context.Context) error {
	for _, p := range o.partitions[topics.AggregatorState] {
		err := o.read(ctx, p, func(r *Record) error {
			var meta struct {
				Next   int64             `json:"next"`
				Window *reference.Config `json:"window"`
			}
			if string(r.Key) != "meta" || r.Value == nil {
				return nil
			}
			if err := json.Unmarshal(r.Value, &meta); err != nil {
				o.problem(Wrong, place(r), "the aggregator's state cannot be read: %v", err)
				return nil
			}
			if meta.Window != nil {
				o.windows[p.Index] = append(o.windows[p.Index], windowsUntil{meta.Next, *meta.Window})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// configure sets the configuration that holds for an offset.
func (w *stepReader) configure(offset int64) {
	for len(w.windows) > 1 && w.windows[0].next <= offset {
		w.windows = w.windows[1:]
	}
	if w.sim != nil && len(w.windows) > 0 {
		w.sim.SetConfig(w.windows[0].cfg)
	}
}

func (w *stepReader) record(r *Record) error {
	o := w.o
	w.configure(r.Offset)
	if t, ok := codec.DecodeTick(r.Value); ok {
		o.report.Ticks++
		if w.sim != nil {
			w.emit(r.Offset, w.sim.Tick(t))
		}
		return nil
	}
	s := &acs.Step{}
	if err := codec.DecodeStep(s, r.Value); err != nil {
		o.problem(Wrong, place(r), "neither a step nor a tick: %v", err)
		return nil
	}
	if s.Type == acs.TypeDecision {
		o.report.Decisions++
	} else {
		o.report.Steps++
	}
	if s.Rejected != "" {
		o.report.Rejected++
	}
	if key := topics.RunKey(s.Tenant, s.Session); string(r.Key) != key {
		o.problem(Wrong, place(r), "stands under key %q, want %q", r.Key, key)
	} else if p := topics.Partition(r.Key, o.count); p != r.Partition {
		o.problem(Wrong, place(r), "stands in partition %d, want %d", r.Partition, p)
	}
	w.match(r, s)
	if w.sim != nil {
		w.emit(r.Offset, w.sim.Apply(s))
	}
	return nil
}

// match finds the envelope that the step was read from.
func (w *stepReader) match(r *Record, s *acs.Step) {
	o := w.o
	c := coordOf(s.Coordinates)
	i, ok := o.byCoord[c]
	if !ok {
		if o.ahead(c) {
			o.report.Ahead++
			return
		}
		start, known := o.starts[coord{topic: c.topic, partition: c.partition}]
		if !known || c.offset < start {
			o.report.ExpiredInputs++
			return
		}
		o.problem(Wrong, place(r), "was read from %s/%d/%d, which gives no such step", c.topic, c.partition, c.offset)
		return
	}
	e := &o.elements[i]
	if e.seen++; e.seen > 1 {
		o.problem(Repeated, place(r), "the step of %s/%d/%d stands on the topic already", c.topic, c.partition, c.offset)
		return
	}
	if timeless(s) != e.step {
		o.problem(Wrong, place(r), "is not what reading %s/%d/%d gives", c.topic, c.partition, c.offset)
	}
	// A record that is stamped in the future was recorded when ingest read it.
	if s.RecordedAt != max(0, e.timestamp) && (s.RecordedAt > e.timestamp || s.RecordedAt > r.Timestamp) {
		o.problem(Wrong, place(r), "recorded_at is %d, the record's timestamp %d", s.RecordedAt, e.timestamp)
	}
	if s.Skewed != o.skewed(s) {
		o.problem(Wrong, place(r), "skewed is %t", s.Skewed)
	}
}

func (w *stepReader) emit(offset int64, list []reference.Emission) {
	for _, e := range list {
		if e.Kind == reference.Run && w.o.unsigned(w.p.Index, len(w.out[reference.Run])) {
			w.o.markToSign(e.Value)
		}
		w.out[e.Kind] = append(w.out[e.Kind], emission{key: e.Key, id: e.ID, value: sha256.Sum256(e.Value), time: e.Time, at: offset})
		w.o.report.Recomputed++
	}
}

func (w *stepReader) open(runKey string, s *acs.Step) {
	if w.o.opened == nil {
		w.o.opened = map[[32]byte]bool{}
	}
	w.o.opened[copyHash(runKey, s)] = true
}
