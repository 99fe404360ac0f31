package codec

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"provstream/internal/acs/schema"

	webpki "github.com/gowebpki/jcs"
)

// straight is the composition of libraries that the reader is measured by: the
// record into a tree by encoding/json, envelope and payload validated by
// jsonschema/v5, params and payload canonicalised by gowebpki/jcs, both hashed.
func straight(set *schema.Set, rec *Record) (request, content [32]byte, err error) {
	var tree any
	if err = json.Unmarshal(rec.Value, &tree); err != nil {
		return
	}
	if rec.Topic == DefaultDecisions {
		if err = set.Response.Validate(tree); err != nil {
			return
		}
		var e struct{ Result, Error json.RawMessage }
		if err = json.Unmarshal(rec.Value, &e); err != nil {
			return
		}
		if e.Result == nil {
			e.Result = e.Error
		}
		canonical, err := webpki.Transform(e.Result)
		if err != nil {
			return request, content, err
		}
		request = sha256.Sum256(canonical)
		return request, request, nil
	}
	if err = set.Request.Validate(tree); err != nil {
		return
	}
	var e struct {
		Method string
		Params json.RawMessage
	}
	if err = json.Unmarshal(rec.Value, &e); err != nil {
		return
	}
	var p struct{ Payload json.RawMessage }
	if err = json.Unmarshal(e.Params, &p); err != nil {
		return
	}
	if sch := set.Payload(e.Method); sch != nil {
		if err = sch.Validate(at(tree, "params", "payload")); err != nil {
			return
		}
	}
	params, err := webpki.Transform(e.Params)
	if err != nil {
		return
	}
	payload, err := webpki.Transform(p.Payload)
	if err != nil {
		return
	}
	return sha256.Sum256(params), sha256.Sum256(payload), nil
}

// BenchmarkIngestPath compares, on the envelopes of the fleet (its own corpus
// where that is absent), the straight composition of libraries with the reader:
// from the bytes of a record to the encoded step. One operation is one
// envelope. The last sub-benchmark runs the two in turns, so that whatever else
// the machine does hits both, and reports the median of how many times faster
// the reader is.
func BenchmarkIngestPath(b *testing.B) {
	records := benchRecords(b)
	size := 0
	for i := range records {
		size += len(records[i].Value)
	}
	set, err := schema.ACS()
	if err != nil {
		b.Fatal(err)
	}
	r := newReader(b, Config{})
	ours := func(rec *Record) int {
		result := r.Read(rec, rec.Timestamp, func(_, _ []byte) {})
		if result.DeadLetter != nil {
			b.Fatalf("%+v", *result.DeadLetter)
		}
		return result.Slow
	}
	theirs := func(rec *Record) {
		if _, _, err := straight(set, rec); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("straight", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(size / len(records)))
		i := 0
		for b.Loop() {
			theirs(&records[i])
			i = (i + 1) % len(records)
		}
	})
	b.Run("provstream", func(b *testing.B) {
		b.ReportAllocs()
		b.SetBytes(int64(size / len(records)))
		i, slow := 0, 0
		for b.Loop() {
			slow += ours(&records[i])
			i = (i + 1) % len(records)
		}
		b.ReportMetric(float64(slow)/float64(b.N), "slow/op")
	})
	b.Run("ratio", func(b *testing.B) {
		const turn = 200 // envelopes
		var ratios []float64
		i := 0
		for b.Loop() {
			var took [2]time.Duration
			from := i
			for who := range took {
				i = from
				start := time.Now()
				for range turn {
					if who == 0 {
						theirs(&records[i])
					} else {
						ours(&records[i])
					}
					i = (i + 1) % len(records)
				}
				took[who] = time.Since(start)
			}
			ratios = append(ratios, float64(took[0])/float64(took[1]))
		}
		slices.Sort(ratios)
		b.ReportMetric(ratios[len(ratios)/2], "x-straight")
		b.ReportMetric(0, "ns/op")
	})
}

// benchRecords are the records of the fleet, or where it is absent the fullest
// payload of every hook and some answers.
func benchRecords(b *testing.B) []Record {
	if fleetFile() != "" {
		return fleetRecords(b)
	}
	b.Log("../shared/fleet is not there: measuring on the payloads of testdata")
	var records []Record
	cases := readCases(b)
	for _, h := range cases.Hooks {
		rec := hookRecord(request(h.Method, h.Full))
		records = append(records, *rec)
	}
	for _, e := range cases.Responses {
		records = append(records, *decisionRecord(e.Envelope))
	}
	return records
}
