package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"provstream/internal/evidence"
	"provstream/internal/topics"
	"provstream/verify"
)

// place is a partition of a topic; the zero place is a file without places.
type place struct {
	topic     string
	partition int32
}

// sequence looks at the results in order. One goroutine owns it.
type sequence struct {
	cfg    *Config
	report *Report
	heads  *headStream

	logs     map[string]*logState
	chains   map[string]*verify.Heads // of head records in the main input
	left     map[place]bool           // partitions behind us, with Log
	current  place
	started  bool
	deploy   string
	sinceMet map[string]bool // heads of Config.Since that were met among the checkpoints
	ledger   error           // the first coverage record that does not fit those before it
}

// logState is what is known of one log.
type logState struct {
	place   place
	log     *verify.Log // with Config.Log
	next    int64       // smallest index that may come
	since   int64
	chain   *verify.Heads // heads of Config.Heads
	newest  verify.Checkpoint
	newNote []byte
}

func newSequence(ctx context.Context, cfg *Config) *sequence {
	s := &sequence{
		cfg: cfg, report: &Report{Keys: map[string]int64{}, Tenants: map[string]int64{}, Seen: Seen{}},
		logs: map[string]*logState{}, chains: map[string]*verify.Heads{}, left: map[place]bool{}, sinceMet: map[string]bool{},
	}
	s.deploy = cfg.Deployment
	if cfg.Coverage {
		s.report.Ledger = verify.NewLedger()
	}
	if cfg.Log && cfg.Heads != nil {
		s.heads = openHeads(ctx, cfg)
	}
	return s
}

func (s *sequence) close() {
	if s.heads != nil {
		s.heads.close()
	}
}

// take looks at one record.
func (s *sequence) take(r *result) error {
	err := r.err
	if err == nil {
		switch {
		case r.isHead:
			err = s.takeHead(r)
		case s.cfg.Coverage:
			err = s.takeCoverage(r)
		default:
			err = s.takeDAG(r)
		}
	}
	if err == nil {
		return nil
	}
	return finding(r.record, err)
}

func finding(r *Record, err error) error {
	var e *verify.Error
	var f *Finding
	if errors.As(err, &f) || !errors.As(err, &e) {
		return err
	}
	f = &Finding{Err: e}
	if r != nil {
		f.Record, f.Topic, f.Partition, f.Offset, f.Line, f.Placed, f.OfARecord = r.Where(), r.Topic, r.Partition, r.Offset, r.Line, r.Placed, true
	}
	return f
}

func (s *sequence) takeDAG(r *result) error {
	if s.heads != nil { // without checkpoints beside them partitions may come mixed
		if err := s.enter(r); err != nil {
			return err
		}
	}
	if r.proven {
		if err := s.takeProof(r); err != nil {
			return err
		}
	}
	rep, d := s.report, &r.dag
	rep.DAGs++
	rep.Nodes += int64(d.Nodes)
	rep.Edges += int64(d.Edges)
	rep.Keys[d.KeyID]++
	if _, known := rep.Tenants[d.TenantID]; known || len(rep.Tenants) < maxTenants {
		rep.Tenants[d.TenantID]++
	}
	if rep.First == "" || d.CreatedAt < rep.First {
		rep.First = d.CreatedAt
	}
	rep.Last = max(rep.Last, d.CreatedAt)
	return nil
}

// enter moves on to the partition of a record, where the checkpoints are read
// beside them: the one before is complete then.
func (s *sequence) enter(r *result) error {
	p := place{r.record.Topic, r.record.Partition}
	if s.started && p == s.current {
		return nil
	}
	if s.left[p] {
		return s.fail(verify.WrongPlace, "", "a record of %s/%d stands behind those of another partition", p.topic, p.partition)
	}
	if s.started {
		if err := s.leave(); err != nil {
			return err
		}
	}
	s.current, s.started = p, true
	if s.heads != nil {
		return s.headsBefore(p)
	}
	return nil
}

