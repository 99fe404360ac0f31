package embedded

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// This file reads and writes kfake's files, as of the version in go.mod:
//
//   - pids.log and groups.log are frames: length (4 bytes, little-endian, of
//     version and data), CRC-32C of the same (4), version (2), data (JSON).
//   - partitions/<topic>-<p>/<first offset>.dat is Kafka record batches, one
//     after the other; <first offset>.idx has 15 bytes for each: version 1, the
//     low byte of the CRC-32C of the rest, leader epoch (4, little-endian), a
//     timestamp that is computed anew (8), 1 if the batch is in a transaction.
//
// TestFormat holds it to what the kfake of go.mod really writes.

const (
	frameHeader  = 10
	fileVersion  = 1
	indexEntry   = 15
	batchHeader  = 61
	batchPrefix  = 12 // first offset and length, which the length does not count
	maxBatchSize = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frames yields the data of each whole frame and the frame's size.
func frames(raw []byte) iter.Seq2[[]byte, int] {
	return func(yield func([]byte, int) bool) {
		for len(raw) >= frameHeader {
			n := int(binary.LittleEndian.Uint32(raw))
			if n < 2 || n > len(raw)-8 || crc32.Checksum(raw[8:8+n], castagnoli) != binary.LittleEndian.Uint32(raw[4:]) {
				return
			}
			if !yield(raw[frameHeader:8+n], 8+n) {
				return
			}
			raw = raw[8+n:]
		}
	}
}

// cutLog removes an incomplete frame from the end of a log. kfake ignores it
// when it loads, but appends behind it, and the next load would stop there.
func cutLog(path string) (torn int, err error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	good := 0
	for _, size := range frames(raw) {
		good += size
	}
	rest := raw[good:]
	if len(rest) == 0 {
		return 0, nil
	}
	if len(rest) >= frameHeader {
		if n := binary.LittleEndian.Uint32(rest); n >= 2 && int(n) <= len(rest)-8 {
			return 0, fmt.Errorf("%s is damaged at byte %d", filepath.Base(path), good)
		}
	}
	return 1, os.Truncate(path, int64(good))
}

// appendFrames appends entries to a log in one write.
func appendFrames[T any](path string, entries ...T) error {
	var buf []byte
	for _, e := range entries {
		data, err := json.Marshal(e)
		if err != nil {
			return err
		}
		frame := make([]byte, frameHeader, frameHeader+len(data))
		frame = append(frame, data...)
		binary.LittleEndian.PutUint32(frame, uint32(len(frame)-8))
		binary.LittleEndian.PutUint16(frame[8:], fileVersion)
		binary.LittleEndian.PutUint32(frame[4:], crc32.Checksum(frame[8:], castagnoli))
		buf = append(buf, frame...)
	}
	return appendTo(path, buf)
}

func appendTo(path string, data []byte) error {
	if len(data) == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// partitionLog is a partition's files.
type partitionLog struct {
	dir    string
	base   string // of the last segment, without .dat
	next   int64  // the offset of the next batch
	leader int32  // leader epoch of the last batch
	torn   int
	open   map[transaction]int64 // first offset
}

// openPartition reads the files, cuts off what is incomplete at the end and adds
// index entries that are missing. A partition without files is empty.
func openPartition(dir string) (*partitionLog, error) {
	p := &partitionLog{dir: dir, open: make(map[transaction]int64)}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	var bases []int64
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".dat")
		if !ok {
			continue
		}
		if base, err := strconv.ParseInt(name, 10, 64); err == nil {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	for i, base := range bases {
		p.base = filepath.Join(dir, strconv.FormatInt(base, 10))
		if err := p.segment(i == len(bases)-1); err != nil {
			return nil, fmt.Errorf("%s: segment %d: %w", topicOf(dir), base, err)
		}
	}
	return p, nil
}

// segment reads one segment.
func (p *partitionLog) segment(last bool) error {
	raw, err := os.ReadFile(p.base + ".dat")
	if err != nil {
		return err
	}
	index, err := os.ReadFile(p.base + ".idx")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var missing []byte
	pos, n := 0, 0
	for ; pos < len(raw); n++ {
		size, b, err := readBatch(raw[pos:])
		if err != nil {
			return fmt.Errorf("damaged at byte %d: %w", pos, err)
		}
		if b == nil { // incomplete
			break
		}
		pos += size
		inTx := b.attributes&0x30 == 0x10
		p.note(b)
		if (n+1)*indexEntry > len(index) {
			missing = append(missing, encodeIndex(b.leader, inTx)...)
		}
	}
	if pos < len(raw) {
		if !last {
			return fmt.Errorf("ends within a batch, and another segment follows")
		}
		p.torn++
		if err := os.Truncate(p.base+".dat", int64(pos)); err != nil {
			return err
		}
	}
	whole := min(len(index)/indexEntry, n) * indexEntry
	if whole < len(index) { // an incomplete entry, or one without its batch
		p.torn++
		if err := os.Truncate(p.base+".idx", int64(whole)); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		p.torn++
	}
	return appendTo(p.base+".idx", missing)
}

// note follows the transactions.
func (p *partitionLog) note(b *batch) {
	p.next, p.leader = b.first+int64(b.lastDelta)+1, b.leader
	tx := transaction{b.pid, b.epoch}
	switch b.attributes & 0x30 {
	case 0x10:
		if _, ok := p.open[tx]; !ok {
			p.open[tx] = b.first
		}
	case 0x30:
		// A marker ends whatever its producer has open, and carries a newer
		// epoch when a successor or the coordinator wrote it.
		for t := range p.open {
			if t.pid == b.pid {
				delete(p.open, t)
			}
		}
	}
}

// openTransactions are those without a marker, oldest first.
func (p *partitionLog) openTransactions() []transaction {
	out := make([]transaction, 0, len(p.open))
	for tx := range p.open {
		out = append(out, tx)
	}
	slices.SortFunc(out, func(a, b transaction) int { return int(p.open[a] - p.open[b]) })
	return out
}

// appendMarker ends a transaction in this partition.
func (p *partitionLog) appendMarker(tx transaction, commit bool) error {
	raw := markerBatch(tx, commit, p.next, p.leader, time.Now().UnixMilli())
	if err := appendTo(p.base+".dat", raw); err != nil {
		return err
	}
	p.next++
	delete(p.open, tx)
	return appendTo(p.base+".idx", encodeIndex(p.leader, false))
}

// batch is what the repair needs of a record batch.
type batch struct {
	first      int64
	leader     int32
	attributes int16
	lastDelta  int32
	pid        int64
	epoch      int16
}

// readBatch reads the batch at the front of raw. A nil batch is one whose bytes
// are not all there.
func readBatch(raw []byte) (size int, b *batch, err error) {
	if len(raw) < batchPrefix {
		return 0, nil, nil
	}
	be := binary.BigEndian
	n := int(be.Uint32(raw[8:]))
	if n < batchHeader-batchPrefix || n > maxBatchSize {
		return 0, nil, fmt.Errorf("a batch cannot have %d bytes", n)
	}
	size = batchPrefix + n
	if len(raw) < size {
		return 0, nil, nil
	}
	if crc32.Checksum(raw[21:size], castagnoli) != be.Uint32(raw[17:]) {
		return 0, nil, errors.New("a batch does not have its checksum")
	}
	return size, &batch{
		first: int64(be.Uint64(raw)), leader: int32(be.Uint32(raw[12:])), attributes: int16(be.Uint16(raw[21:])),
		lastDelta: int32(be.Uint32(raw[23:])), pid: int64(be.Uint64(raw[43:])), epoch: int16(be.Uint16(raw[51:])),
	}, nil
}

func encodeIndex(leader int32, inTx bool) []byte {
	buf := make([]byte, indexEntry)
	buf[0] = fileVersion
	binary.LittleEndian.PutUint32(buf[2:], uint32(leader))
	if inTx {
		buf[14] = 1
	}
	buf[1] = byte(crc32.Checksum(buf[2:], castagnoli))
	return buf
}

// markerBatch is the control batch that ends a transaction, as a coordinator
// writes it.
func markerBatch(tx transaction, commit bool, offset int64, leader int32, now int64) []byte {
	key := kmsg.ControlRecordKey{Type: kmsg.ControlRecordKeyTypeAbort}
	if commit {
		key.Type = kmsg.ControlRecordKeyTypeCommit
	}
	rec := kmsg.Record{Key: key.AppendTo(nil), Value: (&kmsg.EndTxnMarker{}).AppendTo(nil)}
	rec.Length = int32(len(rec.AppendTo(nil)) - 1) // a length below 64 takes one byte
	b := kmsg.RecordBatch{
		FirstOffset: offset, PartitionLeaderEpoch: leader, Magic: 2, Attributes: 0x30,
		FirstTimestamp: now, MaxTimestamp: now, ProducerID: tx.pid, ProducerEpoch: tx.epoch,
		FirstSequence: -1, NumRecords: 1, Records: rec.AppendTo(nil),
	}
	b.Length = int32(len(b.AppendTo(nil)) - batchPrefix)
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
	return raw
}
