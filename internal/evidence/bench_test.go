package evidence

import (
	"crypto/ed25519"
	"crypto/sha256"
	"syscall"
	"testing"
	"time"

	"provstream/internal/kindgi"
	"provstream/internal/kindgi/kindgitest"
	"provstream/verify"
)

// fleet makes DAGs of about 60 kB, as long sessions of the fleet give.
func fleet(n int) [][]byte {
	out := make([][]byte, n)
	for i := range out {
		out[i] = kindgitest.DAG(kindgitest.Options{Seed: uint64(i), Turns: 7, Tools: 2})
	}
	return out
}

func size(values [][]byte) (n int64) {
	for _, v := range values {
		n += int64(len(v))
	}
	return n
}

// BenchmarkRead is the strict parse with all checks of form and graph.
func BenchmarkRead(b *testing.B) {
	values := fleet(8)
	var r kindgi.Reader
	start := cpuTime()
	for b.Loop() {
		for _, v := range values {
			if err := r.Read(v); err != nil {
				b.Fatal(err)
			}
		}
	}
	spent := float64((cpuTime() - start).Nanoseconds())
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(spent/float64(b.N*len(values)), "cpu-ns/DAG")
	b.ReportMetric(1e3*float64(size(values))*float64(b.N)/spent, "MB/s")
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

// cpuTime is the CPU time of the process so far, the garbage collector's too:
// what else the machine does is not in it.
func cpuTime() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// compare runs ours and bare over the same values by turns and reports the CPU
// time of each and bare's part of ours: 50 % is half the throughput.
func compare(b *testing.B, values [][]byte, bare, ours func()) {
	var tb, to time.Duration
	b.ReportAllocs()
	for b.Loop() {
		t0 := cpuTime()
		bare()
		t1 := cpuTime()
		ours()
		tb += t1 - t0
		to += cpuTime() - t1
	}
	n := float64(b.N * len(values))
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(tb.Nanoseconds())/n, "bare-ns/DAG")
	b.ReportMetric(float64(to.Nanoseconds())/n, "ours-ns/DAG")
	b.ReportMetric(100*float64(tb)/float64(to), "%bare")
	b.ReportMetric(float64(size(values))/float64(len(values)), "B/DAG")
}

// BenchmarkSign holds what the signer does of a batch (strict parse, canonical
// and graph check, id, key check, signature, leaf, proof, head) against bare
// ed25519.Sign over the same bytes. with-check adds that it verifies
// the head and two records of the batch before it is released, as the service
// does.
func BenchmarkSign(b *testing.B) {
	values, r := fleet(64), ring(b)
	messages := signingMessages(b, values)
	bare := func() {
		for _, m := range messages {
			ed25519.Sign(r.Log().Signer, m)
		}
	}
	for _, check := range []bool{false, true} {
		name := map[bool]string{false: "signer", true: "with-check"}[check]
		b.Run(name, func(b *testing.B) {
			log, _ := NewLog(origin)
			compare(b, values, bare, func() {
				batch, err := log.signDAGs(r, values, 1764000000000)
				if err == nil && check {
					err = batch.check(r, log)
				}
				if err != nil {
					b.Fatal(err)
				}
				log = batch.Log
			})
		})
	}
}

// BenchmarkVerify holds verification of records with their proofs against
// bare ed25519.Verify and SHA-256 over the same bytes.
func BenchmarkVerify(b *testing.B) {
	values, r := fleet(64), ring(b)
	log, _ := NewLog(origin)
	batch, err := log.SignDAGs(r, values, 1764000000000)
	if err != nil {
		b.Fatal(err)
	}
	messages := signingMessages(b, values)
	signatures := make([][]byte, len(messages))
	for i, m := range messages {
		signatures[i] = ed25519.Sign(r.Log().Signer, m)
	}
	bare := func() {
		for i, m := range messages {
			if !ed25519.Verify(r.Log().Public, m, signatures[i]) {
				b.Fatal("signature")
			}
			sha256.Sum256(m)
		}
	}
	pinned, _ := r.Verifier()
	for _, id := range []bool{false, true} {
		name := map[bool]string{false: "record", true: "record-and-id"}[id]
		b.Run(name, func(b *testing.B) {
			v := verify.NewVerifier(pinned)
			v.CheckID = id
			compare(b, values, bare, func() {
				for i := range batch.Records {
					if _, err := v.Record(batch.Records[i].Value, batch.Records[i].Proof); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}
