package ingest

import (
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/codec"
	"provstream/internal/topics"
)

// Headers of a dead letter. The first five are those that Kafka Streams 4.2 and
// later writes (KIP-1034), so that its readers' tools work on ours.
const (
	HeaderException = "__streams.errors.exception"
	HeaderMessage   = "__streams.errors.message"
	HeaderTopic     = "__streams.errors.topic"
	HeaderPartition = "__streams.errors.partition"
	HeaderOffset    = "__streams.errors.offset"

	HeaderKind      = "provstream.error.kind"
	HeaderPointer   = "provstream.error.pointer"
	HeaderKeyword   = "provstream.error.keyword"
	HeaderSchema    = "provstream.error.schema"
	HeaderIndex     = "provstream.error.index"
	HeaderTimestamp = "provstream.error.timestamp"
	HeaderAttempts  = "provstream.error.attempts"
	HeaderTruncated = "provstream.error.truncated"
)

// OwnHeader tells whether a header of a dead letter is one that ingest wrote,
// not one of the source record.
func OwnHeader(key string) bool {
	return strings.HasPrefix(key, "__streams.errors.") || strings.HasPrefix(key, "provstream.error.")
}

// deadLetterRoom is what a dead letter may weigh: the limit of the topic less
// room for the batch and our headers, whose values are bounded (the list of a
// batch's failing elements is the only long one, and counts for itself).
const deadLetterRoom = 2<<20 - 16<<10

// deadLetter is the source record with headers that say what was wrong. A value
// that does not fit is left out; then, if need be, the source's headers and its
// key. What was left out is named in .truncated, and .offset still finds it.
func (t *task) deadLetter(src *kgo.Record, d *codec.DeadLetter) *kgo.Record {
	r := t.slab.Record()
	r.Topic = t.deadLetterTopic
	r.Key, r.Value = src.Key, src.Value
	r.Partition = src.Partition % t.partitions
	if len(src.Key) != 0 {
		r.Partition = topics.Partition(src.Key, t.partitions)
	}
	var source []kgo.RecordHeader
	room, size := deadLetterRoom-len(d.Index), 0
	for _, h := range src.Headers {
		if !OwnHeader(h.Key) {
			source = append(source, h)
			size += len(h.Key) + len(h.Value) + 10
		}
	}
	var truncated []string
	if t.s.cfg.DeadLetterReference {
		truncated = []string{"value", "headers", "key"}
		r.Key, r.Value, source = nil, nil, nil
	} else {
		if len(r.Key)+len(r.Value)+size > room {
			truncated = append(truncated, "value")
			r.Value = nil
		}
		if len(r.Key)+size > room {
			truncated = append(truncated, "headers")
			source = nil
		}
		if len(r.Key) > room {
			truncated = append(truncated, "key")
			r.Key = nil
		}
	}
	r.Headers = append(source, kgo.RecordHeader{Key: HeaderException, Value: []byte("provstream." + d.Kind)})
	add := func(key, value string) {
		if value != "" {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: key, Value: []byte(value)})
		}
	}
	add(HeaderMessage, d.Message)
	add(HeaderTopic, src.Topic)
	add(HeaderPartition, strconv.Itoa(int(src.Partition)))
	add(HeaderOffset, strconv.FormatInt(src.Offset, 10))
	add(HeaderKind, d.Kind)
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderPointer, Value: []byte(d.Pointer)})
	add(HeaderKeyword, d.Keyword)
	add(HeaderSchema, d.Schema)
	add(HeaderIndex, d.Index)
	add(HeaderTimestamp, strconv.FormatInt(src.Timestamp.UnixMilli(), 10))
	add(HeaderAttempts, strconv.Itoa(attempts(src)+1))
	add(HeaderTruncated, strings.Join(truncated, ","))
	return r
}

// attempts is how often the source record has been tried before: redrive hands
// on the header of the dead letter.
func attempts(src *kgo.Record) int {
	n := 0
	for _, h := range src.Headers {
		if h.Key == HeaderAttempts {
			if v, err := strconv.Atoi(string(h.Value)); err == nil && v > 0 && v < 1<<20 {
				n = v
			}
		}
	}
	return n
}
