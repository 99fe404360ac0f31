package processes

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/topics"
)

// Outcome is what stands committed on the output topics, read without any of the
// services' code. Two outcomes of the same hook records must be Equal.
type Outcome struct {
	// DAGs are the signed DAGs without createdAt and signature, by id.
	DAGs map[string]string
	// Turns and Sessions are the last summaries by run key and turn, without
	// what tells how they came to be: revision and times of emission.
	Turns, Sessions map[string]string
	DeadLetters     int

	Nodes    int            // of all DAGs together
	ClosedBy map[string]int // turns by closing reason
	Anomaly  map[string]int // of the last session summaries
	Runs     int            // distinct runs with a DAG
	Repeated []string       // what stands twice: DAG ids, turn revisions
}

// ReadOutcome reads a deployment's output topics.
func ReadOutcome(ctx context.Context, opts []kgo.Opt, prefix string) (*Outcome, error) {
	o := &Outcome{
		DAGs: make(map[string]string), Turns: make(map[string]string), Sessions: make(map[string]string),
		ClosedBy: make(map[string]int), Anomaly: make(map[string]int),
	}
	runs := make(map[string]bool)
	err := ReadTopic(ctx, opts, prefix+topics.DAGs, func(r *kgo.Record) error {
		return o.dag(r, runs)
	})
	if err != nil {
		return nil, err
	}
	o.Runs = len(runs)
	seen := make(map[string]bool)
	once := func(r *kgo.Record) {
		id := header(r, "ce_id")
		if id != "" && seen[id] {
			o.Repeated = append(o.Repeated, r.Topic+" "+id)
		}
		seen[id] = true
	}
	err = ReadTopic(ctx, opts, prefix+topics.Turns, func(r *kgo.Record) error {
		once(r)
		m, err := object(r)
		if err != nil {
			return err
		}
		return keep(o.Turns, fmt.Sprintf("%s#%v", r.Key, m["turn_id"]), m, "revision")
	})
	if err != nil {
		return nil, err
	}
	err = ReadTopic(ctx, opts, prefix+topics.Sessions, func(r *kgo.Record) error {
		once(r)
		m, err := object(r)
		if err != nil {
			return err
		}
		return keep(o.Sessions, string(r.Key), m, "revision")
	})
	if err != nil {
		return nil, err
	}
	letters := make(map[string]bool)
	err = ReadTopic(ctx, opts, prefix+topics.DeadLetter, func(r *kgo.Record) error {
		source := header(r, "__streams.errors.topic") + "/" + header(r, "__streams.errors.partition") + "@" + header(r, "__streams.errors.offset")
		if letters[source] {
			o.Repeated = append(o.Repeated, "dead letter of "+source)
		}
		letters[source] = true
		o.DeadLetters++
		return nil
	})
	if err != nil {
		return nil, err
	}
	return o, o.count()
}

// dag takes one signed DAG.
func (o *Outcome) dag(r *kgo.Record, runs map[string]bool) error {
	m, err := object(r)
	if err != nil {
		return err
	}
	id, _ := m["id"].(string)
	if _, ok := o.DAGs[id]; ok {
		o.Repeated = append(o.Repeated, "DAG "+id)
	}
	if _, ok := m["signature"]; !ok {
		return fmt.Errorf("%s/%d@%d: no signature", r.Topic, r.Partition, r.Offset)
	}
	nodes, _ := m["nodes"].([]any)
	o.Nodes += len(nodes)
	runs[fmt.Sprintf("%v/%v", m["tenantId"], m["runId"])] = true
	return keep(o.DAGs, id, m, "createdAt", "signature")
}

// count fills what is counted over the last summaries.
func (o *Outcome) count() error {
	for _, text := range o.Turns {
		var t struct {
			ClosedBy string `json:"closed_by"`
		}
		if err := json.Unmarshal([]byte(text), &t); err != nil {
			return err
		}
		o.ClosedBy[t.ClosedBy]++
	}
	for _, text := range o.Sessions {
		var s struct {
			Counts map[string]int `json:"anomaly_counts"`
		}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			return err
		}
		for code, n := range s.Counts {
			o.Anomaly[code] += n
		}
	}
	return nil
}

