package evidence

import (
	"crypto/ed25519"
	"crypto/sha256"
	"testing"

	"provstream/internal/kindgi"
	"provstream/internal/kindgi/kindgitest"
	"provstream/verify"
)

// fleet makes DAGs of about 60 kB, as long sessions of the fleet give.
func fleet(n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = kindgitest.DAG(kindgitest.Options{Seed: uint64(i), Turns: 11, Tools: 2})
	}
	return out
}

func size(values [][]byte) (n int64) {
	for _, v := range values {
		n += int64(len(v))
	}
	return n
}

func BenchmarkRead(b *testing.B) {
	values := fleet(8)
	b.SetBytes(size(values))
	var r kindgi.Reader
	for b.Loop() {
		for _, v := range values {
			if err := r.Read(v); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(values)), "ns/DAG")
}

// signingMessages are the bytes that bare signatures are made over.
func signingMessages(b *testing.B, values [][]byte) [][]byte {
	var r kindgi.Reader
	out := make([][]byte, len(values))
	for i, v := range values {
		if err := r.Read(v); err != nil {
			b.Fatal(err)
		}
		out[i] = r.AppendSigningBytes(nil)
	}
	return out
}

// BenchmarkSign prints what the signer does of a batch (strict parse,
// canonical and graph check, id, key check, signature, leaf, proof, head) as a
// part of bare ed25519.Sign over the same bytes; with-check adds that it
// verifies everything again before it is released, as the service does.
func BenchmarkSign(b *testing.B) {
	values, r := fleet(64), ring(b)
	messages := signingMessages(b, values)
	bare := func(b *testing.B) float64 {
		key := r.Log().Signer
		for b.Loop() {
			for _, m := range messages {
				ed25519.Sign(key, m)
			}
		}
		return float64(b.Elapsed().Nanoseconds()) / float64(b.N*len(values))
	}
	var base float64
	b.Run("bare", func(b *testing.B) { b.SetBytes(size(values)); base = bare(b); b.ReportMetric(base, "ns/DAG") })
	run := func(check bool) func(*testing.B) {
		return func(b *testing.B) {
			b.SetBytes(size(values))
			b.ReportAllocs()
			log, _ := NewLog(origin)
			for b.Loop() {
				batch, err := log.signDAGs(r, values, 1764000000000)
				if err == nil && check {
					err = batch.check(r, log)
				}
				if err != nil {
					b.Fatal(err)
				}
				log = batch.Log
			}
			ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N*len(values))
			b.ReportMetric(ns, "ns/DAG")
			b.ReportMetric(100*base/ns, "%bare")
		}
	}
	b.Run("signer", run(false))
	b.Run("with-check", run(true))
}

// BenchmarkVerify prints what verification of records with their proofs does
// as a part of bare ed25519.Verify and SHA-256 over the same bytes.
func BenchmarkVerify(b *testing.B) {
	values, r := fleet(64), ring(b)
	log, _ := NewLog(origin)
	batch, err := log.SignDAGs(r, values, 1764000000000)
	if err != nil {
		b.Fatal(err)
	}
	messages := signingMessages(b, values)
	var base float64
	b.Run("bare", func(b *testing.B) {
		b.SetBytes(size(values))
		public := r.Log().Public
		signatures := make([][]byte, len(messages))
		for i, m := range messages {
			signatures[i] = ed25519.Sign(r.Log().Signer, m)
		}
		for b.Loop() {
			for i, m := range messages {
				if !ed25519.Verify(public, m, signatures[i]) {
					b.Fatal("signature")
				}
				sha256.Sum256(m)
			}
		}
		base = float64(b.Elapsed().Nanoseconds()) / float64(b.N*len(values))
		b.ReportMetric(base, "ns/DAG")
	})
	pinned, _ := r.Verifier()
	run := func(id bool) func(*testing.B) {
		return func(b *testing.B) {
			b.SetBytes(size(values))
			b.ReportAllocs()
			v := verify.NewVerifier(pinned)
			v.CheckID = id
			for b.Loop() {
				for i := range batch.Records {
					if _, err := v.Record(batch.Records[i].Value, batch.Records[i].Proof); err != nil {
						b.Fatal(err)
					}
				}
			}
			ns := float64(b.Elapsed().Nanoseconds()) / float64(b.N*len(values))
			b.ReportMetric(ns, "ns/DAG")
			b.ReportMetric(100*base/ns, "%bare")
		}
	}
	b.Run("record", run(false))
	b.Run("record-and-id", run(true))
}
