// Package audit runs the public verifier over many records: a file, stdin or
// the topics of a cluster. It reads in one goroutine, checks in all cores, and
// looks at the results in the order of the input, so that the first thing that
// does not hold is told and logs can be followed leaf by leaf. Queues are
// bounded: a million DAGs need no more memory than a thousand.
//
// What it adds to package verify is what a single record cannot show: that a
// record stands under its run's key and in the partition of its log, that no
// DAG of a log stands there twice or in another order, and (Config.Log) that
// the records are exactly the log that the signed heads describe.
package audit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"provstream/internal/evidence"
	"provstream/internal/merkle"
	"provstream/internal/topics"
	"provstream/verify"
)

// Kinds of findings about records, beside those of package verify.
const (
	WrongKey  verify.Kind = "record_key" // the record's key is not that of its run
	WrongCEID verify.Kind = "ce_id"      // the CloudEvents id is not that of the DAG
	WrongCE   verify.Kind = "ce"         // another CloudEvents attribute is not that of the record
)

// Config says what to check.
type Config struct {
	Keys *verify.Keys
	// Proof demands a tlog-proof of every DAG. Without it a proof that is there
	// is still checked, when a log key is pinned.
	Proof bool
	// Log demands that the DAGs are whole logs, from the first leaf on.
	Log bool
	// Heads, with Log, are the records of prov.checkpoints, partition by
	// partition as the DAGs are. Nil: the heads of the proofs alone.
	Heads Source
	// Since, with Log, are heads that were seen before.
	Since Seen
	// Deployment, if not empty, is what origins must begin with.
	Deployment string
	// LoggedAs, if not empty, is the name that the topic had where it was signed:
	// a mirror may have given it another one.
	LoggedAs string
	// Foreign takes DAGs of other makers; see verify.Verifier.
	Foreign bool
	// Coverage: the records are those of prov.coverage instead of DAGs; Report.Ledger
	// adds them up. With Heads they are leaves of logs, which may end after the
	// newest head: the signer comes later.
	Coverage bool
	// Values, if not nil, is given each coverage record.
	Values *Values
	// Progress, if not nil, is told now and then how many records are done.
	Progress func(n int64)
	// Workers; 0 is one for each core.
	Workers int
}

// Finding is something that does not hold: an *verify.Error and where.
type Finding struct {
	Record string // of the file or topic; "" for what is about a whole log
	Err    *verify.Error
	// Coordinates, where known.
	Topic             string
	Partition         int32
	Offset, Line      int64
	Placed, OfARecord bool
}

func (f *Finding) Error() string {
	if f.Record == "" {
		return f.Err.Error()
	}
	return f.Record + ": " + f.Err.Error()
}

func (f *Finding) Unwrap() error { return f.Err }

// Report is what was checked.
type Report struct {
	DAGs, Nodes, Edges int64
	Heads              int64 // records of prov.checkpoints
	Proven             int64 // DAGs with a proof that holds
	Keys               map[string]int64
	Tenants            map[string]int64 // at most maxTenants of them
	First, Last        string           // createdAt
	Logs               []LogReport
	CoverageRecords    int64
	Unsigned           int64          // coverage records that no head covers (yet)
	Ledger             *verify.Ledger // of Config.Coverage
	Seen               Seen           // the newest head of each log
}

// LogReport is one log.
type LogReport struct {
	Origin string
	Size   int64 // leaves seen
	Root   verify.Hash
	Head   int64 // size of the newest signed head
	Since  int64 // size of the head that was seen before
}

const maxTenants = 10_000

