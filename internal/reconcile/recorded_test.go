package reconcile_test

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"testing"
	"time"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/evidence"
	"provstream/internal/generate"
	"provstream/internal/keys"
	"provstream/internal/merkle"
	"provstream/internal/reconcile"
	"provstream/internal/reference"
	"provstream/internal/topics"
	"provstream/verify"
)

const partitions = 2

// recorded is a run of the pipeline as its topics show it, made step by step
// from the parts and without Kafka: what the oracle reads in a test.
type recorded struct {
	records map[string][]*reconcile.Record // by topic, partition by partition in offset order
	next    map[string]int64               // offsets, by topic/partition
	ring    *keys.Ring
	pinned  *verify.Keys
	windows reference.Config
}

// Partitions and Read make it a Source.
func (r *recorded) Partitions(context.Context) ([]reconcile.Partition, error) {
	var out []reconcile.Partition
	for topic := range r.records {
		n := int32(1)
		for _, t := range topics.All() {
			if t.Name == topic && t.Partitioned {
				n = partitions
			}
		}
		for i := range n {
			out = append(out, reconcile.Partition{Topic: topic, Base: topic, Index: i})
		}
	}
	slices.SortFunc(out, func(a, b reconcile.Partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Index, b.Index))
	})
	return out, nil
}

