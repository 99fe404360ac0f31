package embedded

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The tests of the repair record a folder before and after kfake applies one
// commit, and build from the two every folder that a kill in between can leave.

const group = "provstream-test"

// contents is a folder in memory: path to bytes.
type contents map[string][]byte

func readFolder(t *testing.T, dir string) contents {
	t.Helper()
	out := make(contents)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		out[rel], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(out, "lock")
	return out
}

func (c contents) write(t *testing.T, dir string) {
	t.Helper()
	for name, data := range c {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// chunk is one write of kfake: what was appended to a file.
type chunk struct {
	file string
	data []byte
}

// recording is a folder before the first write of a commit, and the writes.
type recording struct {
	before contents
	writes []chunk // in kfake's order, but for the order of the partitions
	parts  int
}

// record runs two transactions of a consume-and-produce loop over an input of ten
// records, five each, and records the commit of the second.
func record(t *testing.T) recording {
	t.Helper()
	dir := t.TempDir()
	b := start(t, Config{DataDir: dir, Partitions: 2})
	in := client(t, b.Addr, kgo.DefaultProduceTopic("acs.decisions"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 10 {
		if err := in.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	var before contents
	ends := 0
	s := session(t, b.Addr)
	b.cluster.ControlKey(int16(kmsg.EndTxn), func(kmsg.Request) (kmsg.Response, error, bool) {
		if ends++; ends == 2 {
			before = readFolder(t, dir)
		}
		return nil, nil, false
	})
	for turn := range 2 {
		hop(t, s, turn)
	}
	after := readFolder(t, dir)
	s.Close()

	r := recording{before: before}
	var names []string
	for name, data := range after {
		old := before[name]
		if !bytes.HasPrefix(data, old) {
			t.Fatalf("%s was not only appended to", name)
		}
		if len(data) > len(old) {
			names = append(names, name)
		}
	}
	// Partitions first, each .dat before its .idx; then the groups, then the
	// producer's entries one by one.
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(rank(a), rank(b)) })
	for _, name := range names {
		added := after[name][len(before[name]):]
		if strings.HasSuffix(name, ".dat") {
			r.parts++
		}
		if !strings.HasSuffix(name, ".log") {
			r.writes = append(r.writes, chunk{name, added})
			continue
		}
		for _, size := range frames(added) {
			r.writes = append(r.writes, chunk{name, added[:size]})
			added = added[size:]
		}
	}
	if r.parts != 3 {
		t.Fatalf("the commit wrote to %d partitions, want 3: %v", r.parts, names)
	}
	return r
}

func rank(name string) string {
	switch {
	case strings.HasPrefix(name, "partitions"):
		return "0" + name // .dat sorts before .idx
	case name == groupsLogFile:
		return "1"
	default:
		return "2"
	}
}

// session is a transactional consumer of acs.decisions.
func session(t *testing.T, addr string) *kgo.GroupTransactSession {
	t.Helper()
	s, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(addr), kgo.TransactionalID("provstream-test-0"),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics("acs.decisions"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// hop copies five records of the input to three partitions of two topics, and
// commits.
func hop(t *testing.T, s *kgo.GroupTransactSession, turn int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 5; {
		fetches := s.PollRecords(ctx, 5-n)
		if ctx.Err() != nil {
			t.Fatal("the input ended early")
		}
		fetches.EachRecord(func(r *kgo.Record) {
			n++
			for topic, p := range map[string]int32{"prov.runs": r.Partition, "prov.turns": 1} {
				s.Produce(ctx, &kgo.Record{Topic: topic, Partition: p, Value: r.Value}, nil)
			}
			s.Produce(ctx, &kgo.Record{Topic: "prov.runs", Partition: 1, Value: []byte(fmt.Sprintf("%s again in %d", r.Value, turn))}, nil)
		})
	}
	if ok, err := s.End(ctx, kgo.TryCommit); err != nil || !ok {
		t.Fatalf("end: %v %v", ok, err)
	}
}

// visible is what a committed reader and the group's next member see, as one
// number each: records of both topics, and the sum of the committed offsets.
func visible(t *testing.T, addr string) (records, offsets int64) {
	t.Helper()
	for _, topic := range []string{"prov.runs", "prov.turns"} {
		for p := range int32(2) {
			records += int64(len(readPartition(t, addr, topic, p)))
		}
	}
	committed, err := kadm.NewClient(client(t, addr)).FetchOffsets(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	committed.Each(func(o kadm.OffsetResponse) { offsets += o.At })
	return records, offsets
}

// readPartition reads the committed records of a partition up to where its last
// stable offset was at the beginning.
func readPartition(t *testing.T, addr, topic string, partition int32) []string {
	t.Helper()
	cl := client(t, addr, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.FetchMaxWait(50*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, partition)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var out []string
	for next := int64(0); next < end.Offset; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%s/%d does not end: at %d of %d", topic, partition, next, end.Offset)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			next = r.Offset + 1
			if !r.Attrs.IsControl() {
				out = append(out, string(r.Value))
			}
		})
	}
	return out
}

// TestKillWhileCommitting cuts the commit off after every write and within each,
// in several orders of the partitions. The producer had asked for the commit, so it
// stands.
func TestKillWhileCommitting(t *testing.T) {
	r := record(t)
	orders := [][]int{{2, 0, 1}, {0, 1, 2}} // kfake takes any
	if testing.Short() {
		orders = orders[:1]
	}
	states := 0
	for _, order := range orders {
		writes := slices.Clone(r.writes)
		for i, from := range order {
			copy(writes[2*i:], r.writes[2*from:2*from+2])
		}
		for k := range len(writes) + 1 {
			cuts := []int{0}
			if k < len(writes) {
				n := len(writes[k].data)
				cuts = append(cuts, 1, n/2, n-1)
			}
			for _, cut := range cuts {
				states++
				state := r.cut(writes, k, cut)
				dir := t.TempDir()
				state.write(t, dir)
				b := start(t, Config{DataDir: dir})
				records, offsets := visible(t, b.Addr)
				if records != 30 || offsets != 10 {
					t.Errorf("order %v, %d writes and %d bytes: %d records and offsets %d are committed, want 30 and 10 (%v)",
						order, k, cut, records, offsets, b.Repaired)
				}
				if err := b.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	t.Logf("%d folders", states)
}

// cut is the folder after k writes and some bytes of the next.
func (r recording) cut(writes []chunk, k, bytes int) contents {
	state := make(contents)
	for name, data := range r.before {
		state[name] = slices.Clone(data)
	}
	for _, w := range writes[:k] {
		state[w.file] = append(state[w.file], w.data...)
	}
	if bytes > 0 {
		state[writes[k].file] = append(state[writes[k].file], writes[k].data[:bytes]...)
	}
	return state
}

// TestKillBeforeCommit holds that a transaction whose commit nobody asked for is
// aborted, at the first kill and for good: kfake alone shows it again after the
// second.
func TestKillBeforeCommit(t *testing.T) {
	r := record(t)
	delete(r.before, journalFile) // the request had not arrived
	// Cut the last data batch of the transaction short as well.
	for _, file := range []string{"", ".dat", ".idx"} {
		t.Run("torn"+file, func(t *testing.T) {
			state := r.cut(nil, 0, 0)
			want := int64(15)
			if file != "" {
				name := "partitions/prov.turns-1/0" + file
				state[name] = state[name][:len(state[name])-3]
			}
			for kill := range 3 {
				dir := t.TempDir()
				state.write(t, dir)
				b := start(t, Config{DataDir: dir})
				if kill == 0 && b.Repaired.Aborted != 1 {
					t.Errorf("repaired %v, want one aborted transaction", b.Repaired)
				}
				wantOffsets := int64(5)
				if kill == 2 {
					want, wantOffsets = 30, 10
				}
				if records, offsets := visible(t, b.Addr); records != want || offsets != wantOffsets {
					t.Fatalf("kill %d: %d records and offsets %d are committed, want %d and %d (%v)", kill, records, offsets, want, wantOffsets, b.Repaired)
				}
				if kill == 1 {
					// The same producer goes on, with a commit: what it had
					// open before must not come with it.
					s := session(t, b.Addr)
					hop(t, s, 2)
					s.Close()
				}
				state = readFolder(t, dir) // as a kill leaves it
				b.Close()
			}
		})
	}
}

// TestDamage holds that what no kill can have done is refused, with the cure.
func TestDamage(t *testing.T) {
	r := record(t)
	for name, damage := range map[string]func(contents){
		"segment": func(c contents) { c["partitions/prov.turns-1/0.dat"][70] ^= 1 },
		"groups":  func(c contents) { c[groupsLogFile][12] ^= 1 },
		"pids":    func(c contents) { c[pidsLogFile][12] ^= 1 },
		"journal": func(c contents) { c[journalFile] = []byte("{\"pid\":x}\n") },
	} {
		t.Run(name, func(t *testing.T) {
			state := r.cut(nil, 0, 0)
			damage(state)
			dir := t.TempDir()
			state.write(t, dir)
			b, err := Start(t.Context(), Config{DataDir: dir})
			if err == nil {
				b.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), "load the hooks again") {
				t.Errorf("no cure in %q", err)
			}
		})
	}
}

// TestFormat holds files.go to what kfake writes: reading a folder changes
// nothing in it, and our index entries and markers are kfake's, byte for byte
// but for the times.
func TestFormat(t *testing.T) {
	r := record(t)
	dir := t.TempDir()
	full := r.cut(r.writes, len(r.writes), 0)
	full.write(t, dir)
	rep, err := repair(dir)
	if err != nil {
		t.Fatal(err)
	}
	if *rep != (Repair{}) {
		t.Errorf("a whole folder was repaired: %v", rep)
	}
	for name, data := range readFolder(t, dir) {
		if !bytes.Equal(data, full[name]) {
			t.Errorf("%s was changed", name)
		}
	}
	for _, w := range r.writes {
		switch {
		case strings.HasSuffix(w.file, ".dat"):
			_, b, err := readBatch(w.data)
			if err != nil || b == nil {
				t.Fatalf("%s: the marker is not read: %v", w.file, err)
			}
			var kb kmsg.RecordBatch
			if err := kb.ReadFrom(w.data); err != nil {
				t.Fatal(err)
			}
			if got := markerBatch(transaction{b.pid, b.epoch}, true, b.first, b.leader, kb.FirstTimestamp); !bytes.Equal(got, w.data) {
				t.Errorf("%s: our marker differs from kfake's:\n%x\n%x", w.file, got, w.data)
			}
		case strings.HasSuffix(w.file, ".idx"):
			got := encodeIndex(0, false)
			if !bytes.Equal(append(got[:1], got[2:6]...), append(w.data[:1:1], w.data[2:6]...)) || got[14] != w.data[14] {
				t.Errorf("%s: our index entry differs from kfake's: %x %x", w.file, got, w.data)
			}
		}
	}
}