// Run checks everything that source hands over. The error is a *Finding when
// something does not hold: the first in the order of the input.
func Run(ctx context.Context, cfg Config, source Source) (*Report, error) {
	if cfg.Workers <= 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	cfg.Proof = cfg.Proof || cfg.Log
	cfg.Log = cfg.Log || cfg.Coverage
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The checkpoints are read until the end, beyond that of the DAGs: not with
	// the context of the group, which ends with it.
	s := newSequence(ctx, &cfg)
	defer s.close()
	g, ctx := errgroup.WithContext(ctx)
	jobs := make(chan *job, cfg.Workers)
	inOrder := make(chan *job, 4*cfg.Workers)
	g.Go(func() error {
		defer close(jobs)
		defer close(inOrder)
		return feed(ctx, source, jobs, inOrder)
	})
	var workers sync.WaitGroup
	for range cfg.Workers {
		workers.Add(1)
		g.Go(func() error {
			defer workers.Done()
			w := newWorker(&cfg)
			for j := range jobs {
				j.results = w.check(j.items)
				close(j.done)
			}
			return nil
		})
	}
	g.Go(func() error {
		for j := range inOrder {
			select {
			case <-j.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			for i := range j.results {
				if err := s.take(&j.results[i]); err != nil {
					return err
				}
			}
			if cfg.Progress != nil {
				cfg.Progress(s.report.DAGs + s.report.CoverageRecords)
			}
		}
		return nil
	})
	err := g.Wait()
	if err == nil {
		err = s.finish()
	}
	return s.done(), err
}

// job is some items in a row.
type job struct {
	items   []Item
	results []result
	done    chan struct{}
}

// Limits of a job: enough to make handing it over cheap, small enough that the
// queues hold little.
const (
	jobItems = 64
	jobBytes = 1 << 20
)

func feed(ctx context.Context, source Source, jobs, inOrder chan<- *job) error {
	var items []Item
	size := 0
	flush := func() error {
		if len(items) == 0 {
			return nil
		}
		j := &job{items: items, done: make(chan struct{})}
		items, size = nil, 0
		for _, c := range []chan<- *job{inOrder, jobs} {
			select {
			case c <- j:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	err := source(ctx, func(i Item) error {
		items = append(items, i)
		size += len(i.Text)
		if i.Record != nil {
			size += len(i.Record.Value)
		}
		if len(items) >= jobItems || size >= jobBytes {
			return flush()
		}
		return nil
	})
	// What came before a read error is looked at first: it may be the reason.
	return errors.Join(err, flush())
}

// result is what a worker found out about one record.
type result struct {
	record *Record
	dag    verify.Record
	proven bool
	head   verify.Checkpoint
	isHead bool

	coverage verify.Coverage
	leaf     verify.Hash
	err      error
}

// worker checks records one by one.
type worker struct {
	cfg   *Config
	v     *verify.Verifier
	hasLK bool // a log key is pinned
}

func newWorker(cfg *Config) *worker {
	w := &worker{cfg: cfg, v: verify.NewVerifier(cfg.Keys)}
	w.v.CheckID = true
	w.v.Foreign = cfg.Foreign
	if cfg.Keys == nil {
		return w // coverage, with nothing but the records
	}
	w.hasLK = w.v.HasLogKey()
	return w
}

func (w *worker) check(items []Item) []result {
	results := make([]result, len(items))
	for i := range items {
		r := &results[i]
		r.record = items[i].record()
		items[i] = Item{}
		if isNote(r.record) {
			r.isHead = true
			r.head, r.err = w.cfg.Keys.Checkpoint(r.record.Value)
			continue
		}
		if w.cfg.Coverage {
			r.coverage, r.err = verify.ParseCoverage(r.record.Value)
			r.leaf = merkle.LeafHash(r.record.Value)
			continue
		}
		r.err = w.checkDAG(r)
		r.record.Value = nil // not needed any more
	}
	return results
}

// isNote tells a checkpoint from a DAG: JSON begins with a brace, an origin
// does not.
func isNote(r *Record) bool {
	_, ok := r.Headers[evidence.HeaderFrontier]
	return ok || len(r.Value) > 0 && r.Value[0] != '{' && r.Placed && strings.HasSuffix(r.Topic, topics.Checkpoints)
}

func (w *worker) checkDAG(r *result) (err error) {
	proof, has := r.record.Headers[evidence.HeaderProof]
	if w.cfg.Proof || has && w.hasLK {
		r.dag, err = w.v.Record(r.record.Value, proof)
		r.proven = err == nil
	} else {
		r.dag.DAG, err = w.v.DAG(r.record.Value)
	}
	if err != nil {
		return err
	}
	d := &r.dag
	if want := topics.RunKey(d.TenantID, d.RunID); r.record.Keyed && string(r.record.Key) != want && !w.cfg.Foreign {
		return &verify.Error{
			Kind: WrongKey, Offset: -1, Index: -1,
			Detail: fmt.Sprintf("DAG %s of tenant %q stands under key %q, not that of its run, %q", d.ID, d.TenantID, r.record.Key, want),
		}
	}
	if id, ok := r.record.Headers["ce_id"]; ok && string(id) != d.TenantID+"/"+d.ID {
		return &verify.Error{Kind: WrongCEID, Offset: -1, Index: -1, Detail: fmt.Sprintf("DAG %s: the header ce_id is %q, not tenant and DAG id: dropping repeats by it would drop evidence", d.ID, id)}
	}
	if r.proven {
		if err := w.checkOrigin(r.record, d.Proof.Checkpoint.Origin, d.Proof.Index); err != nil {
			return err
		}
	}
	return w.checkEvent(r.record, d)
}

// checkEvent holds the CloudEvents attributes that say something about the
// record against it.
func (w *worker) checkEvent(r *Record, d *verify.Record) error {
	bad := func(name, got, want string) error {
		return &verify.Error{Kind: WrongCE, Offset: -1, Index: -1, Detail: fmt.Sprintf("DAG %s: the header %s is %q, want %q", d.ID, name, got, want)}
	}
	for _, h := range []struct{ name, want string }{{"ce_specversion", "1.0"}, {"ce_type", "provstream.dag.v1"}, {"ce_time", d.CreatedAt}, {"content-type", "application/json"}} {
		if got, ok := r.Headers[h.name]; ok && string(got) != h.want {
			return bad(h.name, string(got), h.want)
		}
	}
	if got, ok := r.Headers["ce_source"]; ok && r.Placed {
		if want := w.place(r); !strings.HasSuffix(string(got), want) {
			return bad("ce_source", string(got), "kafka://<cluster id>"+want)
		}
	}
	return nil
}

// place is the end of the names of the log that a record belongs to and of its
// source.
func (w *worker) place(r *Record) string {
	topic := r.Topic
	if w.cfg.LoggedAs != "" {
		topic = w.cfg.LoggedAs
	}
	return "/" + topic + "/" + strconv.Itoa(int(r.Partition))
}

// checkOrigin holds the name of a log against where the record stands.
func (w *worker) checkOrigin(r *Record, origin string, index int64) error {
	place := w.place(r)
	switch {
	case r.Placed && !strings.HasSuffix(origin, place):
		return &verify.Error{
			Kind: verify.WrongOrigin, Offset: -1, Origin: origin, Index: index,
			Detail: fmt.Sprintf("proven in the log %s, which is not that of %s/%d", origin, r.Topic, r.Partition),
		}
	case w.cfg.Deployment != "" && !strings.HasPrefix(origin, w.cfg.Deployment+"/"):
		return &verify.Error{
			Kind: verify.WrongOrigin, Offset: -1, Origin: origin, Index: index,
			Detail: fmt.Sprintf("proven in the log %s, which is not one of deployment %s", origin, w.cfg.Deployment),
		}
	}
	return nil
}

// noteOf returns the signed note inside a proof that has been checked.
func noteOf(r *Record) []byte {
	p, err := merkle.ParseProof(r.Headers[evidence.HeaderProof])
	if err != nil {
		return nil
	}
	return p.Checkpoint
}
