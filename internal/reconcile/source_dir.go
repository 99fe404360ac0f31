package reconcile

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"provstream/internal/codec"
	"provstream/internal/topics"
)

// Dir reads the topics that `provctl demo --keep` left in a folder: a file
// <topic>.jsonl each, partition by partition in offset order. Prefix is the
// deployment's. A topic has as many partitions as prov.steps seems to have.
type Dir struct {
	Path, Prefix string
	// Count of the partitioned topics' partitions; 0: one more than the largest that
	// any file names.
	Count int32

	parts map[dirPartition][]part // where the lines of a partition stand
}

type dirPartition struct {
	topic string
	index int32
}

// part of a file, in bytes.
type part struct{ from, to int64 }

// line is a line of such a file.
type line struct {
	Topic       string                     `json:"topic"`
	Partition   int32                      `json:"partition"`
	Offset      int64                      `json:"offset"`
	TimestampMs int64                      `json:"timestamp_ms"`
	Key         *string                    `json:"key"`
	KeyB64      []byte                     `json:"key_b64"`
	Headers     map[string]json.RawMessage `json:"headers"`
	HeadersB64  map[string]json.RawMessage `json:"headers_b64"`
	Value       *string                    `json:"value"`
	ValueB64    []byte                     `json:"value_b64"`
}

// Partitions implements [Source].
func (d *Dir) Partitions(ctx context.Context) ([]Partition, error) {
	files, err := filepath.Glob(filepath.Join(d.Path, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no <topic>.jsonl in it; want what `provctl demo --keep` writes", d.Path)
	}
	counts := map[string]int32{}
	largest := d.Count
	d.parts = map[dirPartition][]part{}
	for _, f := range files {
		topic := strings.TrimSuffix(filepath.Base(f), ".jsonl")
		base, ours := strings.CutPrefix(topic, d.Prefix)
		if !ours {
			continue
		}
		n := int32(0)
		err := d.lines(ctx, topic, part{0, math.MaxInt64}, func(text []byte, at part) error {
			var l struct {
				Partition int32 `json:"partition"`
			}
			if err := json.Unmarshal(text, &l); err != nil {
				return err
			}
			n = max(n, l.Partition+1)
			list := d.parts[dirPartition{topic, l.Partition}]
			if len(list) > 0 && list[len(list)-1].to == at.from {
				list[len(list)-1].to = at.to
			} else {
				list = append(list, at)
			}
			d.parts[dirPartition{topic, l.Partition}] = list
			return nil
		})
		if err != nil {
			return nil, err
		}
		counts[base] = n
		if slices.ContainsFunc(topics.All(), func(t topics.Topic) bool { return t.Name == base && t.Partitioned }) {
			largest = max(largest, n)
		}
	}
	var out []Partition
	for base, n := range counts {
		if slices.ContainsFunc(topics.All(), func(t topics.Topic) bool { return t.Name == base && t.Partitioned }) {
			n = largest
		}
		for i := range n {
			out = append(out, Partition{Topic: d.Prefix + base, Base: base, Index: i})
		}
	}
	slices.SortFunc(out, func(a, b Partition) int {
		if c := strings.Compare(a.Topic, b.Topic); c != 0 {
			return c
		}
		return int(a.Index - b.Index)
	})
	return out, nil
}

// Read implements [Source].
func (d *Dir) Read(ctx context.Context, p Partition, f func(*Record) error) error {
	last := int64(-1)
	for _, at := range d.parts[dirPartition{p.Topic, p.Index}] {
		err := d.lines(ctx, p.Topic, at, func(text []byte, _ part) error {
			var l line
			if err := json.Unmarshal(text, &l); err != nil {
				return err
			}
			if l.Offset <= last {
				return fmt.Errorf("offset %d comes after %d: the file is not in the order of the partition", l.Offset, last)
			}
			last = l.Offset
			r, err := l.record()
			if err != nil {
				return fmt.Errorf("partition %d, offset %d: %w", l.Partition, l.Offset, err)
			}
			return f(r)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lines calls f with the lines of a part of a topic's file, and where they
// stand.
func (d *Dir) lines(ctx context.Context, topic string, within part, f func(text []byte, at part) error) error {
	name := filepath.Join(d.Path, topic+".jsonl")
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(within.from, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(file, 1<<20)
	for at := within.from; at < within.to; {
		if err := ctx.Err(); err != nil {
			return err
		}
		text, err := in.ReadBytes('\n')
		next := at + int64(len(text))
		if len(bytes.TrimSpace(text)) > 0 {
			if err := f(text, part{at, next}); err != nil {
				return fmt.Errorf("%s, at byte %d: %w", name, at, err)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s, at byte %d: %w", name, at, err)
		}
		at = next
	}
	return nil
}

func (l *line) record() (*Record, error) {
	r := &Record{Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, Timestamp: l.TimestampMs, Key: l.KeyB64, Value: l.ValueB64}
	if l.Key != nil {
		r.Key = []byte(*l.Key)
	}
	if l.Value != nil {
		r.Value = []byte(*l.Value)
	}
	for name, raw := range l.Headers {
		values := []string{""}
		if err := json.Unmarshal(raw, &values[0]); err != nil {
			if err := json.Unmarshal(raw, &values); err != nil {
				return nil, fmt.Errorf("header %q: want a string or an array of strings", name)
			}
		}
		for _, v := range values {
			r.Headers = append(r.Headers, codec.Header{Key: name, Value: []byte(v)})
		}
	}
	for name, raw := range l.HeadersB64 {
		values := [][]byte{nil}
		if err := json.Unmarshal(raw, &values[0]); err != nil {
			if err := json.Unmarshal(raw, &values); err != nil {
				return nil, fmt.Errorf("header %q: want base64 or an array of it", name)
			}
		}
		for _, v := range values {
			r.Headers = append(r.Headers, codec.Header{Key: name, Value: v})
		}
	}
	slices.SortStableFunc(r.Headers, func(a, b codec.Header) int { return strings.Compare(a.Key, b.Key) })
	return r, nil
}
