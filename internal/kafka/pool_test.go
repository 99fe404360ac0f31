package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

func TestFetchPool(t *testing.T) {
	var p fetchPool
	if p.GetDecompressBytes(make([]byte, 10_000), 0) != nil || p.GetRecords(10) != nil {
		t.Error("an empty pool gives something")
	}
	small, large := make([]byte, 70_000), make([]byte, 1<<21)
	p.PutDecompressBytes(large)
	if p.GetDecompressBytes(make([]byte, 10_000), 0) != nil {
		t.Error("a small batch takes a large buffer: all of it would be cleared for each")
	}
	p.PutDecompressBytes(small)
	if b := p.GetDecompressBytes(make([]byte, 10_000), 0); cap(b) != cap(small) {
		t.Errorf("a buffer of %d bytes", cap(b))
	}
	if b := p.GetDecompressBytes(make([]byte, 300_000), 0); cap(b) != cap(large) {
		t.Errorf("a buffer of %d bytes", cap(b))
	}
	for range 1000 {
		p.PutDecompressBytes(make([]byte, 1<<16))
		p.PutDecompressBytes(make([]byte, 1<<10))
		p.PutRecords(make([]kgo.Record, 10))
	}
	held := 0
	for _, free := range p.bytes {
		held += len(free)
	}
	if held != mostPooled || len(p.records) != mostPooledRecords {
		t.Errorf("%d buffers and %d slices are held", held, len(p.records))
	}
	if p.GetRecords(11) != nil || len(p.GetRecords(10)) != 0 {
		t.Error("records")
	}
	p.PutDecompressBytes(make([]byte, 64<<20)) // no room for such
}
