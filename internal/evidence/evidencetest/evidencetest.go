// Package evidencetest makes whole bodies of evidence for tests: a deployment
// with several partitions, signed batch by batch as the signer does, and its
// topics as files in the form of `provctl demo --keep`.
package evidencetest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"provstream/internal/evidence"
	"provstream/internal/keys"
	"provstream/internal/kindgi"
	"provstream/internal/kindgi/kindgitest"
	"provstream/internal/merkle"
	"provstream/internal/topics"
	"provstream/verify"
)

// Line is one record in the form of demo --keep.
type Line struct {
	Topic     string            `json:"topic"`
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Timestamp int64             `json:"timestamp_ms"`
	Key       string            `json:"key"`
	Headers   map[string]string `json:"headers"`
	Value     string            `json:"value"`
}

// Clone returns a deep copy.
func (l Line) Clone() Line {
	h := make(map[string]string, len(l.Headers))
	for k, v := range l.Headers {
		h[k] = v
	}
	l.Headers = h
	return l
}

// Deployment is evidence with the keys that made it.
type Deployment struct {
	Ring        *keys.Ring
	DAGs        []Line // prov.dags, partition by partition
	Checkpoints []Line // prov.checkpoints, likewise
	Coverage    []Line // prov.coverage
}

// Key makes a key whose seed is all one byte.
func Key(t testing.TB, seed byte, use verify.Use, tenant string) *keys.Private {
	t.Helper()
	k, err := keys.FromSeed(bytes.Repeat([]byte{seed}, 32), use, tenant)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Ring is the ring of the test deployments: a log key, a deployment key and a
// key of the tenant "globex".
func Ring(t testing.TB) *keys.Ring {
	t.Helper()
	r, err := keys.NewRing(Key(t, 1, verify.UseLog, ""), Key(t, 2, verify.UseDAG, ""), Key(t, 3, verify.UseDAG, "globex"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Unsigned makes n DAGs of two tenants; the last of each four goes on with the
// run of the one before as its next segment.
func Unsigned(n int, seed uint64) [][]byte {
	var out [][]byte
	for i := range n {
		o := kindgitest.Options{Seed: seed + uint64(i), Turns: 1 + i%2, Tools: i % 3}
		if i%3 == 1 {
			o.Tenant = "globex"
		}
		if i%4 == 3 {
			var r kindgi.Reader
			if err := r.Read(out[i-1]); err != nil {
				panic(err)
			}
			nodes, edges := r.GraphParts()
			o.Tenant, o.Previous = r.Text(r.TenantID), r.Text(r.ID)
			o.PreviousHash = fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "[%s,%s]", nodes, edges)))
			o.First = len(r.Nodes) + 1
		}
		out = append(out, kindgitest.DAG(o))
	}
	return out
}

// New makes a deployment of that many partitions with the batches of each.
func New(t testing.TB, partitions int, batches ...int) *Deployment {
	t.Helper()
	d := &Deployment{Ring: Ring(t)}
	for p := range partitions {
		d.partition(t, int32(p), batches)
	}
	return d
}

func (d *Deployment) partition(t testing.TB, p int32, batches []int) {
	t.Helper()
	d.partitionFrom(t, p, batches, 1000*uint64(p))
}

func (d *Deployment) partitionFrom(t testing.TB, p int32, batches []int, seed uint64) {
	t.Helper()
	origin := merkle.Origin("provstream", topics.DAGs, p)
	log, err := evidence.NewLog(origin)
	if err != nil {
		t.Fatal(err)
	}
	covOrigin := merkle.Origin("provstream", topics.Coverage, p)
	cov, err := evidence.NewLog(covOrigin)
	if err != nil {
		t.Fatal(err)
	}
	offset, cpOffset := int64(0), int64(0)
	checkpoint := func(origin string, c evidence.Checkpoint) {
		h := map[string]string{evidence.HeaderFrontier: string(c.Frontier)}
		if c.Consistency != nil {
			h[evidence.HeaderConsistency] = string(c.Consistency)
		}
		d.Checkpoints = append(d.Checkpoints, Line{topics.Checkpoints, p, cpOffset, 1764000000000, origin, h, string(c.Note)})
		cpOffset += 2
	}
	covered := int64(0)
	for n, size := range batches {
		b, err := log.SignDAGs(d.Ring, Unsigned(size, seed+uint64(100*n)), 1764000000000+int64(n))
		if err != nil {
			t.Fatal(err)
		}
		for i := range b.Records {
			r := &b.Records[i]
			d.DAGs = append(d.DAGs, Line{topics.DAGs, p, offset, 1764000000000, topics.RunKey(r.TenantID, r.RunID), map[string]string{
				"ce_id": r.TenantID + "/" + r.ID, "ce_type": "provstream.dag.v1", "content-type": "application/json", evidence.HeaderProof: string(r.Proof),
				"ce_specversion": "1.0", "ce_time": r.CreatedAt, "ce_source": fmt.Sprintf("kafka://test/%s/%d", topics.DAGs, p),
			}, string(r.Value)})
			offset++
		}
		offset++ // the marker of the transaction
		checkpoint(origin, b.Checkpoint)
		log = b.Log

		c := verify.Coverage{Topic: "acs.hooks.turn-end", Partition: p, From: covered, To: covered + 10, Records: 10, Steps: 9, Rejected: 1, DeadLetters: 1, ValuesHash: [32]byte{1}}
		covered += 10
		value := c.Append(nil)
		cb, err := cov.LogCoverage(d.Ring, [][]byte{value})
		if err != nil {
			t.Fatal(err)
		}
		d.Coverage = append(d.Coverage, Line{topics.Coverage, p, int64(2 * n), 1764000000000, fmt.Sprintf("acs.hooks.turn-end/%d", p), nil, string(value)})
		checkpoint(covOrigin, cb.Checkpoint)
		cov = cb.Log
	}
}

// JSONL writes lines.
func JSONL(lines []Line) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, l := range lines {
		if err := enc.Encode(l); err != nil {
			panic(err)
		}
	}
	return b.Bytes()
}

// Write writes the deployment to a folder: prov.dags.jsonl, prov.checkpoints.jsonl,
// prov.coverage.jsonl and jwks.json.
func (d *Deployment) Write(t testing.TB, dir string) {
	t.Helper()
	for name, data := range map[string][]byte{
		topics.DAGs + ".jsonl": JSONL(d.DAGs), topics.Checkpoints + ".jsonl": JSONL(d.Checkpoints),
		topics.Coverage + ".jsonl": JSONL(d.Coverage), "jwks.json": verify.JWKS(d.Ring.Public()),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
