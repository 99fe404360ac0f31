package audit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"

	"provstream/verify"
)

// HookTopics gives access to the records of hook topics.
type HookTopics interface {
	// Start is the first offset that is still there.
	Start(ctx context.Context, topic string, partition int32) (int64, error)
	// Read hands over the records from one offset up to, not including, another,
	// in order.
	Read(ctx context.Context, topic string, partition int32, from, to int64, fn func(offset int64, value []byte) error) error
}

// ValuesReport is what a comparison of hook topics with coverage has found.
type ValuesReport struct {
	Ranges  int64 `json:"ranges"` // compared, and equal
	Records int64 `json:"records"`
	Gone    int64 `json:"gone"` // ranges of which records are gone: they cannot be compared
}

// Values holds hook topics against the hashes of coverage records: that what
// stands there is, byte for byte, what ingest has read.
type Values struct {
	ranges map[ledgerKey][]verify.Coverage
}

type ledgerKey struct {
	topic     string
	partition int32
}

// NewValues makes an empty comparison.
func NewValues() *Values { return &Values{ranges: map[ledgerKey][]verify.Coverage{}} }

// Add takes a coverage record.
func (v *Values) Add(c verify.Coverage) {
	if !c.Gap {
		k := ledgerKey{c.Topic, c.Partition}
		v.ranges[k] = append(v.ranges[k], c)
	}
}

// Compare reads each hook partition once. The error is a *Finding when records
// are not those that were read.
func (v *Values) Compare(ctx context.Context, hooks HookTopics) (ValuesReport, error) {
	var rep ValuesReport
	var keys []ledgerKey
	for k := range v.ranges {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b ledgerKey) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.partition, b.partition))
	})
	for _, k := range keys {
		if err := v.partition(ctx, k, hooks, &rep); err != nil {
			return rep, err
		}
	}
	return rep, nil
}

func (v *Values) partition(ctx context.Context, k ledgerKey, hooks HookTopics, rep *ValuesReport) error {
	start, err := hooks.Start(ctx, k.topic, k.partition)
	if err != nil {
		return err
	}
	ranges := v.ranges[k]
	slices.SortStableFunc(ranges, func(a, b verify.Coverage) int { return cmp.Compare(a.From, b.From) })
	for len(ranges) > 0 && ranges[0].From < start {
		ranges = ranges[1:]
		rep.Gone++
	}
	if len(ranges) == 0 {
		return nil
	}
	w := &valuesWalk{ranges: ranges, rep: rep, h: sha256.New()}
	if err := hooks.Read(ctx, k.topic, k.partition, ranges[0].From, ranges[len(ranges)-1].To, w.take); err != nil {
		return err
	}
	for len(w.ranges) > 0 {
		if err := w.close(); err != nil {
			return err
		}
	}
	return nil
}

// valuesWalk goes over the records of one partition and the ranges side by
// side.
type valuesWalk struct {
	ranges []verify.Coverage
	rep    *ValuesReport
	h      hash.Hash
	n      int64
}

func (w *valuesWalk) take(offset int64, value []byte) error {
	for len(w.ranges) > 0 && offset >= w.ranges[0].To {
		if err := w.close(); err != nil {
			return err
		}
	}
	if len(w.ranges) == 0 || offset < w.ranges[0].From {
		return nil
	}
	sum := sha256.Sum256(value)
	w.h.Write(sum[:])
	w.n++
	return nil
}

// close ends the first range.
func (w *valuesWalk) close() error {
	c := w.ranges[0]
	w.ranges = w.ranges[1:]
	var got [32]byte
	w.h.Sum(got[:0])
	n := w.n
	w.h.Reset()
	w.n = 0
	if n == c.Records && got == c.ValuesHash {
		w.rep.Ranges++
		w.rep.Records += n
		return nil
	}
	e := &verify.Error{Kind: verify.WrongValues, Offset: -1, Index: -1, Got: hex.EncodeToString(got[:]), Want: hex.EncodeToString(c.ValuesHash[:])}
	e.Detail = fmt.Sprintf("%s/%d: the records at offsets %d to %d are not those that ingest has read: there are %d, it read %d", c.Topic, c.Partition, c.From, c.To-1, n, c.Records)
	return &Finding{Err: e, Topic: c.Topic, Partition: c.Partition, Offset: c.From}
}
