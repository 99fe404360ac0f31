package reconcile

import (
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/topics"
	"provstream/verify"
)

// span is a coverage record and what is found of its range.
type span struct {
	verify.Coverage
	at     coord
	found  verify.Coverage // counted again
	hashes hash.Hash
}

// readCoverage reads what ingest says it has read: each hook partition from
// its first offset on without a hole, nothing twice. The records are also the
// leaves of a log.
func (o *oracle) readCoverage(ctx context.Context) error {
	ledger := verify.NewLedger()
	for _, p := range o.partitions[topics.Coverage] {
		log := &logOf{partition: p}
		err := o.read(ctx, p, func(r *Record) error {
			o.report.Coverage++
			log.leaves = append(log.leaves, tlog.RecordHash(r.Value))
			c, err := verify.ParseCoverage(r.Value)
			if err != nil {
				o.problem(Wrong, place(r), "%v", err)
				return nil
			}
			key := fmt.Sprintf("%s/%d", c.Topic, c.Partition)
			if string(r.Key) != key || topics.Partition(r.Key, int32(len(o.partitions[topics.Coverage]))) != r.Partition {
				o.problem(Wrong, place(r), "stands under key %q in partition %d, want key %q in its partition", r.Key, r.Partition, key)
			}
			if err := ledger.Add(c); err != nil {
				o.problem(ledgerProblem(err), place(r), "%v", err)
			}
			h := coord{topic: c.Topic, partition: c.Partition}
			o.covered[h] = append(o.covered[h], &span{Coverage: c, at: place(r), hashes: sha256.New()})
			return nil
		})
		if err != nil {
			return err
		}
		o.coverageLogs = append(o.coverageLogs, log)
	}
	for _, spans := range o.covered {
		slices.SortStableFunc(spans, func(a, b *span) int { return int(min(1, max(-1, a.From-b.From))) })
	}
	return nil
}

func ledgerProblem(err error) string {
	if strings.Contains(err.Error(), "twice") {
		return Repeated
	}
	return Missing
}

// readInputs reads the hook topics the way ingest does, and notes what must
// have become of every record.
func (o *oracle) readInputs(ctx context.Context) error {
	reader, err := codec.NewReader(o.opt.Reader)
	if err != nil {
		return err
	}
	for _, p := range o.hooks {
		c := &cursor{o: o, reader: reader, spans: o.covered[coord{topic: p.Topic, partition: p.Index}]}
		if len(c.spans) > 0 && p.Start == 0 && c.spans[0].From > 0 {
			o.problem(Missing, c.spans[0].at, "%s/%d: nothing accounts for the offsets before %d", p.Topic, p.Index, c.spans[0].From)
		}
		if err := o.read(ctx, p, c.record); err != nil {
			return err
		}
		for _, s := range c.spans {
			c.compare(s, p.Start)
		}
	}
	return nil
}

// cursor walks one hook partition along its coverage.
type cursor struct {
	o      *oracle
	reader *codec.Reader
	spans  []*span
	rec    codec.Record
}

// span of the offset, nil if nothing covers it.
func (c *cursor) span(offset int64) *span {
	i, _ := slices.BinarySearchFunc(c.spans, offset, func(s *span, offset int64) int {
		switch {
		case s.To <= offset:
			return -1
		case s.From > offset:
			return 1
		}
		return 0
	})
	if i < len(c.spans) && c.spans[i].From <= offset && offset < c.spans[i].To {
		return c.spans[i]
	}
	return nil
}

func (c *cursor) record(r *Record) error {
	o := c.o
	o.report.Inputs++
	s := c.span(r.Offset)
	if s == nil && len(o.partitions[topics.Coverage]) > 0 {
		if len(c.spans) == 0 || r.Offset >= c.spans[len(c.spans)-1].To {
			o.report.Unread++
			if o.opt.Drained {
				o.problem(Missing, place(r), "ingest has not read it")
			}
			return nil
		}
		o.problem(Missing, place(r), "no coverage record accounts for this offset")
	}
	if s != nil && s.Gap {
		o.problem(Wrong, place(r), "is there, and coverage %s/%d/%d says that ingest did not find it", s.at.topic, s.at.partition, s.at.offset)
	}
	c.rec = codec.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value, Headers: r.Headers}
	var fault error
	res := c.reader.Read(&c.rec, r.Timestamp, func(runKey, value []byte) {
		if err := o.expect(string(runKey), value, r.Timestamp); err != nil {
			fault = err
		}
	})
	if fault != nil {
		return fault
	}
	alone := 0
	if d := res.DeadLetter; d != nil {
		failing := 1
		if d.Index != "" {
			failing = strings.Count(d.Index, ",") + 1
		}
		alone = max(0, failing-res.Rejected)
		o.letters[place(r)] = &letter{DeadLetter: *d, raw: res.RawHash, rest: keyAndHeaders(r)}
	}
	o.report.Dropped += int64(res.Dropped)
	o.report.Envelopes += int64(res.Steps + res.Dropped + alone)
	if s != nil {
		f := &s.found
		f.Records++
		f.Steps += int64(res.Steps)
		f.Rejected += int64(res.Rejected)
		f.Dropped += int64(res.Dropped)
		if res.DeadLetter != nil {
			f.DeadLetters++
		}
		s.hashes.Write(res.RawHash[:])
	}
	return nil
}

