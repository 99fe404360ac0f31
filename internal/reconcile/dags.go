package reconcile

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"
	"golang.org/x/mod/sumdb/tlog"

	"provstream/internal/merkle"
	"provstream/internal/reference"
	"provstream/internal/topics"
	"provstream/verify"
)

// logOf is one log to be held against its heads.
type logOf struct {
	partition Partition
	leaves    []tlog.Hash
	records   []coord
	origin    string
}

// head is a record of prov.checkpoints.
type head struct {
	at                    coord
	checkpoint            verify.Checkpoint
	consistency, frontier []byte
}

// document is what the oracle reads of a DAG; it parses on its own and not with
// the signer's reader.
type document struct {
	ID, RunID, TenantID string
	Nodes               []struct {
		ID, Kind, ContentHash, ContentRef string
	}
}

// readDAGs holds the signed DAGs against prov.runs, marks the envelopes that
// their nodes stand for, and checks every signature and proof.
func (o *oracle) readDAGs(ctx context.Context) error {
	runs := map[string]bool{}
	ids := map[string]coord{}
	for _, p := range o.partitions[topics.DAGs] {
		log := &logOf{partition: p}
		d := &dagReader{o: o, p: p, log: log, runs: runs, ids: ids}
		if e := o.emitted[p.Index]; e != nil {
			d.expected, d.known = e[reference.Run], true
		}
		if err := o.read(ctx, p, d.record); err != nil {
			return err
		}
		if p.Start > 0 {
			o.note("%s/%d begins at offset %d: its log cannot be followed from its first leaf", p.Topic, p.Index, p.Start)
			continue
		}
		if d.known {
			for i := len(log.leaves); i < len(d.expected); i++ {
				if o.unsigned(p.Index, i) {
					o.report.Pending++
					continue
				}
				o.problem(Missing, coord{p.Topic, p.Index, -1, -1}, "DAG %s is not signed", d.expected[i].id)
			}
		} else if r := o.runs[p.Index]; r != nil && r.start == 0 && len(log.leaves) < len(r.values) && !o.unsigned(p.Index, len(log.leaves)) {
			o.problem(Missing, coord{p.Topic, p.Index, -1, -1}, "prov.runs holds %d DAGs, %d are signed", len(r.values), len(log.leaves))
		}
		o.dagLogs = append(o.dagLogs, log)
	}
	o.report.Runs = int64(len(runs))
	if len(o.partitions[topics.DAGs]) == 0 {
		o.note("there is no prov.dags")
	}
	return nil
}

type dagReader struct {
	o        *oracle
	p        Partition
	log      *logOf
	expected []emission
	known    bool
	runs     map[string]bool
	ids      map[string]coord
}

func (d *dagReader) record(r *Record) error {
	o := d.o
	o.report.DAGs++
	unsigned, err := withoutSignature(r.Value)
	if err != nil {
		o.problem(Wrong, place(r), "no DAG: %v", err)
		unsigned = r.Value
	}
	index := len(d.log.leaves)
	d.log.leaves = append(d.log.leaves, tlog.RecordHash(unsigned))
	d.log.records = append(d.log.records, place(r))
	if err != nil {
		return nil
	}
	var doc document
	if err := json.Unmarshal(unsigned, &doc); err != nil {
		o.problem(Wrong, place(r), "no DAG: %v", err)
		return nil
	}
	if earlier, ok := d.ids[doc.TenantID+"/"+doc.ID]; ok {
		o.problem(Repeated, place(r), "DAG %s stands at %s/%d/%d already", doc.ID, earlier.topic, earlier.partition, earlier.offset)
		return nil
	}
	d.ids[doc.TenantID+"/"+doc.ID] = place(r)
	d.runs[topics.RunKey(doc.TenantID, doc.RunID)] = true
	if want := topics.RunKey(doc.TenantID, doc.RunID); string(r.Key) != want {
		o.problem(Wrong, place(r), "DAG %s stands under key %q, want %q", doc.ID, r.Key, want)
	}
	d.compare(r, &doc, unsigned, index)
	d.nodes(r, &doc)
	d.signature(r, doc.ID)
	return nil
}

