package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/evidence"
	"provstream/internal/evidence/evidencetest"
	"provstream/internal/kafkatest"
	"provstream/internal/keys"
	"provstream/internal/topics"
	"provstream/verify"
)

// loopback is a broker with the topics of the table on a loopback address.
func loopback(t *testing.T, partitions string) (flag []string, client *kgo.Client) {
	t.Helper()
	c := kafkatest.Loopback(t, kafkatest.Options{NoTopics: true})
	brokers := c.Brokers
	flag = []string{"--brokers", strings.Join(brokers, ",")}
	want(t, 0, "created prov.dags", append([]string{"topics", "create", "--partitions", partitions, "--replication", "1"}, flag...)...)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return flag, client
}

// produce writes kept lines to their topics and partitions.
func produce(t *testing.T, client *kgo.Client, lines []evidencetest.Line) {
	t.Helper()
	for _, l := range lines {
		r := &kgo.Record{Topic: l.Topic, Partition: l.Partition, Key: []byte(l.Key), Value: []byte(l.Value)}
		for k, v := range l.Headers {
			r.Headers = append(r.Headers, kgo.RecordHeader{Key: k, Value: []byte(v)})
		}
		if err := client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// Evidence on a cluster is verified, covered and exported like that in files.
func TestEvidenceOnACluster(t *testing.T) {
	flag, client := loopback(t, "2")
	d := evidencetest.New(t, 2, 5, 1, 4)
	produce(t, client, slices.Concat(d.DAGs, d.Checkpoints, d.Coverage))
	dir := t.TempDir()
	d.Write(t, dir)
	jwks, seen := filepath.Join(dir, "jwks.json"), filepath.Join(t.TempDir(), "seen")
	on := func(args ...string) []string { return append(args, flag...) }
	want(t, 0, "20 signed DAGs hold", on("verify", "--topic", "--jwks", jwks)...)
	want(t, 0, "12 checkpoints hold", on("verify", "--topic", "--jwks", jwks, "--since", seen)...)
	want(t, 0, "continues the head of size 10", on("verify", "--topic", "--jwks", jwks, "--since", seen)...)
	want(t, 0, "the signed log covers all 6 coverage records", on("coverage", "--jwks", jwks)...)
	want(t, 2, "does not exist on this cluster", on("verify", "--topic", "--jwks", jwks, "--prefix", "other.")...)
	want(t, 0, "export key  made", "keys", "new", "--use", "export", "--dir", dir)
	run := strings.TrimPrefix(d.DAGs[2].Key, "acme-air/")
	want(t, 0, `"kind":"provenance"`, on("export", run, "--jwks", jwks, "--export-key", filepath.Join(dir, "export.pem"))...)

	// One record more that does not belong there.
	produce(t, client, []evidencetest.Line{d.DAGs[0]})
	want(t, 1, "place: ", on("verify", "--topic", "--jwks", jwks, "--proof")...)
}

// The whole life of a key, with the sizes of the logs taken from the cluster.
func TestKeysOnACluster(t *testing.T) {
	flag, client := loopback(t, "1")
	dir := filepath.Join(t.TempDir(), "keys")
	on := func(args ...string) []string { return append(append(args, "--dir", dir), flag...) }
	want(t, 0, "log key  made", "keys", "new", "--dir", dir)
	want(t, 0, "published", on("keys", "publish")...)
	want(t, 0, "prov.keys has them all", on("keys", "publish")...)
	log, err := evidence.NewLog("provstream/prov.dags/0")
	if err != nil {
		t.Fatal(err)
	}
	sign := func(n int, seed uint64) {
		t.Helper()
		r, err := keys.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		b, err := log.SignDAGs(r, evidencetest.Unsigned(n, seed), 1)
		if err != nil {
			t.Fatal(err)
		}
		log = b.Log
		for _, rec := range b.Records {
			produce(t, client, []evidencetest.Line{{Topic: topics.DAGs, Key: topics.RunKey(rec.TenantID, rec.RunID), Value: string(rec.Value), Headers: map[string]string{evidence.HeaderProof: string(rec.Proof)}}})
		}
		h := map[string]string{evidence.HeaderFrontier: string(b.Checkpoint.Frontier)}
		if b.Checkpoint.Consistency != nil {
			h[evidence.HeaderConsistency] = string(b.Checkpoint.Consistency)
		}
		produce(t, client, []evidencetest.Line{{Topic: topics.Checkpoints, Key: log.Origin(), Value: string(b.Checkpoint.Note), Headers: h}})
	}
	published := func() map[string]keyDoc {
		t.Helper()
		var list struct{ Keys []keyDoc }
		if err := json.Unmarshal([]byte(want(t, 0, "", append([]string{"--json", "keys", "list", "--topic"}, flag...)...)), &list); err != nil {
			t.Fatal(err)
		}
		out := map[string]keyDoc{}
		for _, k := range list.Keys {
			out[k.KID] = k
		}
		return out
	}
	var first []string // DAG key and log key
	for id := range published() {
		first = append(first, id)
	}
	sign(5, 0)
	for _, use := range []string{"dag", "log"} {
		want(t, 0, "replaced ", on("keys", "new", "--use", use, "--rotate", "--publish")...)
	}
	for id, k := range published() {
		if bound := k.From["provstream/prov.dags/0"]; !slices.Contains(first, id) && bound != 5 {
			t.Errorf("new key %s is valid from %d", id, bound)
		}
	}
	sign(4, 100)
	for _, id := range first {
		want(t, 0, "retired", on("keys", "retire", id)...)
	}
	sign(3, 200)
	for _, id := range first {
		if k := published()[id]; k.Status != verify.StatusRetired || k.To["provstream/prov.dags/0"] != 9 {
			t.Errorf("retired key: %+v", k)
		}
	}
	jwks := filepath.Join(t.TempDir(), "jwks.json")
	writeFile(t, jwks, want(t, 0, "", "keys", "jwks", "--dir", dir))
	want(t, 0, "12 signed DAGs hold", append([]string{"verify", "--topic", "--log", "--jwks", jwks}, flag...)...)
	// The DAG key leaked before index 3: what it signed from there on is nothing.
	for _, id := range first {
		if published()[id].Use == verify.UseDAG {
			want(t, 0, "compromised", on("keys", "compromise", id, "--at", "provstream/prov.dags/0=3")...)
		}
	}
	writeFile(t, jwks, want(t, 0, "", "keys", "jwks", "--dir", dir))
	want(t, 1, "prov.dags/0@3: key_compromised: ", append([]string{"verify", "--topic", "--proof", "--jwks", jwks}, flag...)...)
	// Publishing from the directory does not take anything back.
	want(t, 0, "prov.keys has them all", on("keys", "publish")...)
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
