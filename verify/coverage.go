package verify

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"

	"provstream/internal/jcs"
)

// Coverage is a record of prov.coverage: what one transaction of ingest has
// read of one hook partition, or (Gap) offsets that it found missing.
type Coverage struct {
	Topic       string
	Partition   int32
	From, To    int64 // offsets From ≤ o < To
	Gap         bool
	Records     int64 // hook records; control records are none
	Steps       int64 // records written to prov.steps, rejected ones among them
	Rejected    int64
	DeadLetters int64
	Dropped     int64    // elements dropped by rule
	ValuesHash  [32]byte // SHA-256 over the SHA-256 of each value, in offset order
}

// Append appends the RFC 8785 text of the record.
func (c *Coverage) Append(dst []byte) []byte {
	num := func(name string, n int64) {
		dst = append(dst, name...)
		dst = strconv.AppendInt(dst, n, 10)
	}
	if c.Gap {
		num(`{"from":`, c.From)
		num(`,"gap":true,"partition":`, int64(c.Partition))
	} else {
		num(`{"dead_letters":`, c.DeadLetters)
		num(`,"dropped":`, c.Dropped)
		num(`,"from":`, c.From)
		num(`,"partition":`, int64(c.Partition))
		num(`,"records":`, c.Records)
		num(`,"rejected":`, c.Rejected)
		num(`,"steps":`, c.Steps)
	}
	num(`,"to":`, c.To)
	dst = append(dst, `,"topic":`...)
	dst = jcs.AppendString(dst, c.Topic)
	if !c.Gap {
		dst = append(dst, `,"values_hash":"`...)
		dst = hex.AppendEncode(dst, c.ValuesHash[:])
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

// ParseCoverage reads a coverage record: its RFC 8785 text and nothing else.
func ParseCoverage(value []byte) (Coverage, error) {
	var in struct {
		DeadLetters int64  `json:"dead_letters"`
		Dropped     int64  `json:"dropped"`
		From        int64  `json:"from"`
		Gap         bool   `json:"gap"`
		Partition   int32  `json:"partition"`
		Records     int64  `json:"records"`
		Rejected    int64  `json:"rejected"`
		Steps       int64  `json:"steps"`
		To          int64  `json:"to"`
		Topic       string `json:"topic"`
		ValuesHash  string `json:"values_hash"`
	}
	bad := func(format string, args ...any) (Coverage, error) {
		return Coverage{}, fail(BadCoverage, fmt.Sprintf("coverage record: "+format, args...))
	}
	if err := json.Unmarshal(value, &in, json.RejectUnknownMembers(true)); err != nil {
		return bad("%v", err)
	}
	c := Coverage{
		Topic: in.Topic, Partition: in.Partition, From: in.From, To: in.To, Gap: in.Gap, Records: in.Records,
		Steps: in.Steps, Rejected: in.Rejected, DeadLetters: in.DeadLetters, Dropped: in.Dropped,
	}
	if !c.Gap {
		if n, err := hex.Decode(c.ValuesHash[:], []byte(in.ValuesHash[:min(len(in.ValuesHash), 64)])); err != nil || n != 32 || len(in.ValuesHash) != 64 {
			return bad("values_hash is not 64 hexadecimal digits")
		}
	}
	if !bytes.Equal(c.Append(nil), value) {
		return bad("a member is missing or misplaced, or it is not the RFC 8785 text of its content")
	}
	switch {
	case c.Topic == "" || c.Partition < 0 || c.From < 0 || c.To <= c.From:
		return bad("%s/%d [%d, %d) is no range of offsets", c.Topic, c.Partition, c.From, c.To)
	case c.Records < 0 || c.Records > c.To-c.From || c.Steps < 0 || c.Rejected < 0 || c.Rejected > c.Steps || c.DeadLetters < 0 || c.DeadLetters > c.Records || c.Dropped < 0:
		return bad("%s/%d [%d, %d): its counts contradict each other", c.Topic, c.Partition, c.From, c.To)
	}
	return c, nil
}

// Ledger adds up coverage records and checks that each hook partition was read
// without a hole and nothing twice. Records of one hook partition must come
// in the order of the log.
type Ledger struct {
	partitions map[ledgerKey]*PartitionCoverage
	order      []*PartitionCoverage
}

type ledgerKey struct {
	topic     string
	partition int32
}

// PartitionCoverage is what is known of one hook partition.
type PartitionCoverage struct {
	Topic                                          string
	Partition                                      int32
	From, To                                       int64 // all that was accounted for
	Ranges                                         int64 // coverage records
	Records, Steps, Rejected, DeadLetters, Dropped int64
	Gaps                                           []OffsetRange // told by ingest: retention or reset
	Missing                                        []OffsetRange // told by nobody
	Repeated                                       []OffsetRange
}

// OffsetRange is From ≤ offset < To.
type OffsetRange struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// NewLedger makes an empty one.
func NewLedger() *Ledger { return &Ledger{partitions: make(map[ledgerKey]*PartitionCoverage)} }

// Add takes the next record. The error, if any, is about that record; the
// ledger goes on.
func (l *Ledger) Add(c Coverage) error {
	k := ledgerKey{c.Topic, c.Partition}
	p := l.partitions[k]
	if p == nil {
		p = &PartitionCoverage{Topic: c.Topic, Partition: c.Partition, From: c.From, To: c.From}
		l.partitions[k] = p
		l.order = append(l.order, p)
	}
	var err error
	switch {
	case c.From > p.To:
		p.Missing = append(p.Missing, OffsetRange{p.To, c.From})
		err = fail(NotCovered, fmt.Sprintf("%s/%d: nothing accounts for offsets %d to %d", c.Topic, c.Partition, p.To, c.From-1))
	case c.From < p.To:
		p.Repeated = append(p.Repeated, OffsetRange{c.From, min(c.To, p.To)})
		err = fail(CoveredTwice, fmt.Sprintf("%s/%d: offsets %d to %d are accounted for twice", c.Topic, c.Partition, c.From, min(c.To, p.To)-1))
	}
	p.To = max(p.To, c.To)
	if c.Gap {
		p.Gaps = append(p.Gaps, OffsetRange{c.From, c.To})
		return err
	}
	p.Ranges++
	p.Records += c.Records
	p.Steps += c.Steps
	p.Rejected += c.Rejected
	p.DeadLetters += c.DeadLetters
	p.Dropped += c.Dropped
	return err
}

// Partitions returns what is known, in the order of first mention.
func (l *Ledger) Partitions() []*PartitionCoverage { return l.order }