func (r *recorded) Read(_ context.Context, p reconcile.Partition, f func(*reconcile.Record) error) error {
	for _, rec := range r.records[p.Topic] {
		if rec.Partition == p.Index {
			c := *rec
			if err := f(&c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *recorded) add(rec reconcile.Record) {
	place := fmt.Sprintf("%s/%d", rec.Topic, rec.Partition)
	rec.Offset = r.next[place]
	r.next[place] += 2 // as with transaction markers in between
	r.records[rec.Topic] = append(r.records[rec.Topic], &rec)
}

func header(key, value string) codec.Header { return codec.Header{Key: key, Value: []byte(value)} }

func stamp(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }

func cloudEvent(id, ceType, at string) []codec.Header {
	return []codec.Header{header("ce_specversion", "1.0"), header("ce_id", id), header("ce_type", ceType), header("ce_time", at)}
}

// record makes a run: a generated fleet with faults, and records that fail in
// every way, read, windowed, signed and logged.
func record(t *testing.T, cfg generate.Config) *recorded {
	t.Helper()
	r := &recorded{records: map[string][]*reconcile.Record{}, next: map[string]int64{}, windows: reference.DefaultConfig()}
	for _, tp := range topics.All() {
		r.records[tp.Name] = nil
	}
	r.makeKeys(t)
	g, err := generate.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	for f := range g.All() {
		rec := reconcile.Record{Topic: f.Topic, Timestamp: f.TimeMs, Key: f.Key, Value: f.Value}
		for _, h := range f.Headers {
			rec.Headers = append(rec.Headers, codec.Header{Key: h.Key, Value: h.Value})
		}
		r.add(rec)
		last = max(last, f.TimeMs)
	}
	r.ingest(t)
	for p := range int32(partitions) {
		first := &reconcile.Record{Topic: topics.Steps, Partition: p, Timestamp: 0, Offset: -1, Value: codec.AppendTick(nil, 1)}
		at := slices.IndexFunc(r.records[topics.Steps], func(rec *reconcile.Record) bool { return rec.Partition == p })
		r.records[topics.Steps] = slices.Insert(r.records[topics.Steps], at, first)
		r.add(reconcile.Record{Topic: topics.Steps, Partition: p, Timestamp: last, Value: codec.AppendTick(nil, last+48*3_600_000)})
	}
	r.aggregate(t)
	r.sign(t)
	return r
}

func (r *recorded) makeKeys(t *testing.T) {
	t.Helper()
	log, err := keys.FromSeed(make([]byte, 32), verify.UseLog, "")
	if err != nil {
		t.Fatal(err)
	}
	seed := sha256.Sum256([]byte("dag key of a test"))
	dag, err := keys.FromSeed(seed[:], verify.UseDAG, "")
	if err != nil {
		t.Fatal(err)
	}
	if r.ring, err = keys.NewRing(log, dag); err != nil {
		t.Fatal(err)
	}
	if r.pinned, err = r.ring.Verifier(); err != nil {
		t.Fatal(err)
	}
}

// ingest reads the hook topics, three records a transaction.
func (r *recorded) ingest(t *testing.T) {
	reader, err := codec.NewReader(codec.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name, recs := range r.records {
		if len(recs) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	type pending struct{ steps, letters []reconcile.Record }
	var done []pending
	for _, name := range names {
		var from int64
		for batch := range slices.Chunk(r.records[name], 3) {
			var p pending
			c := verify.Coverage{Topic: name, From: from, To: batch[len(batch)-1].Offset + 1}
			from = c.To
			h := sha256.New()
			for _, rec := range batch {
				in := codec.Record{Topic: name, Offset: rec.Offset, Timestamp: rec.Timestamp, Key: rec.Key, Value: rec.Value, Headers: rec.Headers}
				res := reader.Read(&in, rec.Timestamp, func(runKey, value []byte) {
					p.steps = append(p.steps, reconcile.Record{
						Topic: topics.Steps, Partition: topics.Partition(runKey, partitions), Timestamp: rec.Timestamp,
						Key: slices.Clone(runKey), Value: slices.Clone(value),
					})
				})
				count(&c, res, h)
				if res.DeadLetter != nil {
					p.letters = append(p.letters, deadLetter(rec, res.DeadLetter))
				}
			}
			h.Sum(c.ValuesHash[:0])
			done = append(done, p)
			key := []byte(name + "/0")
			r.add(reconcile.Record{Topic: topics.Coverage, Partition: topics.Partition(key, partitions), Key: key, Value: c.Append(nil)})
		}
	}
	for _, p := range done {
		for _, rec := range append(p.steps, p.letters...) {
			r.add(rec)
		}
	}
	// The log is in the order of arrival.
	for _, rec := range []string{topics.Steps} {
		slices.SortStableFunc(r.records[rec], func(a, b *reconcile.Record) int {
			return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Timestamp, b.Timestamp))
		})
		next := map[int32]int64{}
		for _, s := range r.records[rec] {
			s.Offset = next[s.Partition]
			next[s.Partition] += 2
		}
	}
}

func count(c *verify.Coverage, res codec.Result, h hash.Hash) {
	c.Records++
	c.Steps += int64(res.Steps)
	c.Rejected += int64(res.Rejected)
	c.Dropped += int64(res.Dropped)
	if res.DeadLetter != nil {
		c.DeadLetters++
	}
	h.Write(res.RawHash[:])
}

func deadLetter(src *reconcile.Record, d *codec.DeadLetter) reconcile.Record {
	rec := reconcile.Record{Topic: topics.DeadLetter, Partition: topics.Partition(src.Key, partitions), Timestamp: src.Timestamp, Key: src.Key, Value: src.Value}
	rec.Headers = append(slices.Clone(src.Headers),
		header("__streams.errors.topic", src.Topic), header("__streams.errors.partition", strconv.Itoa(int(src.Partition))),
		header("__streams.errors.offset", strconv.FormatInt(src.Offset, 10)), header("provstream.error.kind", d.Kind),
		header("provstream.error.pointer", d.Pointer), header("provstream.error.keyword", d.Keyword),
		header("provstream.error.schema", d.Schema), header("provstream.error.index", d.Index))
	return rec
}

func (r *recorded) aggregate(t *testing.T) {
	names := map[reference.Kind]string{reference.Turn: topics.Turns, reference.Session: topics.Sessions, reference.Run: topics.Runs}
	types := map[reference.Kind]string{reference.Turn: "provstream.turn.v1", reference.Session: "provstream.session.v1", reference.Run: "provstream.dag.v1"}
	for p := range int32(partitions) {
		sim := reference.New(r.windows)
		for _, rec := range r.records[topics.Steps] {
			if rec.Partition != p {
				continue
			}
			var out []reference.Emission
			if tick, ok := codec.DecodeTick(rec.Value); ok {
				out = sim.Tick(tick)
			} else {
				s := &acs.Step{}
				if err := codec.DecodeStep(s, rec.Value); err != nil {
					t.Fatal(err)
				}
				out = sim.Apply(s)
			}
			for _, e := range out {
				r.add(reconcile.Record{
					Topic: names[e.Kind], Partition: p, Timestamp: rec.Timestamp, Key: []byte(e.Key), Value: e.Value,
					Headers: cloudEvent(e.ID, types[e.Kind], stamp(e.Time)),
				})
			}
		}
	}
}

// sign signs the DAGs and logs the coverage, two records a transaction.
func (r *recorded) sign(t *testing.T) {
	for p := range int32(partitions) {
		for _, topic := range []string{topics.DAGs, topics.Coverage} {
			origin := merkle.Origin("provstream", topic, p)
			log, err := evidence.NewLog(origin)
			if err != nil {
				t.Fatal(err)
			}
			source := topic
			if topic == topics.DAGs {
				source = topics.Runs
			}
			var own []*reconcile.Record
			for _, rec := range r.records[source] {
				if rec.Partition == p {
					own = append(own, rec)
				}
			}
			for batch := range slices.Chunk(own, 2) {
				var values [][]byte
				for _, rec := range batch {
					values = append(values, rec.Value)
				}
				b := r.signBatch(t, log, topic, values)
				for i, signed := range b.Records {
					r.add(reconcile.Record{
						Topic: topic, Partition: p, Timestamp: batch[i].Timestamp, Key: batch[i].Key, Value: signed.Value,
						Headers: append(cloudEvent(signed.TenantID+"/"+signed.ID, "provstream.dag.v1", signed.CreatedAt), header(evidence.HeaderProof, string(signed.Proof))),
					})
				}
				head := reconcile.Record{Topic: topics.Checkpoints, Partition: p, Key: []byte(origin), Value: b.Checkpoint.Note}
				head.Headers = append(head.Headers, header(evidence.HeaderFrontier, string(b.Checkpoint.Frontier)))
				if b.Checkpoint.Consistency != nil {
					head.Headers = append(head.Headers, header(evidence.HeaderConsistency, string(b.Checkpoint.Consistency)))
				}
				r.add(head)
				log = b.Log
			}
		}
	}
}

func (r *recorded) signBatch(t *testing.T, log *evidence.Log, topic string, values [][]byte) *evidence.Batch {
	t.Helper()
	sign := func() (*evidence.Batch, error) { return log.LogCoverage(r.ring, values) }
	if topic == topics.DAGs {
		sign = func() (*evidence.Batch, error) { return log.SignDAGs(r.ring, values, 1_767_603_600_000) }
	}
	b, err := sign()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (r *recorded) reconcile(t *testing.T, only ...int32) reconcile.Report {
	t.Helper()
	report, err := reconcile.Run(context.Background(), r, reconcile.Options{Windows: r.windows, Lineage: true, Keys: r.pinned, Drained: true, Only: only})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// clone copies the list of records, not the records.
func (r *recorded) clone() *recorded {
	c := *r
	c.records = map[string][]*reconcile.Record{}
	for topic, recs := range r.records {
		c.records[topic] = slices.Clone(recs)
	}
	return &c
}
