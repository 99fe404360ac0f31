package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"provstream/internal/reference"
	"provstream/internal/topics"
)

// outputs are the values of a partition of prov.runs, hashed.
type outputs struct {
	start  int64
	values [][32]byte
}

// readOutputs holds what the aggregator wrote against what it must have
// written: record by record, in order. Without the reference only repeats are
// found.
func (o *oracle) readOutputs(ctx context.Context) error {
	for _, t := range []struct {
		base      string
		ceType    string
		kind      reference.Kind
		compacted bool
		count     *int64
	}{
		{topics.Turns, "provstream.turn.v1", reference.Turn, false, &o.report.Turns},
		{topics.Sessions, "provstream.session.v1", reference.Session, true, &o.report.Sessions},
		{topics.Runs, "provstream.dag.v1", reference.Run, false, nil},
	} {
		for _, p := range o.partitions[t.base] {
			w := &outputReader{o: o, p: p, kind: t.kind, ceType: t.ceType, compacted: t.compacted, ids: map[string]bool{}}
			if e := o.emitted[p.Index]; e != nil {
				w.expected, w.known = e[t.kind], true
			}
			if t.kind == reference.Run {
				w.keep = &outputs{start: p.Start}
				o.runs[p.Index] = w.keep
			}
			if err := o.read(ctx, p, w.record); err != nil {
				return err
			}
			w.finish()
			if t.count != nil {
				*t.count += w.records
			}
		}
		if len(o.partitions[t.base]) == 0 && o.opt.Lineage {
			o.note("there is no %s", t.base)
		}
	}
	return nil
}

// outputReader compares a partition of an output topic with a list.
type outputReader struct {
	o         *oracle
	p         Partition
	kind      reference.Kind
	compacted bool
	ceType    string
	expected  []emission
	known     bool
	keep      *outputs

	records int64
	next    int // the emission that must come next
	ids     map[string]bool
	present []int // indices of the emissions that are there, of a compacted topic
	absent  []int
}

func (w *outputReader) record(r *Record) error {
	w.records++
	o := w.o
	value := sha256.Sum256(r.Value)
	if w.keep != nil {
		w.keep.values = append(w.keep.values, value)
	}
	id, ok := r.header("ce_id")
	if !ok {
		o.problem(Wrong, place(r), "has no header ce_id")
		return nil
	}
	if w.ids[id] && (!w.known || !w.againExpected(id)) {
		o.problem(Repeated, place(r), "%s stands on the topic already", id)
		return nil
	}
	w.ids[id] = true
	if !json.Valid(r.Value) {
		o.problem(Wrong, place(r), "%s is no JSON", id)
		return nil
	}
	if !w.known {
		return nil
	}
	i := w.find(id, string(r.Key), value)
	if i < 0 {
		w.explain(r, id)
		return nil
	}
	w.o.cloudEvent(r, w.ceType, w.expected[i].time)
	first := w.records == 1 && w.p.Start > 0
	for j := w.next; j < i; j++ {
		if first {
			o.report.ExpiredOutputs++
			continue
		}
		w.absent = append(w.absent, j)
	}
	w.present = append(w.present, i)
	w.next = i + 1
	return nil
}

// cloudEvent checks the headers that make a record a CloudEvent.
func (o *oracle) cloudEvent(r *Record, ceType string, at int64) {
	for name, want := range map[string]string{
		"ce_specversion": "1.0", "ce_type": ceType, "ce_time": time.UnixMilli(at).UTC().Format("2006-01-02T15:04:05.000Z"),
	} {
		if got, _ := r.header(name); got != want {
			o.problem(Wrong, place(r), "header %s is %q, want %q", name, got, want)
		}
	}
}

// againExpected: a run that was forgotten counts its revisions from the
// beginning, so an id may stand twice.
func (w *outputReader) againExpected(id string) bool {
	for _, e := range w.expected[w.next:] {
		if e.id == id {
			return true
		}
	}
	return false
}

// find is the place of a record among those that must still come, -1 if it is
// none of them.
func (w *outputReader) find(id, key string, value [32]byte) int {
	for i := w.next; i < len(w.expected); i++ {
		e := w.expected[i]
		if e.id == id && e.value == value && e.key == key {
			return i
		}
	}
	return -1
}

// explain says what is wrong with a record that must not be there as it is.
func (w *outputReader) explain(r *Record, id string) {
	for i := w.next; i < len(w.expected); i++ {
		if e := w.expected[i]; e.id == id {
			for j := w.next; j < i; j++ {
				w.absent = append(w.absent, j)
			}
			w.next = i + 1
			w.o.problem(Wrong, place(r), "%s is not what follows from the steps up to prov.steps/%d/%d", id, r.Partition, e.at)
			return
		}
	}
	w.o.problem(Wrong, place(r), "%s does not follow from prov.steps/%d, or not here", id, r.Partition)
}

// finish tells what must be there and is not. Of a compacted topic records
// may be gone that a later one of the same key replaces, but then every such
// record up to there is gone: the cleaner leaves none of them.
func (w *outputReader) finish() {
	if !w.known {
		return
	}
	for j := w.next; j < len(w.expected); j++ {
		w.absent = append(w.absent, j)
	}
	if len(w.absent) == 0 {
		return
	}
	if !w.compacted {
		for _, j := range w.absent {
			w.missing(j)
		}
		return
	}
	replacedBy := make([]int, len(w.expected))
	last := map[string]int{}
	for i := len(w.expected) - 1; i >= 0; i-- {
		replacedBy[i] = len(w.expected)
		if j, ok := last[w.expected[i].key]; ok {
			replacedBy[i] = j
		}
		last[w.expected[i].key] = i
	}
	// Everything up to the cleaner's point that is replaced before it is gone.
	firstKept := len(w.expected)
	for _, i := range w.present {
		firstKept = min(firstKept, replacedBy[i])
	}
	for _, j := range w.absent {
		if replacedBy[j] <= firstKept && replacedBy[j] < len(w.expected) {
			w.o.report.ExpiredOutputs++
			continue
		}
		w.missing(j)
	}
}

func (w *outputReader) missing(j int) {
	e := w.expected[j]
	if states := w.o.windows[w.p.Index]; !w.o.opt.Drained && len(states) > 0 && e.at >= states[len(states)-1].next {
		w.o.report.Pending++ // the aggregator had not come so far
		return
	}
	w.o.problem(Missing, coord{w.p.Topic, w.p.Index, -1, -1}, "%s, which follows from the steps up to prov.steps/%d/%d", e.id, w.p.Index, e.at)
}
