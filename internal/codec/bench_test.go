package codec

import (
	"crypto/sha256"
	"encoding/json"
	"testing"

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
// envelope; the reader reports how many times faster it is.
func BenchmarkIngestPath(b *testing.B) {
	records := benchRecords(b)
	size := 0
	for i := range records {
		size += len(records[i].Value)
	}
	var perStraight float64
	b.Run("straight", func(b *testing.B) {
		set, err := schema.ACS()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		b.SetBytes(int64(size / len(records)))
		i := 0
		for b.Loop() {
			if _, _, err := straight(set, &records[i]); err != nil {
				b.Fatal(err)
			}
			i = (i + 1) % len(records)
		}
		perStraight = float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	})
	b.Run("provstream", func(b *testing.B) {
		r := newReader(b, Config{})
		b.ReportAllocs()
		b.SetBytes(int64(size / len(records)))
		i, slow := 0, 0
		emit := func(_, _ []byte) {}
		for b.Loop() {
			result := r.Read(&records[i], records[i].Timestamp, emit)
			if result.DeadLetter != nil {
				b.Fatalf("%+v", *result.DeadLetter)
			}
			slow += result.Slow
			i = (i + 1) % len(records)
		}
		if per := float64(b.Elapsed().Nanoseconds()) / float64(b.N); perStraight > 0 {
			b.ReportMetric(perStraight/per, "x-straight")
		}
		b.ReportMetric(float64(slow)/float64(b.N), "slow/op")
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
