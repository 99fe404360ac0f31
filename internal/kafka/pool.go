package kafka

import (
	"math/bits"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// fetchPool keeps the memory of fetched batches: what they were decompressed to,
// and their records. It comes back when a task has called Recycle for each record
// of a batch; what does not come back is left to the collector.
type fetchPool struct {
	mu      sync.Mutex
	bytes   [maxPooledBits + 1][][]byte // by the bits of their capacity
	records [][]kgo.Record
}

const (
	minPooledBits, maxPooledBits = 14, 22 // 16 KiB to 4 MiB
	mostPooled                   = 8      // buffers of one size
	mostPooledRecords            = 32     // slices
	mostRecords                  = 8192   // in one of them: 1.4 MB
	mostIdle                     = 64     // a batch of one record, as a marker is, leaves large slices alone
	// snappyGrows is how many times larger a batch of ours is than its snappy form.
	snappyGrows = 6
)

// GetDecompressBytes implements [kgo.PoolDecompressBytes]. A buffer that turns
// out too small is replaced by the client, and the one that it made comes here.
func (p *fetchPool) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	size := bits.Len(uint(snappyGrows * len(compressed)))
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := max(size, minPooledBits); n <= min(size+1, maxPooledBits); n++ {
		if free := p.bytes[n]; len(free) > 0 {
			b := free[len(free)-1]
			p.bytes[n] = free[:len(free)-1]
			return b
		}
	}
	return nil
}

// PutDecompressBytes implements [kgo.PoolDecompressBytes].
func (p *fetchPool) PutDecompressBytes(b []byte) {
	n := bits.Len(uint(cap(b)))
	p.mu.Lock()
	defer p.mu.Unlock()
	if n >= minPooledBits && n <= maxPooledBits && len(p.bytes[n]) < mostPooled {
		p.bytes[n] = append(p.bytes[n], b)
	}
}

// GetRecords implements [kgo.PoolRecords].
func (p *fetchPool) GetRecords(n int) []kgo.Record {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := len(p.records) - 1; k >= 0; k-- {
		if r := p.records[k]; n <= cap(r) && cap(r) <= 4*n+mostIdle {
			p.records = slices.Delete(p.records, k, k+1)
			return r[:0]
		}
	}
	return nil
}

// PutRecords implements [kgo.PoolRecords].
func (p *fetchPool) PutRecords(r []kgo.Record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.records) < mostPooledRecords && cap(r) <= mostRecords {
		p.records = append(p.records, r)
	}
}