// compare: record i of prov.dags is record i of prov.runs, and both are what
// follows from prov.steps.
func (d *dagReader) compare(r *Record, doc *document, unsigned []byte, index int) {
	if d.p.Start > 0 {
		return
	}
	hash := sha256.Sum256(unsigned)
	if runs := d.o.runs[d.p.Index]; runs != nil && runs.start == 0 {
		switch {
		case index >= len(runs.values):
			d.o.problem(Wrong, place(r), "DAG %s is not on prov.runs", doc.ID)
		case runs.values[index] != hash:
			d.o.problem(Wrong, place(r), "DAG %s is not record number %d of prov.runs/%d", doc.ID, index, d.p.Index)
		}
	}
	if d.known && (index >= len(d.expected) || d.expected[index].value != hash) {
		d.o.problem(Wrong, place(r), "DAG %s is not what follows from prov.steps/%d at place %d", doc.ID, d.p.Index, index)
	} else if d.known {
		d.o.cloudEvent(r, "provstream.dag.v1", d.expected[index].time)
	}
}

// nodes marks the envelopes that the nodes stand for.
func (d *dagReader) nodes(r *Record, doc *document) {
	o := d.o
	for _, n := range doc.Nodes {
		if n.ContentRef == "" {
			continue // an earlier segment
		}
		c, err := parseRef(n.ContentRef)
		if err != nil {
			o.problem(Wrong, place(r), "node %s: %v", n.ID, err)
			continue
		}
		i, ok := o.byCoord[c]
		if !ok {
			start, known := o.starts[coord{topic: c.topic, partition: c.partition}]
			if !known || c.offset < start || o.ahead(c) {
				continue
			}
			o.problem(Wrong, place(r), "node %s stands for %s, which gives no step", n.ID, n.ContentRef)
			continue
		}
		e := &o.elements[i]
		if e.nodes++; e.nodes > 1 {
			o.problem(Repeated, place(r), "node %s stands for %s, as another node does", n.ID, n.ContentRef)
		}
		if want := fmt.Sprintf("sha256:%x", e.content); n.ContentHash != want {
			o.problem(Wrong, place(r), "node %s has contentHash %s, the content of %s has %s", n.ID, n.ContentHash, n.ContentRef, want)
		}
		if want := topics.RunKey(doc.TenantID, doc.RunID); e.runKey != want {
			o.problem(Wrong, place(r), "node %s stands for %s, which belongs to run %s", n.ID, n.ContentRef, e.runKey)
		}
	}
}

// parseRef reads blob://kafka/<topic>/<partition>/<offset>[/<index>].
func parseRef(ref string) (coord, error) {
	path, ok := strings.CutPrefix(ref, "blob://kafka/")
	parts := strings.Split(path, "/")
	if !ok || len(parts) < 3 || len(parts) > 4 {
		return coord{}, fmt.Errorf("contentRef %q names no record", ref)
	}
	c := coord{topic: parts[0], index: -1}
	var errs []error
	number := func(s string, bits int) int64 {
		n, err := strconv.ParseInt(s, 10, bits)
		errs = append(errs, err)
		return n
	}
	c.partition, c.offset = int32(number(parts[1], 32)), number(parts[2], 64)
	if len(parts) == 4 {
		c.index = int32(number(parts[3], 32))
	}
	return c, errors.Join(errs...)
}

func (d *dagReader) signature(r *Record, id string) {
	o := d.o
	if o.verifier == nil {
		return
	}
	proof, ok := r.header("tlog-proof")
	if !ok {
		o.problem(Wrong, place(r), "DAG %s has no header tlog-proof", id)
		return
	}
	rec, err := o.verifier.Record(r.Value, []byte(proof))
	if err != nil {
		o.problem(Wrong, place(r), "%v", err)
		return
	}
	o.report.Signatures++
	if rec.Proof.Index != int64(len(d.log.leaves)-1) && d.p.Start == 0 {
		o.problem(Wrong, place(r), "DAG %s is proven at place %d and stands at %d", id, rec.Proof.Index, len(d.log.leaves)-1)
	}
}

// withoutSignature is the canonical text of a signed DAG without its
// signature, made by way of an independent library.
func withoutSignature(value []byte) ([]byte, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(value, &m); err != nil {
		return nil, err
	}
	if m["signature"] == nil {
		return nil, errors.New("it has no signature")
	}
	delete(m, "signature")
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return jcs.Transform(text)
}

