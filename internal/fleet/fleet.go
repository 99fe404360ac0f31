// Package fleet reads, writes and multiplies files of envelopes: JSON Lines,
// one Kafka record a line, as `provctl generate` writes them and `provctl
// replay`, `demo` and `bench` read them (gzip is recognised).
//
//	{"topic":"acs.hooks.user-message","key":"5f0c…","time_ms":1764000001999,"value":{"jsonrpc":"2.0",…}}
//	{"topic":"acs.decisions","key":"5f0c…","headers":{"acs-tenant-id":"acme"},"time_ms":1764000002000,"value":{…}}
//	{"topic":"acs.hooks.user-message","key":null,"time_ms":1764000002001,"value":"{\"jsonrpc\":"}
//	{"topic":"acs.hooks.user-message","key":"5f0c…","time_ms":1764000002002,"value_b64":"/w=="}
//
// A value that is a JSON object or array stands as itself and its bytes are
// taken as they stand, so duplicate members and odd spellings survive. A string
// is the text of a record that is no JSON document; value_b64 is a record that
// is no UTF-8 either; null is a record without a value. key and header values
// are strings, key_b64 and headers_b64 hold what is no UTF-8, and a header that
// a record carries several times is an array.
//
// The same reader takes the files of `provctl demo --keep`, which add
// partition, offset and timestamp_ms (for time_ms) and hold every value as a
// string: see [AppendKept].
package fleet

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// Record is one Kafka record of a fleet.
type Record struct {
	Topic   string
	Key     []byte // nil: no key
	Headers []Header
	TimeMs  int64  // the record's Kafka timestamp
	Value   []byte // nil: no value
}

// Header is one record header.
type Header struct {
	Key   string
	Value []byte
}

// line is a line of the file.
type line struct {
	Topic       *string                    `json:"topic"`
	Key         json.RawMessage            `json:"key"`
	KeyB64      []byte                     `json:"key_b64"`
	Headers     map[string]json.RawMessage `json:"headers"`
	HeadersB64  map[string]json.RawMessage `json:"headers_b64"`
	TimeMs      *json.Number               `json:"time_ms"`
	TimestampMs *json.Number               `json:"timestamp_ms"`
	Value       json.RawMessage            `json:"value"`
	ValueB64    []byte                     `json:"value_b64"`
}

// ParseLine reads one line.
func ParseLine(text []byte) (Record, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return Record{}, err
	}
	if l.Topic == nil || *l.Topic == "" {
		return Record{}, errors.New("member topic is missing")
	}
	r := Record{Topic: *l.Topic}
	if l.TimeMs == nil {
		l.TimeMs = l.TimestampMs
	}
	if l.TimeMs == nil {
		return Record{}, errors.New("member time_ms is missing")
	}
	var err error
	if r.TimeMs, err = l.TimeMs.Int64(); err != nil {
		f, err := l.TimeMs.Float64()
		if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return Record{}, fmt.Errorf("member time_ms: %s is no whole number of milliseconds", *l.TimeMs)
		}
		r.TimeMs = int64(f)
	}
	if l.KeyB64 != nil {
		r.Key = l.KeyB64
	} else if r.Key, err = scalar(l.Key); err != nil {
		return Record{}, fmt.Errorf("member key: %w", err)
	}
	if err := r.addHeaders(l.Headers, scalar); err != nil {
		return Record{}, err
	}
	if err := r.addHeaders(l.HeadersB64, base64Text); err != nil {
		return Record{}, err
	}
	slices.SortStableFunc(r.Headers, func(a, b Header) int { return cmpString(a.Key, b.Key) })
	switch {
	case l.ValueB64 != nil:
		r.Value = l.ValueB64
	case len(l.Value) == 0 || bytes.Equal(l.Value, []byte("null")):
	case l.Value[0] == '"':
		var s string
		if err := json.Unmarshal(l.Value, &s); err != nil {
			return Record{}, fmt.Errorf("member value: %w", err)
		}
		r.Value = []byte(s)
	default:
		r.Value = l.Value
	}
	return r, nil
}

func (r *Record) addHeaders(m map[string]json.RawMessage, decode func(json.RawMessage) ([]byte, error)) error {
	for k, raw := range m {
		values := []json.RawMessage{raw}
		if raw[0] == '[' {
			if err := json.Unmarshal(raw, &values); err != nil {
				return fmt.Errorf("header %q: %w", k, err)
			}
		}
		for _, v := range values {
			b, err := decode(v)
			if err != nil {
				return fmt.Errorf("header %q: %w", k, err)
			}
			r.Headers = append(r.Headers, Header{Key: k, Value: b})
		}
	}
	return nil
}

// scalar is the bytes of a key or header: the text of a string, nothing for
// null or no member, and of a number or a literal its JSON text.
func scalar(raw json.RawMessage) ([]byte, error) {
	switch {
	case len(raw) == 0 || raw[0] == 'n':
		return nil, nil
	case raw[0] == '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return []byte(s), err
	case raw[0] == '{' || raw[0] == '[':
		return nil, errors.New("want a string")
	}
	return raw, nil
}

func base64Text(raw json.RawMessage) (b []byte, err error) {
	err = json.Unmarshal(raw, &b)
	return b, err
}

func cmpString(a, b string) int { return bytes.Compare([]byte(a), []byte(b)) }