// expect notes an envelope that must stand on prov.steps.
func (o *oracle) expect(runKey string, value []byte, timestamp int64) error {
	if !o.looksAt(runKey) {
		return nil
	}
	var s acs.Step
	if err := codec.DecodeStep(&s, value); err != nil {
		return fmt.Errorf("what reading a record gives cannot be read: %w", err)
	}
	e := element{
		at: coordOf(s.Coordinates), timestamp: timestamp, step: timeless(&s), runKey: runKey,
		copyOf: copyHash(runKey, &s), content: s.ContentHash, decision: s.Type == acs.TypeDecision,
		rejected: s.Rejected != "",
	}
	e.at.topic = strings.Clone(e.at.topic)
	e.handshake = !e.decision && !e.rejected && s.Method == acs.MethodHandshakeHello
	o.byCoord[e.at] = int32(len(o.elements))
	o.elements = append(o.elements, e)
	return nil
}

// compare holds a coverage record against its range.
func (c *cursor) compare(s *span, start int64) {
	if s.Gap || s.From < start {
		return
	}
	var sum [32]byte
	s.hashes.Sum(sum[:0])
	for _, x := range []struct {
		name       string
		told, have int64
	}{
		{"records", s.Records, s.found.Records}, {"steps", s.Steps, s.found.Steps}, {"rejected", s.Rejected, s.found.Rejected},
		{"dead letters", s.DeadLetters, s.found.DeadLetters}, {"dropped", s.Dropped, s.found.Dropped},
	} {
		if x.told != x.have {
			c.o.problem(Wrong, s.at, "tells %d %s of %s/%d [%d, %d), there are %d", x.told, x.name, s.Topic, s.Partition, s.From, s.To, x.have)
		}
	}
	if sum != s.ValuesHash {
		c.o.problem(Wrong, s.at, "the values of %s/%d [%d, %d) are not the ones that were read", s.Topic, s.Partition, s.From, s.To)
	}
}

// readDeadLetters holds the dead letters against the records that failed.
func (o *oracle) readDeadLetters(ctx context.Context) error {
	for _, p := range o.partitions[topics.DeadLetter] {
		if err := o.read(ctx, p, o.deadLetter); err != nil {
			return err
		}
	}
	if len(o.partitions[topics.DeadLetter]) == 0 {
		o.note("there is no dead-letter topic")
		return nil
	}
	for c, l := range o.letters {
		if l.seen == 0 {
			o.problem(Missing, c, "it is rejected (%s) and has no dead letter", l.Kind)
		}
	}
	return nil
}

func (o *oracle) deadLetter(r *Record) error {
	o.report.DeadLetters++
	topic, _ := r.header("__streams.errors.topic")
	partition, err1 := header[int32](r, "__streams.errors.partition")
	offset, err2 := header[int64](r, "__streams.errors.offset")
	if topic == "" || err1 != nil || err2 != nil {
		o.problem(Wrong, place(r), "the headers do not name the source record")
		return nil
	}
	source := coord{topic, partition, offset, -1}
	l := o.letters[source]
	if l == nil {
		if o.ahead(source) {
			o.report.Ahead++
			return nil
		}
		start, known := o.starts[coord{topic: topic, partition: partition}]
		if !known || offset < start {
			o.report.ExpiredInputs++
			return nil
		}
		o.problem(Wrong, place(r), "is about %s/%d/%d, which is not rejected", topic, partition, offset)
		return nil
	}
	if l.seen++; l.seen > 1 {
		o.problem(Repeated, place(r), "%s/%d/%d has a dead letter already", topic, partition, offset)
	}
	for name, want := range map[string]string{
		"kind": l.Kind, "pointer": l.Pointer, "keyword": l.Keyword, "schema": l.Schema, "index": l.Index,
	} {
		if got, _ := r.header("provstream.error." + name); got != want {
			o.problem(Wrong, place(r), "header %s of the dead letter of %s/%d/%d is %q, want %q", name, topic, partition, offset, got, want)
		}
	}
	truncated, _ := r.header("provstream.error.truncated")
	if o.opt.DeadLetterReference || truncated != "" {
		return nil
	}
	if keyAndHeaders(r) != l.rest {
		o.problem(Wrong, place(r), "key and headers are not those of %s/%d/%d", topic, partition, offset)
	}
	if sha256.Sum256(r.Value) != l.raw {
		o.problem(Wrong, place(r), "the value is not that of %s/%d/%d", topic, partition, offset)
	}
	return nil
}

// keyAndHeaders is a hash of a record's key and headers, without those that a
// dead letter has of its own.
func keyAndHeaders(r *Record) (sum [32]byte) {
	own := func(h codec.Header) bool {
		return strings.HasPrefix(h.Key, "__streams.errors.") || strings.HasPrefix(h.Key, "provstream.error.")
	}
	headers := slices.DeleteFunc(slices.Clone(r.Headers), own)
	slices.SortStableFunc(headers, func(a, b codec.Header) int { return strings.Compare(a.Key, b.Key) })
	text := fmt.Appendf(nil, "%t %q", r.Key == nil, r.Key)
	for _, h := range headers {
		text = fmt.Appendf(text, " %q=%q", h.Key, h.Value)
	}
	return sha256.Sum256(text)
}

func header[T int32 | int64](r *Record, name string) (T, error) {
	v, _ := r.header(name)
	n, err := strconv.ParseInt(v, 10, 64)
	return T(n), err
}
