package window

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/segment"
	"provstream/internal/state"
)

// savedRun is what the state topic holds of a run.
type savedRun struct {
	seg        *segment.Segment // the open segment its chunks belong to
	generation uint64           // of that segment: chunks of another are stale
	steps      int              // records of seg in chunks
	decisions  int
	chunks     int           // chunk keys in use
	parts      int           // keys of the mutable part in use
	replaced   []segment.Ref // records in chunks that a smaller copy replaced
}

// maxPart bounds a state record well below the topic's 2 MiB.
const maxPart = 1 << 20

// Keys of the state topic. Run keys hold no NUL: a tenant is path-escaped and a
// session is a UUID.
func runStateKey(key string, kind byte, n int) string {
	return "run\x00" + key + "\x00" + string(kind) + strconv.Itoa(n)
}

func goneStateKey(key string) string { return "gone\x00" + key }

// noteReplaced notes that a record which a chunk holds has changed.
func (r *run) noteReplaced(s *acs.Step) {
	if r.saved == nil || r.saved.seg != r.seg {
		return
	}
	if ref := r.seg.Find(s); ref != segment.NoRef {
		r.saved.replaced = append(r.saved.replaced, ref)
	}
}

// unsave leaves tombstones for everything the state topic holds of a run.
func (p *Partition) unsave(r *run) {
	s := r.saved
	if s == nil {
		return
	}
	for i := range s.parts {
		p.tombstones = append(p.tombstones, runStateKey(r.key, 'm', i))
	}
	for i := range s.chunks {
		p.tombstones = append(p.tombstones, runStateKey(r.key, 'c', i))
	}
	r.saved = nil
}

// Save writes, as records of the state topic, the runs with a change that no
// snapshot holds and that lies more than behind offsets before next, and what
// Low then asks for. A nil value is a tombstone. behind < 0 saves every run.
func (p *Partition) Save(next, behind int64, put func(key string, value []byte)) {
	// Tombstones first: a run of the same key may have begun since.
	for _, key := range p.tombstones {
		put(key, nil)
	}
	p.tombstones = nil
	for r := p.unsaved.first; r != nil && (behind < 0 || next-r.missing > behind); r = p.unsaved.first {
		p.saveRun(r, next, put)
		p.settled(r)
	}
	p.markGone(next, put)
}

// markGone marks the forgotten runs that began before Low and have records
// behind it, and drops those that a replay cannot meet any more.
func (p *Partition) markGone(next int64, put func(key string, value []byte)) {
	low, _, _ := p.Low(next)
	kept := p.gone[:0]
	for _, g := range p.gone {
		switch {
		case g.last < low && g.marked:
			put(goneStateKey(g.key), nil)
			continue
		case g.last < low:
			continue
		case g.first < low && !g.marked:
			w := state.Writer{B: []byte{state.Version}}
			w.Int(g.last)
			put(goneStateKey(g.key), w.B)
			g.marked = true
		}
		kept = append(kept, g)
	}
	clear(p.gone[len(kept):])
	p.gone = kept
}

// saveRun writes a run's new records as chunks, and its mutable part.
func (p *Partition) saveRun(r *run, next int64, put func(key string, value []byte)) {
	s := r.saved
	if s == nil {
		s = &savedRun{}
		r.saved = s
	}
	old := s.chunks
	if s.seg != r.seg || r.seg == nil {
		s.seg, s.steps, s.decisions, s.chunks, s.replaced = r.seg, 0, 0, 0, nil
		s.generation++
	}
	if r.seg != nil {
		p.saveRecords(r, s, put)
	}
	for i := s.chunks; i < old; i++ {
		put(runStateKey(r.key, 'c', i), nil)
	}
	w := &state.Writer{}
	r.save(w, next)
	parts := (len(w.B) + maxPart - 1) / maxPart
	for i := range parts {
		part := w.B[i*maxPart : min((i+1)*maxPart, len(w.B))]
		head := state.Writer{B: []byte{state.Version}}
		head.Uint(uint64(parts))
		put(runStateKey(r.key, 'm', i), append(head.B, part...))
	}
	for i := parts; i < s.parts; i++ {
		put(runStateKey(r.key, 'm', i), nil)
	}
	s.parts = parts
}

// saveRecords writes the records of the open segment that no chunk holds.
func (p *Partition) saveRecords(r *run, s *savedRun, put func(key string, value []byte)) {
	w := state.Writer{}
	start := func() {
		w.B = append(w.B[:0], state.Version)
		w.Uint(s.generation)
	}
	empty := true
	flush := func() {
		if !empty {
			put(runStateKey(r.key, 'c', s.chunks), slices.Clone(w.B))
			s.chunks++
		}
		empty = true
		start()
	}
	start()
	var text []byte
	add := func(ref segment.Ref) {
		text = codec.AppendStep(text[:0], r.seg.Unpack(r.tenant, r.session, ref))
		if len(w.B)+len(text) > maxPart {
			flush()
		}
		w.Uint(uint64(len(text)))
		w.Fixed(text)
		empty = false
	}
	for _, ref := range s.replaced {
		add(ref)
	}
	for ; s.steps < len(r.seg.Steps); s.steps++ {
		add(segment.StepRef(int32(s.steps)))
	}
	for ; s.decisions < len(r.seg.Decisions); s.decisions++ {
		add(segment.DecisionRef(int32(s.decisions)))
	}
	flush()
	s.replaced = s.replaced[:0]
}