// readHeads reads the signed heads: how far the signer has come.
func (o *oracle) readHeads(ctx context.Context) error {
	for _, p := range o.partitions[topics.Checkpoints] {
		heads := map[string][]head{}
		o.heads[p.Index] = heads
		err := o.read(ctx, p, func(r *Record) error {
			o.report.Checkpoints++
			h := head{at: place(r)}
			var err error
			if o.opt.Keys != nil {
				h.checkpoint, err = o.opt.Keys.Checkpoint(r.Value)
			} else {
				var c merkle.Checkpoint
				c, err = merkle.PeekCheckpoint(r.Value)
				h.checkpoint.Origin, h.checkpoint.Size, h.checkpoint.Root = c.Origin, c.Size, c.Root
			}
			if err != nil {
				o.problem(Wrong, place(r), "%v", err)
				return nil
			}
			origin := h.checkpoint.Origin
			if string(r.Key) != origin {
				o.problem(Wrong, place(r), "a head of %s stands under key %q", origin, r.Key)
			}
			if v, ok := r.header("tlog-consistency"); ok {
				h.consistency = []byte(v)
			}
			if v, ok := r.header("tlog-frontier"); ok {
				h.frontier = []byte(v)
			}
			heads[origin] = append(heads[origin], h)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// unsigned reports whether the DAG at a place of a partition's log lies beyond
// the signed heads, in a deployment at work.
func (o *oracle) unsigned(partition int32, place int) bool {
	if o.opt.Drained {
		return false
	}
	size := int64(0)
	for _, p := range o.partitions[topics.DAGs] {
		for origin, heads := range o.heads[partition] {
			if p.Index == partition && strings.HasSuffix(origin, fmt.Sprintf("/%s/%d", p.Topic, partition)) {
				for _, h := range heads {
					size = max(size, h.checkpoint.Size)
				}
			}
		}
	}
	return int64(place) >= size
}

// markToSign notes the envelopes that an unsigned DAG stands for.
func (o *oracle) markToSign(value []byte) {
	var doc document
	if json.Unmarshal(value, &doc) != nil {
		return
	}
	for _, n := range doc.Nodes {
		if c, err := parseRef(n.ContentRef); err == nil {
			o.toSign[c] = true
		}
	}
}

// closeLogs holds the leaves of every log against the heads that were signed.
func (o *oracle) closeLogs(context.Context) error {
	if o.verifier == nil {
		return nil
	}
	for _, p := range o.partitions[topics.Checkpoints] {
		heads := o.heads[p.Index]
		for _, log := range append(o.dagLogs, o.coverageLogs...) {
			if log.partition.Index == p.Index {
				o.checkLog(p, log, heads)
			}
		}
		for origin := range heads {
			o.problem(Wrong, heads[origin][0].at, "there is no log %s", origin)
		}
	}
	return nil
}

// checkLog replays one log. The deployment's name in its origin is taken from
// the heads.
func (o *oracle) checkLog(p Partition, log *logOf, heads map[string][]head) {
	suffix := fmt.Sprintf("/%s/%d", log.partition.Topic, log.partition.Index)
	var own []head
	for origin, list := range heads {
		if strings.HasSuffix(origin, suffix) {
			log.origin, own = origin, list
			delete(heads, origin)
			break
		}
	}
	if len(own) == 0 {
		if len(log.leaves) > 0 && o.opt.Drained {
			o.problem(Missing, coord{p.Topic, p.Index, -1, -1}, "%d records of %s/%d and no signed head", len(log.leaves), log.partition.Topic, log.partition.Index)
		}
		return
	}
	l := verify.NewLog(log.origin)
	follow := verify.NewHeads(log.origin)
	for _, h := range own {
		if h.checkpoint.Size == follow.Last().Size && follow.Count() > 0 {
			o.problem(Repeated, h.at, "the head of size %d of %s stands on the topic already", h.checkpoint.Size, log.origin)
			continue
		}
		if err := follow.Next(h.checkpoint, h.consistency, h.frontier); err != nil {
			o.problem(Wrong, h.at, "%v", err)
		}
		if err := l.Head(h.checkpoint); err != nil {
			o.problem(Wrong, h.at, "%v", err)
		}
	}
	for i, leaf := range log.leaves {
		if err := l.Leaf(leaf); err != nil {
			o.problem(Wrong, coord{log.partition.Topic, log.partition.Index, -1, -1}, "up to record number %d: %v", i, err)
			return
		}
	}
	if err := l.Close(); err != nil {
		o.problem(Missing, coord{log.partition.Topic, log.partition.Index, -1, -1}, "%v", err)
	}
	if n := l.Newest().Size; n < int64(len(log.leaves)) && o.opt.Drained {
		o.problem(Missing, coord{p.Topic, p.Index, -1, -1}, "%s has %d records, the largest signed head covers %d", log.origin, len(log.leaves), n)
	}
}
