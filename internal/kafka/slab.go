package kafka

import (
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Slab gives a task memory for its output without an allocation a record. What
// it gave out for a transaction that has committed it gives out again; of one
// that failed the collector takes care, because the client may still hold it.
// It is not safe for concurrent use.
type Slab struct {
	out     *Out
	now     time.Time // the time of its records: one look at the clock for a batch
	bytes   arena[byte]
	records arena[kgo.Record]
	headers arena[kgo.RecordHeader]
}

const (
	slabBytes   = 512 << 10
	slabRecords = 256
)

// Chunks that wait to be used again, shared by the tasks of a process; what is
// more than that is left to the collector.
var (
	freeBytes   = make(chan []byte, 64)
	freeRecords = make(chan []kgo.Record, 64)
	freeHeaders = make(chan []kgo.RecordHeader, 64)
)

// For readies the slab for the output of a transaction.
func (s *Slab) For(out *Out) {
	s.now = time.Now()
	if s.out == out {
		return
	}
	again := s.out != nil && s.out.settled.Load()
	s.bytes.release(again, freeBytes)
	s.records.release(again, freeRecords)
	s.headers.release(again, freeHeaders)
	s.out = out
}

// Make returns n bytes, to be filled.
func (s *Slab) Make(n int) []byte {
	if n > slabBytes/4 {
		return make([]byte, n)
	}
	return s.bytes.take(n, slabBytes, freeBytes)
}

// Bytes returns a copy of b.
func (s *Slab) Bytes(b []byte) []byte {
	to := s.Make(len(b))
	copy(to, b)
	return to
}

// Text is Bytes of a string.
func (s *Slab) Text(text string) []byte {
	to := s.Make(len(text))
	copy(to, text)
	return to
}

// Record returns a record that has only its time, that of the last For.
func (s *Slab) Record() *kgo.Record {
	r := &s.records.take(1, slabRecords, freeRecords)[0]
	*r = kgo.Record{Timestamp: s.now}
	return r
}

// Headers returns n headers, to be filled.
func (s *Slab) Headers(n int) []kgo.RecordHeader {
	return s.headers.take(n, max(n, slabRecords), freeHeaders)
}

// arena hands out parts of chunks.
type arena[T any] struct {
	rest []T
	used [][]T
}

func (a *arena[T]) take(n, chunk int, free chan []T) []T {
	if n > len(a.rest) {
		a.rest = nil
		select {
		case c := <-free:
			if n <= len(c) {
				a.rest = c
			}
		default:
		}
		if a.rest == nil {
			a.rest = make([]T, chunk)
		}
		a.used = append(a.used, a.rest)
	}
	part := a.rest[:n:n]
	a.rest = a.rest[n:]
	return part
}

func (a *arena[T]) release(again bool, free chan []T) {
	if again {
		for _, c := range a.used {
			select {
			case free <- c:
			default:
			}
		}
	}
	clear(a.used)
	a.used, a.rest = a.used[:0], nil
}