// Loader collects a partition's state records and builds the runs they hold.
type Loader struct {
	p     *Partition
	parts map[string]map[int][]byte // by run key: the mutable part
	chunk map[string]map[int][]byte
	gone  map[string]int64
}

// NewLoader returns a Loader for an empty partition.
func NewLoader(p *Partition) *Loader {
	return &Loader{p: p, parts: make(map[string]map[int][]byte), chunk: make(map[string]map[int][]byte), gone: make(map[string]int64)}
}

// Add takes one record of the state topic, in the order of the topic. Keys that
// are no run's are left alone. value is kept.
func (l *Loader) Add(key string, value []byte) error {
	if run, ok := strings.CutPrefix(key, "gone\x00"); ok {
		if value == nil {
			delete(l.gone, run)
			return nil
		}
		r := state.Reader{B: value}
		if err := version(&r); err != nil {
			return fmt.Errorf("state of run %q: %w", run, err)
		}
		l.gone[run] = r.Int()
		return r.Done()
	}
	rest, ok := strings.CutPrefix(key, "run\x00")
	if !ok {
		return nil
	}
	run, name, _ := strings.Cut(rest, "\x00")
	if name == "" {
		return fmt.Errorf("state key %q: %w", key, state.ErrCorrupt)
	}
	n, err := strconv.Atoi(name[1:])
	if err != nil {
		return fmt.Errorf("state key %q: %w", key, state.ErrCorrupt)
	}
	into := l.parts
	if name[0] == 'c' {
		into = l.chunk
	}
	if value == nil {
		delete(into[run], n)
		return nil
	}
	if into[run] == nil {
		into[run] = make(map[int][]byte)
	}
	into[run][n] = value
	return nil
}

func version(r *state.Reader) error {
	if v := r.Fixed(1); len(v) == 0 || v[0] != state.Version {
		return fmt.Errorf("snapshot of another version: start the version that wrote it and let it drain before you change: %w", state.ErrCorrupt)
	}
	return nil
}

// Load builds the runs. It returns the number of records that were open.
func (l *Loader) Load() (records int, err error) {
	keys := make([]string, 0, len(l.parts))
	for key, parts := range l.parts {
		if len(parts) > 0 {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		n, err := l.loadRun(key)
		if err != nil {
			return records, fmt.Errorf("state of run %q: %w", key, err)
		}
		records += n
	}
	l.p.skip = l.gone
	for key, last := range l.gone {
		l.p.gone = append(l.p.gone, goneRun{key: key, first: -1, last: last, marked: true})
	}
	slices.SortFunc(l.p.gone, func(a, b goneRun) int { return strings.Compare(a.key, b.key) })
	return records, nil
}

func (l *Loader) loadRun(key string) (records int, err error) {
	var blob []byte
	total := 1
	for i := 0; i < total; i++ {
		r := state.Reader{B: l.parts[key][i]}
		if err := version(&r); err != nil {
			return 0, err
		}
		total = int(r.Uint())
		blob = append(blob, r.B...)
	}
	p := l.p
	r := &run{key: key, saved: &savedRun{parts: total}}
	r.timer = timer{run: r, turn: -1, pos: -1}
	in := &state.Reader{B: blob}
	open := r.load(in)
	if err := in.Err(); err != nil {
		return 0, err
	}
	if open {
		if err := l.loadRecords(r); err != nil {
			return 0, err
		}
		r.seg.LoadTimes(in)
		r.saved.seg = r.seg
		r.saved.steps, r.saved.decisions = len(r.seg.Steps), len(r.seg.Decisions)
		records = r.seg.Len()
	}
	if err := in.Done(); err != nil {
		return 0, err
	}
	p.adopt(r)
	return records, nil
}

// loadRecords fills the open segment from its chunks.
func (l *Loader) loadRecords(r *run) error {
	r.seg = l.p.storage.Segment(r.ended)
	var s acs.Step
	for i := range r.saved.chunks {
		in := state.Reader{B: l.chunk[r.key][i]}
		if err := version(&in); err != nil {
			return err
		}
		if in.Uint() != r.saved.generation {
			return fmt.Errorf("chunk %d is of another segment: %w", i, state.ErrCorrupt)
		}
		for len(in.B) > 0 {
			text := in.Fixed(in.Len(1))
			if err := in.Err(); err != nil {
				return err
			}
			s.Reset()
			if err := codec.DecodeStep(&s, text); err != nil {
				return fmt.Errorf("chunk %d: %w", i, err)
			}
			r.seg.Add(&s)
		}
	}
	return nil
}

// adopt takes a loaded run into the partition, with its timers.
func (p *Partition) adopt(r *run) {
	p.runs[r.key] = r
	if r.seg != nil && r.seg.Len() > 0 {
		p.open += r.seg.Len()
		p.openRuns.renew(r)
		p.noteOpen(r)
	}
	p.arm(r)
	if r.dirty {
		r.dirty = false
		p.markDirty(r)
	}
	if r.nesting {
		p.markNested(r)
	}
}
