package audit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Record is one Kafka record, or one line of a file that holds values alone.
type Record struct {
	// Placed tells that Topic, Partition and Offset are known.
	Placed    bool
	Topic     string
	Partition int32
	Offset    int64
	Keyed     bool
	Key       []byte
	Value     []byte
	Headers   map[string][]byte // the last of each name
	Line      int64             // of a file, from 1; 0 elsewhere
}

// Where names the record for people.
func (r *Record) Where() string {
	var b strings.Builder
	if r.Placed {
		fmt.Fprintf(&b, "%s/%d@%d", r.Topic, r.Partition, r.Offset)
	}
	if r.Line > 0 {
		if b.Len() > 0 {
			fmt.Fprintf(&b, " (line %d)", r.Line)
		} else {
			fmt.Fprintf(&b, "line %d", r.Line)
		}
	}
	return b.String()
}

// Item is a record, or the line that it will be parsed from.
type Item struct {
	Line   int64
	Text   []byte  // of a file
	Record *Record // of a topic
}

// Source hands over items in order until there are no more or emit fails.
// What it has handed over it does not touch again.
type Source func(ctx context.Context, emit func(Item) error) error

// maxLine bounds a line: the largest record, escaped, and what is around it.
const maxLine = 64 << 20

// Lines reads JSONL: each line a value as it is, or a record in the form of
// `provctl demo --keep` (members topic, partition, offset, key, headers, value or
// value_b64) or of `kcat -J`.
// Compressed input (gzip) is recognised.
func Lines(r io.Reader) Source {
	return func(ctx context.Context, emit func(Item) error) error {
		br := bufio.NewReaderSize(r, 1<<20)
		if magic, err := br.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
			z, err := gzip.NewReader(br)
			if err != nil {
				return fmt.Errorf("read: %w", err)
			}
			br = bufio.NewReaderSize(z, 1<<20)
		}
		for n := int64(1); ; n++ {
			line, err := readLine(br)
			if len(line) > 0 {
				if err := emit(Item{Line: n, Text: line}); err != nil {
					return err
				}
			}
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return fmt.Errorf("read line %d: %w", n, err)
			case ctx.Err() != nil:
				return ctx.Err()
			}
		}
	}
}

// readLine returns the next line without its end, in storage of its own. The
// last line may lack the end.
func readLine(br *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return nil, fmt.Errorf("longer than %d bytes: this is no JSONL of records", maxLine)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimRight(line, "\r\n"), err
	}
}

// kept is a record in the form of demo --keep, or of kcat -J, which has payload
// for value and its headers in a list.
type kept struct {
	Topic     *string        `json:"topic"`
	Partition int32          `json:"partition"`
	Offset    int64          `json:"offset"`
	Key       *string        `json:"key"`
	Headers   jsontext.Value `json:"headers"`
	Value     jsontext.Value `json:"value"` // a string, or null
	ValueB64  *string        `json:"value_b64"`
	Payload   jsontext.Value `json:"payload"`
}

// record parses the item's line. A line that has no topic and value is a value
// itself, whatever is wrong with it.
func (i *Item) record() *Record {
	if i.Record != nil {
		return i.Record
	}
	bare := &Record{Value: i.Text, Line: i.Line}
	if bytes.HasPrefix(i.Text, []byte(`{"createdAt"`)) {
		return bare
	}
	if r, ok := keptLine(i.Text); ok {
		r.Line = i.Line
		return r
	}
	var k kept
	if err := json.Unmarshal(i.Text, &k); err != nil || k.Topic == nil {
		return bare
	}
	if len(k.Value) == 0 {
		k.Value = k.Payload
	}
	if len(k.Value) == 0 && k.ValueB64 == nil {
		return bare
	}
	r := &Record{Placed: true, Topic: *k.Topic, Partition: k.Partition, Offset: k.Offset, Line: i.Line, Headers: headers(k.Headers)}
	if k.Key != nil {
		r.Keyed, r.Key = true, []byte(*k.Key)
	}
	switch k.Value.Kind() {
	case 'n':
		return r // a record without a value
	case '"':
		var err error
		if r.Value, err = jsontext.AppendUnquote(nil, k.Value); err != nil {
			return bare
		}
		return r
	}
	if k.ValueB64 == nil {
		return bare
	}
	value, err := base64.StdEncoding.DecodeString(*k.ValueB64)
	if err != nil {
		return bare
	}
	r.Value = value
	return r
}

// headers reads {"name": "value"} or ["name", "value", …].
func headers(text jsontext.Value) map[string][]byte {
	out := map[string][]byte{}
	var list []*string
	var object map[string]jsontext.Value
	switch {
	case text.Kind() == '[' && json.Unmarshal(text, &list) == nil:
		for i := 0; i+1 < len(list); i += 2 {
			if list[i] != nil && list[i+1] != nil {
				out[*list[i]] = []byte(*list[i+1])
			}
		}
	case text.Kind() == '{' && json.Unmarshal(text, &object) == nil:
		for name, v := range object {
			var s string
			if json.Unmarshal(v, &s) == nil {
				out[name] = []byte(s)
			}
		}
	}
	return out
}

// Each hands over every record of a source, parsed, in order.
func Each(ctx context.Context, source Source, f func(*Record) error) error {
	return source(ctx, func(i Item) error { return f(i.record()) })
}