func header(r *kgo.Record, key string) string {
	for _, h := range r.Headers {
		if h.Key == key {
			return string(h.Value)
		}
	}
	return ""
}

func object(r *kgo.Record) (map[string]any, error) {
	var m map[string]any
	d := json.NewDecoder(strings.NewReader(string(r.Value)))
	d.UseNumber()
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("%s/%d@%d: %w", r.Topic, r.Partition, r.Offset, err)
	}
	return m, nil
}

// keep stores the object without some members.
func keep(into map[string]string, key string, m map[string]any, without ...string) error {
	for _, name := range without {
		delete(m, name)
	}
	text, err := json.Marshal(m) // members sorted
	into[key] = string(text)
	return err
}

// Equal returns the first differences between two outcomes, nil if there are none.
func (o *Outcome) Equal(other *Outcome) error {
	var diffs []string
	compare := func(what string, a, b map[string]string) {
		keys := slices.Sorted(maps.Keys(a))
		for k := range b {
			if _, ok := a[k]; !ok {
				keys = append(keys, k)
			}
		}
		for _, k := range keys {
			if a[k] != b[k] && len(diffs) < 5 {
				diffs = append(diffs, fmt.Sprintf("%s %s:\n%s\n%s", what, k, clip(a[k]), clip(b[k])))
			}
		}
	}
	compare("DAG", o.DAGs, other.DAGs)
	compare("turn", o.Turns, other.Turns)
	compare("session", o.Sessions, other.Sessions)
	if o.DeadLetters != other.DeadLetters {
		diffs = append(diffs, fmt.Sprintf("dead letters: %d, %d", o.DeadLetters, other.DeadLetters))
	}
	if diffs == nil {
		return nil
	}
	return fmt.Errorf("outcomes differ:\n%s", strings.Join(diffs, "\n"))
}

func clip(s string) string {
	if s == "" {
		return "(absent)"
	}
	return s[:min(len(s), 600)]
}

// ReadTopic calls f with every committed record of a topic, partition by
// partition, up to the last stable offset at the time of the call. A topic that
// does not exist is an error.
func ReadTopic(ctx context.Context, opts []kgo.Opt, topic string, f func(*kgo.Record) error) error {
	return readTopic(ctx, opts, topic, nil, f)
}

// readTopic begins at the given offsets, and where none is given at the start.
func readTopic(ctx context.Context, opts []kgo.Opt, topic string, from map[int32]int64, f func(*kgo.Record) error) error {
	cl, err := kgo.NewClient(append(slices.Clone(opts), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{}))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	starts, err := adm.ListStartOffsets(ctx, topic)
	if err != nil {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	ends, err := adm.ListCommittedOffsets(ctx, topic)
	if err != nil {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	if err := ends.Error(); err != nil {
		return fmt.Errorf("read %s: %w", topic, err)
	}
	for _, p := range slices.Sorted(maps.Keys(ends[topic])) {
		start, _ := starts.Lookup(topic, p)
		if err := readPartition(ctx, cl, topic, p, max(start.Offset, from[p]), ends[topic][p].Offset, f); err != nil {
			return err
		}
	}
	return nil
}

func readPartition(ctx context.Context, cl *kgo.Client, topic string, p int32, start, end int64, f func(*kgo.Record) error) error {
	if start >= end {
		return nil
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {p: kgo.NewOffset().At(start)}})
	defer cl.RemoveConsumePartitions(map[string][]int32{topic: {p}})
	for next := start; next < end; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return fmt.Errorf("read %s/%d: %w", topic, p, err)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			if r.Topic != topic || r.Partition != p || r.Offset >= end {
				continue
			}
			next = r.Offset + 1
			if r.Attrs.IsControl() {
				continue
			}
			if err := f(r); err != nil {
				return err
			}
		}
	}
	return nil
}
