package reconcile

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/topics"
	"provstream/verify"
)

// coord names an envelope: a record, or (index ≥ 0) an element of one.
type coord struct {
	topic     string
	partition int32
	offset    int64
	index     int32
}

func coordOf(c acs.Coordinates) coord { return coord{c.Topic, c.Partition, c.Offset, c.Index} }

// element is an envelope that must stand on prov.steps.
type element struct {
	at        coord
	timestamp int64
	step      [32]byte // of the step that reading it gives, times aside
	runKey    string
	copyOf    [32]byte // equal for the copies of one record of a run
	content   [32]byte
	handshake bool
	decision  bool
	rejected  bool

	seen  int32 // on prov.steps
	nodes int32 // in signed DAGs
}

// letter is a dead letter that must exist.
type letter struct {
	codec.DeadLetter
	raw  [32]byte // of the value
	rest [32]byte // of key and headers
	seen int
}

type oracle struct {
	src        Source
	opt        Options
	partitions map[string][]Partition // by base name
	hooks      []Partition
	starts     map[coord]int64 // of the hook partitions; index and offset 0
	count      int32           // of the partitioned topics
	report     Report

	elements []element
	byCoord  map[coord]int32
	letters  map[coord]*letter
	covered  map[coord][]*span // by hook partition, in the order of the log
	emitted  map[int32]*emissions
	runs     map[int32]*outputs // values of prov.runs, by partition
	windows  map[int32][]windowsUntil
	heads    map[int32]map[string][]head // by partition and origin
	toSign   map[coord]bool              // nodes of DAGs that are not signed yet
	opened   map[[32]byte]bool           // copy hashes of what is open at the end
	verifier *verify.Verifier

	dagLogs, coverageLogs []*logOf
}

func newOracle(src Source, opt Options, partitions []Partition) *oracle {
	o := &oracle{
		src: src, opt: opt, partitions: map[string][]Partition{}, starts: map[coord]int64{},
		byCoord: map[coord]int32{}, letters: map[coord]*letter{}, covered: map[coord][]*span{},
		emitted: map[int32]*emissions{}, runs: map[int32]*outputs{}, windows: map[int32][]windowsUntil{},
		heads: map[int32]map[string][]head{}, toSign: map[coord]bool{},
	}
	for _, p := range partitions {
		o.partitions[p.Base] = append(o.partitions[p.Base], p)
		if p.Base == topics.Decisions || strings.HasPrefix(p.Base, topics.HookPrefix) {
			o.hooks = append(o.hooks, p)
			o.starts[coord{topic: p.Topic, partition: p.Index}] = p.Start
		}
	}
	for base := range o.partitions {
		slices.SortFunc(o.partitions[base], func(a, b Partition) int { return int(a.Index - b.Index) })
	}
	o.count = int32(len(o.partitions[topics.Steps]))
	if opt.Keys != nil {
		o.verifier = verify.NewVerifier(opt.Keys)
		o.verifier.CheckID = true
	} else {
		o.note("no keys were given: no signature, proof or checkpoint is checked")
	}
	return o
}

// choose leaves only the partitions that are to be looked at. Coverage is about
// hook partitions and stays whole.
func (o *oracle) choose() error {
	if len(o.opt.Only) == 0 {
		return nil
	}
	for _, p := range o.opt.Only {
		if p < 0 || p >= o.count {
			return fmt.Errorf("partition %d: there are %d", p, o.count)
		}
	}
	for _, base := range flow {
		if base == topics.Coverage || base == topics.DeadLetter {
			continue
		}
		o.partitions[base] = slices.DeleteFunc(o.partitions[base], func(p Partition) bool { return !slices.Contains(o.opt.Only, p.Index) })
	}
	o.note("only the runs of partitions %v of %d were looked at", o.opt.Only, o.count)
	return nil
}

// looksAt tells whether a run is one of those that are looked at.
func (o *oracle) looksAt(runKey string) bool {
	return len(o.opt.Only) == 0 || slices.Contains(o.opt.Only, topics.Partition([]byte(runKey), o.count))
}

// ahead reports whether a raw record lies beyond what coverage accounts for: it
// was read since.
func (o *oracle) ahead(c coord) bool {
	if o.opt.Drained || len(o.partitions[topics.Coverage]) == 0 {
		return false
	}
	if _, known := o.starts[coord{topic: c.topic, partition: c.partition}]; !known {
		return false
	}
	spans := o.covered[coord{topic: c.topic, partition: c.partition}]
	return len(spans) == 0 || c.offset >= spans[len(spans)-1].To
}

func (o *oracle) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(o.report.Notes, n) {
		o.report.Notes = append(o.report.Notes, n)
	}
}

func (o *oracle) problem(what string, at coord, format string, args ...any) {
	switch what {
	case Missing:
		o.report.Missing++
	case Repeated:
		o.report.Repeated++
	default:
		o.report.Wrong++
	}
	if len(o.report.Problems) >= o.opt.MaxProblems {
		return
	}
	p := Problem{What: what, Topic: at.topic, Partition: at.partition, Offset: at.offset, Detail: fmt.Sprintf(format, args...)}
	if at.index >= 0 {
		p.Index = &at.index
	}
	o.report.Problems = append(o.report.Problems, p)
}

func place(r *Record) coord { return coord{r.Topic, r.Partition, r.Offset, -1} }

// read reads the partitions of a topic one after the other.
func (o *oracle) read(ctx context.Context, p Partition, f func(*Record) error) error {
	var n int64
	err := o.src.Read(ctx, p, func(r *Record) error {
		n++
		if o.opt.Progress != nil && n%10_000 == 0 {
			o.opt.Progress(p.Topic, p.Index, n)
		}
		return f(r)
	})
	if err != nil {
		return fmt.Errorf("read %s/%d: %w", p.Topic, p.Index, err)
	}
	return nil
}

// timeless is the hash of a step without what depends on the instant at which
// ingest read it.
func timeless(s *acs.Step) [32]byte {
	t := *s
	t.RecordedAt, t.Skewed = 0, false
	if t.Type == acs.TypeDecision || t.Rejected != "" {
		t.EventTime = 0
	}
	return sha256.Sum256(codec.AppendStep(nil, &t))
}

// copyHash is equal for the copies of one record of a run (rules §1).
func copyHash(runKey string, s *acs.Step) [32]byte {
	id := s.StepID
	if s.ErrorResponse {
		id = s.ID
	}
	return sha256.Sum256(fmt.Appendf(nil, "%q %d %t %q %q %x", runKey, s.Type, s.ErrorResponse, id, s.Method, s.RequestHash))
}

// skewed compares the two times of a step (rules §1).
func (o *oracle) skewed(s *acs.Step) bool {
	limit := o.opt.Reader.MaxClockSkew
	if limit == 0 {
		limit = codec.DefaultMaxClockSkew
	}
	d := s.EventTime - s.RecordedAt
	return s.Type == acs.TypeStep && (d > limit.Milliseconds() || -d > limit.Milliseconds())
}