// Reader reads the records of one file in its order.
type Reader struct {
	in   *bufio.Reader
	line int
}

// NewReader reads JSON Lines, gzipped or not, from r.
func NewReader(r io.Reader) (*Reader, error) {
	in := bufio.NewReaderSize(r, 1<<20)
	magic, err := in.Peek(2)
	if err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("read gzip: %w", err)
		}
		in = bufio.NewReaderSize(z, 1<<20)
	}
	return &Reader{in: in}, nil
}

// Next returns the next record, io.EOF after the last. An error names the line.
func (r *Reader) Next() (Record, error) {
	for {
		text, err := r.in.ReadBytes('\n')
		if len(bytes.TrimSpace(text)) > 0 {
			r.line++
			rec, perr := ParseLine(text)
			if perr != nil {
				return Record{}, fmt.Errorf("line %d: %w", r.line, perr)
			}
			return rec, nil
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				return Record{}, io.EOF
			}
			return Record{}, fmt.Errorf("after line %d: %w", r.line, err)
		}
		r.line++
	}
}

// ReadFile calls f with each record of a file; "-" is stdin.
func ReadFile(name string, stdin io.Reader, f func(Record) error) error {
	in := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	r, err := NewReader(in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := f(rec); err != nil {
			return err
		}
	}
}

// AppendLine appends r as one line, newline included.
func AppendLine(dst []byte, r *Record) []byte {
	dst = append(dst, `{"topic":`...)
	dst = appendString(dst, r.Topic)
	dst = appendText(dst, "key", r.Key)
	dst = appendHeaders(dst, r.Headers)
	dst = fmt.Appendf(dst, `,"time_ms":%d`, r.TimeMs)
	if plainDocument(r.Value) {
		dst = append(append(dst, `,"value":`...), r.Value...)
	} else {
		dst = appendText(dst, "value", r.Value)
	}
	return append(dst, "}\n"...)
}

// AppendKept appends a record as it was found in a topic, one line, newline
// included: topic, partition, offset, timestamp_ms, key, headers as an object,
// value as a string (value_b64 when it is no UTF-8).
func AppendKept(dst []byte, r *Record, partition int32, offset int64) []byte {
	dst = append(dst, `{"topic":`...)
	dst = appendString(dst, r.Topic)
	dst = fmt.Appendf(dst, `,"partition":%d,"offset":%d,"timestamp_ms":%d`, partition, offset, r.TimeMs)
	dst = appendText(dst, "key", r.Key)
	if len(r.Headers) == 0 {
		dst = append(dst, `,"headers":{}`...)
	}
	dst = appendHeaders(dst, r.Headers)
	dst = appendText(dst, "value", r.Value)
	return append(dst, "}\n"...)
}

// plainDocument tells whether a value can stand in a line as itself: an object
// or array on one line that a reader of the line gets through. Depth is bounded
// by what common JSON readers take.
func plainDocument(v []byte) bool {
	return len(v) > 0 && (v[0] == '{' || v[0] == '[') && utf8.Valid(v) && !bytes.ContainsAny(v, "\r\n") &&
		bytes.Count(v, []byte("[")) < 1000 && bytes.Count(v, []byte("{")) < 10000 && json.Valid(v)
}

// appendText appends `,"name":…` for bytes that are text, null or neither.
func appendText(dst []byte, name string, b []byte) []byte {
	switch {
	case b == nil:
		return append(append(append(dst, `,"`...), name...), `":null`...)
	case utf8.Valid(b):
		dst = append(append(append(dst, `,"`...), name...), `":`...)
		return appendString(dst, b)
	default:
		dst = append(append(append(dst, `,"`...), name...), `_b64":`...)
		enc, _ := json.Marshal(b) // of a byte slice it cannot fail
		return append(dst, enc...)
	}
}

func appendString[S ~string | ~[]byte](dst []byte, s S) []byte {
	out, err := jsontext.AppendQuote(dst, s)
	if err != nil { // invalid UTF-8, mangled into U+FFFD: only a topic or header name
		return out
	}
	return out
}

// appendHeaders appends headers (text) and headers_b64 (the rest), names
// sorted, repeated ones as arrays in their order.
func appendHeaders(dst []byte, headers []Header) []byte {
	for _, text := range []bool{true, false} {
		m := map[string][]any{}
		var names []string
		for _, h := range headers {
			if utf8.Valid(h.Value) != text {
				continue
			}
			if m[h.Key] == nil {
				names = append(names, h.Key)
			}
			if text && h.Value == nil {
				m[h.Key] = append(m[h.Key], nil)
			} else if text {
				m[h.Key] = append(m[h.Key], string(h.Value))
			} else {
				m[h.Key] = append(m[h.Key], h.Value)
			}
		}
		if len(names) == 0 {
			continue
		}
		slices.Sort(names)
		open := `,"headers":{`
		if !text {
			open = `,"headers_b64":{`
		}
		for _, k := range names {
			dst = append(dst, open...)
			open = ","
			dst = append(appendString(dst, k), ':')
			var v any = m[k]
			if len(m[k]) == 1 {
				v = m[k][0]
			}
			dst = append(dst, marshal(v)...)
		}
		dst = append(dst, '}')
	}
	return dst
}

// marshal is json.Marshal without HTML escaping, of values that cannot fail.
func marshal(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