// closeLogs ends logs that were followed without checkpoints beside them.
func (s *sequence) closeLogs() error {
	for _, origin := range s.origins() {
		if st := s.logs[origin]; st.log != nil {
			if err := st.log.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeCoverage looks at a coverage record: a range of offsets, and a leaf.
func (s *sequence) takeCoverage(r *result) error {
	s.report.CoverageRecords++
	if s.cfg.Values != nil {
		s.cfg.Values.Add(r.coverage)
	}
	if err := s.enter(r); err != nil {
		return err
	}
	if err := s.report.Ledger.Add(r.coverage); err != nil && s.ledger == nil {
		s.ledger = finding(r.record, err) // told at the end: the picture is wanted whole
	}
	if s.heads == nil {
		return nil
	}
	st, err := s.logOf(s.current)
	switch {
	case err != nil:
		return err
	case st == nil:
		s.report.Unsigned++ // no head of this partition at all
		return nil
	}
	if st.log.Size() >= st.log.Newest().Size {
		s.report.Unsigned++
	}
	return st.log.Leaf(r.leaf)
}

// logOf is the log of the leaves of a partition, with a head ahead of them if
// there is one.
func (s *sequence) logOf(p place) (*logState, error) {
	for {
		for _, st := range s.logs {
			if st.place == p && st.log != nil {
				return st, s.headsAhead(st)
			}
		}
		i, err := s.nextHead(p.partition, false)
		if i == nil || err != nil {
			return nil, err
		}
		if err := s.useHead(i); err != nil {
			return nil, err
		}
	}
}

// takeProof holds a proven place against those before it.
func (s *sequence) takeProof(r *result) error {
	c := r.dag.Proof.Checkpoint
	st := s.logs[c.Origin]
	if st == nil {
		var err error
		if st, err = s.newLog(c.Origin, place{r.record.Topic, r.record.Partition}); err != nil {
			return err
		}
	}
	index := r.dag.Proof.Index
	if s.cfg.Log {
		if s.heads != nil {
			if err := s.headsAhead(st); err != nil {
				return err
			}
		}
		if err := st.log.Record(r.dag); err != nil {
			return err
		}
	} else if index < st.next {
		e := s.fail(verify.WrongPlace, c.Origin, "DAG %s is leaf %d of %s and comes after leaf %d: a record was repeated or moved", r.dag.ID, index, c.Origin, st.next-1)
		e.Index = index
		return e
	}
	if c.Size == st.newest.Size && c.Root != st.newest.Root {
		return verify.Consistency(st.newest, c, nil)
	}
	st.next = index + 1
	if c.Size > st.newest.Size {
		st.newest, st.newNote = c, noteOf(r.record)
	}
	s.report.Proven++
	return nil
}

// splitOrigin takes <deployment>/<topic>/<partition> apart.
func splitOrigin(origin string) (deployment, topic string) {
	i := strings.LastIndexByte(origin, '/')
	j := strings.LastIndexByte(origin[:max(i, 0)], '/')
	if j < 0 {
		return origin, ""
	}
	return origin[:j], origin[j+1 : i]
}

// newLog begins a log. All logs are of one deployment. A log of something
// else than what is read has no leaves here: the chain of its heads is all
// there is.
func (s *sequence) newLog(origin string, p place) (*logState, error) {
	deployment, topic := splitOrigin(origin)
	if s.deploy == "" {
		s.deploy = deployment
	}
	if deployment != s.deploy {
		return nil, s.fail(verify.WrongOrigin, origin, "the log %s is of another deployment than %s", origin, s.deploy)
	}
	st := &logState{place: p}
	s.logs[origin] = st
	if !s.cfg.Log {
		return st, nil
	}
	seen, ok := s.cfg.Since[origin]
	if ok {
		st.since, st.newest, st.newNote = seen.Size, seen.Checkpoint, seen.Note
	}
	leaves := topics.DAGs
	if s.cfg.Coverage {
		leaves = topics.Coverage
	}
	if !strings.HasSuffix(topic, leaves) {
		return st, nil
	}
	st.log = verify.NewLog(origin)
	if ok {
		return st, st.log.Head(seen.Checkpoint)
	}
	return st, nil
}

// takeHead looks at a head record of the main input: a file or topic of
// checkpoints is a thing to check too.
func (s *sequence) takeHead(r *result) error {
	chain := s.chains[r.head.Origin]
	if chain == nil {
		chain = verify.NewHeads(r.head.Origin)
		s.chains[r.head.Origin] = chain
	}
	if err := chain.Next(r.head, r.record.Headers[evidence.HeaderConsistency], r.record.Headers[evidence.HeaderFrontier]); err != nil {
		return err
	}
	if r.record.Placed && !strings.HasSuffix(r.head.Origin, fmt.Sprintf("/%d", r.record.Partition)) {
		return s.fail(verify.WrongOrigin, r.head.Origin, "a head of %s stands in partition %d", r.head.Origin, r.record.Partition)
	}
	if err := s.meetSince(r.head); err != nil {
		return err
	}
	s.report.Heads++
	s.report.Seen[r.head.Origin] = SeenHead{r.head, r.record.Value}
	return nil
}

// meetSince holds a head against the one of its size that was seen before.
func (s *sequence) meetSince(c verify.Checkpoint) error {
	h, ok := s.cfg.Since[c.Origin]
	if !ok || h.Size != c.Size {
		return nil
	}
	s.sinceMet[c.Origin] = true
	return verify.Consistency(h.Checkpoint, c, nil)
}

// leave ends the current partition.
func (s *sequence) leave() error {
	s.left[s.current] = true
	for _, origin := range s.origins() {
		st := s.logs[origin]
		if st.place != s.current || st.log == nil {
			continue
		}
		if s.heads != nil {
			if err := s.headsAhead(st); err != nil {
				return err
			}
		}
		if err := st.log.Close(); err != nil {
			return err
		}
		if s.heads == nil {
			continue
		}
		if n := st.chain.Last().Size; n < st.newest.Size {
			e := s.fail(verify.Truncated, origin, "%s: the checkpoints end at size %d, a head of size %d was signed: the tail of the checkpoints was cut off", origin, n, st.newest.Size)
			e.Index = n
			return e
		}
	}
	return nil
}

// finish ends the last partition and looks for logs without records.
func (s *sequence) finish() error {
	if err := s.finishLogs(); err != nil {
		return finding(nil, err)
	}
	return s.ledger
}

func (s *sequence) finishLogs() error {
	if s.started {
		if err := s.leave(); err != nil {
			return err
		}
	}
	if s.heads != nil {
		if err := s.headsRest(); err != nil {
			return err
		}
	} else if err := s.closeLogs(); err != nil {
		return err
	}
	for origin, h := range s.cfg.Since {
		if h.Size == 0 {
			continue
		}
		chain, isHeads := s.chains[origin]
		if st := s.logs[origin]; !isHeads && st != nil && st.log == nil && st.chain != nil {
			chain, isHeads = st.chain, true
		}
		if isHeads && chain.Last().Size < h.Size {
			return s.fail(verify.Truncated, origin, "%s: the checkpoints end at size %d, one of size %d was seen before", origin, chain.Last().Size, h.Size)
		}
		if isHeads && !s.sinceMet[origin] {
			return s.fail(verify.NotConsistent, origin, "%s: the head of size %d that was seen before is not among the checkpoints: history was rewritten, or it is of a transaction "+
				"that was aborted, and then only the records themselves can show that they continue it", origin, h.Size)
		}
		if !isHeads && s.logs[origin] == nil {
			return s.fail(verify.Truncated, origin, "%s: a head of %d records was seen before, and there are none", origin, h.Size)
		}
	}
	return nil
}

func (s *sequence) origins() []string {
	var names []string
	for o := range s.logs {
		names = append(names, o)
	}
	slices.Sort(names)
	return names
}

// done completes the report.
func (s *sequence) done() *Report {
	for origin, st := range s.logs {
		l := LogReport{Origin: origin, Size: st.next, Head: st.newest.Size, Since: st.since, Root: st.newest.Root}
		if st.log != nil {
			l.Size, l.Root = st.log.Size(), st.log.Root()
		} else if st.chain != nil {
			l.Size = st.newest.Size // known by its heads alone
		}
		s.report.Logs = append(s.report.Logs, l)
		if st.newNote != nil {
			s.report.Seen[origin] = SeenHead{st.newest, st.newNote}
		}
	}
	for origin, c := range s.chains {
		s.report.Logs = append(s.report.Logs, LogReport{Origin: origin, Size: c.Last().Size, Root: c.Last().Root, Head: c.Last().Size, Since: s.cfg.Since[origin].Size})
	}
	slices.SortFunc(s.report.Logs, func(a, b LogReport) int { return cmp.Compare(a.Origin, b.Origin) })
	return s.report
}

func (s *sequence) fail(kind verify.Kind, origin, format string, args ...any) *verify.Error {
	return &verify.Error{Kind: kind, Detail: fmt.Sprintf(format, args...), Origin: origin, Offset: -1, Index: -1}
}
