package bench

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/fleet"
	"provstream/internal/generate"
	"provstream/internal/kafkatest"
	"provstream/internal/window"
)

// material is one fleet on its way through the pipeline.
type material struct {
	records []codec.Record
	parts   [][]byte // params and payload of each
	steps   [][]byte // values of prov.steps
	dags    [][]byte // values of prov.runs
	other   [][]byte // values of prov.turns and prov.sessions
}

func makeMaterial(b *testing.B) (m material) {
	b.Helper()
	each := func(r *fleet.Record) error {
		rec := codec.Record{Topic: r.Topic, Offset: int64(len(m.records)), Timestamp: r.TimeMs, Key: r.Key, Value: bytes.Clone(r.Value)}
		m.records = append(m.records, rec)
		return nil
	}
	var err error
	if name, ok := kafkatest.FindShared(b, "fleet/airline.jsonl.gz"); ok {
		err = fleet.ReadFile(name, nil, func(r fleet.Record) error { return each(&r) })
	} else {
		var g *generate.Generator
		if g, err = generate.New(generate.Config{Seed: 1, Sessions: 60}); err == nil {
			for r := range g.All() {
				_ = each(&r)
			}
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	reader, err := codec.NewReader(codec.Config{})
	if err != nil {
		b.Fatal(err)
	}
	p := window.NewPartition(window.DefaultConfig())
	emit := func(e window.Emission) {
		if e.Kind == window.Run {
			m.dags = append(m.dags, bytes.Clone(e.Value))
		} else {
			m.other = append(m.other, bytes.Clone(e.Value))
		}
	}
	last := int64(0)
	for i := range m.records {
		rec := &m.records[i]
		var e struct {
			Params        json.RawMessage
			Result, Error json.RawMessage
		}
		var inner struct{ Payload json.RawMessage }
		if json.Unmarshal(rec.Value, &e) == nil {
			_ = json.Unmarshal(e.Params, &inner)
			for _, part := range [][]byte{e.Params, inner.Payload, e.Result, e.Error} {
				if part != nil {
					m.parts = append(m.parts, part)
				}
			}
		}
		if rec.Timestamp >= last+1000 {
			last = rec.Timestamp
			p.Tick(int64(2*i), last, emit)
		}
		reader.Read(rec, rec.Timestamp, func(_, value []byte) {
			m.steps = append(m.steps, bytes.Clone(value))
			var s acs.Step
			if err := codec.DecodeStep(&s, value); err != nil {
				b.Fatal(err)
			}
			p.Apply(int64(2*i+1), &s, emit)
		})
	}
	p.Tick(int64(2*len(m.records)), last+100_000, emit)
	if len(m.dags) == 0 {
		b.Fatal("no run was sealed")
	}
	return m
}

// BenchmarkFloor is what the parts of the work cost alone on this machine, in
// CPU time an envelope: the libraries' own code on the bytes of a fleet, and
// nothing of ours around it. What the pipeline takes beside it is what could
// still be saved.
func BenchmarkFloor(b *testing.B) {
	m := makeMaterial(b)
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	snappy, err := kgo.DefaultCompressor(kgo.SnappyCompression())
	if err != nil {
		b.Fatal(err)
	}
	// Batches as a transaction of 100 ms makes them.
	batches := func(values [][]byte) (out [][]byte) {
		for len(values) > 0 {
			n := min(1000, len(values))
			out = append(out, bytes.Join(values[:n], nil))
			values = values[n:]
		}
		return out
	}
	var dst bytes.Buffer
	compress := func(list [][]byte, each func(packed []byte)) {
		for _, v := range list {
			dst.Reset()
			packed, _ := snappy.Compress(&dst, v)
			each(packed)
		}
	}
	steps, dags := batches(m.steps), batches(m.dags)
	var packedSteps, packedDAGs [][]byte
	compress(steps, func(p []byte) { packedSteps = append(packedSteps, bytes.Clone(p)) })
	compress(dags, func(p []byte) { packedDAGs = append(packedDAGs, bytes.Clone(p)) })
	drop := func([]byte) {}
	unpack := func(list [][]byte) {
		d := kgo.DefaultDecompressor()
		for _, v := range list {
			if _, err := d.Decompress(v, kgo.CodecSnappy); err != nil {
				b.Fatal(err)
			}
		}
	}
	hash := func(list [][]byte) {
		for _, v := range list {
			sha256.Sum256(v)
		}
	}
	for _, part := range []struct {
		name string
		run  func()
	}{
		{"ingest/sha256-of-value-params-payload", func() {
			for i := range m.records {
				sha256.Sum256(m.records[i].Value)
			}
			hash(m.parts)
		}},
		{"ingest/json-syntax-and-duplicate-names", func() {
			for i := range m.records {
				if !jsontext.Value(m.records[i].Value).IsValid() {
					b.Fatal("not valid")
				}
			}
		}},
		{"ingest/snappy-of-steps", func() { compress(steps, drop) }},
		{"aggregator/unsnappy-of-steps", func() { unpack(packedSteps) }},
		{"aggregator/sha256-of-dag", func() { hash(m.dags) }},
		{"aggregator/snappy-of-dag", func() { compress(dags, drop) }},
		{"signer/unsnappy-of-dag", func() { unpack(packedDAGs) }},
		{"signer/ed25519-sign", func() {
			for _, v := range m.dags {
				ed25519.Sign(key, v)
			}
		}},
		{"signer/sha256-of-id-and-leaf", func() { hash(m.dags); hash(m.dags) }},
		{"signer/snappy-of-dag", func() { compress(dags, drop) }},
	} {
		b.Run(part.name, func(b *testing.B) {
			began := ownUsage().CPU
			n := 0
			for b.Loop() {
				part.run()
				n++
			}
			spent := ownUsage().CPU - began
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(spent)/float64(time.Microsecond)/float64(n*len(m.records)), "µs/envelope")
		})
	}
}
