package verify_test

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"

	"provstream/verify"
)

func read(name string) []byte {
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		log.Fatal(err)
	}
	return b
}

// pinned reads the keys to trust: in real life from a file that came by a
// trusted way, not from where the evidence comes from.
func pinned() *verify.Keys {
	keys, err := verify.ParseJWKS(read("jwks.json"))
	if err != nil {
		log.Fatal(err)
	}
	set, err := verify.NewKeys(keys...)
	if err != nil {
		log.Fatal(err)
	}
	return set
}

// One record of prov.dags and the pinned keys: nothing else is needed.
func ExampleVerifier_Record() {
	value := bytes.TrimSuffix(read("dag.json"), []byte("\n")) // the record's value
	proof := read("dag.tlog-proof")                           // its header tlog-proof

	v := verify.NewVerifier(pinned())
	r, err := v.Record(value, proof)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("run %s of %s: %d nodes, %d edges\n", r.RunID, r.TenantID, r.Nodes, r.Edges)
	fmt.Printf("leaf %d of %s\n", r.Proof.Index, r.Proof.Checkpoint.Origin)
	// Output:
	// run 44444444-4444-4444-8444-444444444444 of acme: 3 nodes, 3 edges
	// leaf 0 of provstream/prov.dags/0
}

// A changed record: the error says which rule is broken, and by which key.
func ExampleVerifier_DAG() {
	value := bytes.TrimSuffix(read("dag.json"), []byte("\n"))
	value = bytes.Replace(value, []byte(`"user:7"`), []byte(`"user:8"`), 1)

	_, err := verify.NewVerifier(pinned()).DAG(value)
	var e *verify.Error
	if errors.As(err, &e) {
		fmt.Println(e.Kind, e.Path)
		fmt.Println(e.KeyID)
	}
	// Output:
	// signature /signature/value
	// kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k
}

// Two heads of a log: the later one continues the earlier one. Whoever keeps
// the earlier one notices when history is rewritten.
func ExampleConsistency() {
	keys := pinned()
	earlier, err := keys.Checkpoint(read("checkpoint-1.txt"))
	if err != nil {
		log.Fatal(err)
	}
	later, err := keys.Checkpoint(read("checkpoint-3.txt"))
	if err != nil {
		log.Fatal(err)
	}
	proof, err := verify.ParseHashes(bytes.TrimSpace(read("consistency-1-3.txt"))) // header tlog-consistency
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(verify.Consistency(earlier, later, proof))

	later.Root[0] ^= 1
	fmt.Println(verify.KindOf(verify.Consistency(earlier, later, proof)))
	// Output:
	// <nil>
	// consistency
}

// A whole partition, leaf by leaf: what is there is the log, and nothing but
// the log.
func ExampleLog() {
	value := bytes.TrimSuffix(read("dag.json"), []byte("\n"))
	v := verify.NewVerifier(pinned())
	l := verify.NewLog("provstream/prov.dags/0")
	for range 2 { // the second time it does not belong there
		r, err := v.Record(value, read("dag.tlog-proof"))
		if err != nil {
			log.Fatal(err)
		}
		if err := l.Record(r); err != nil {
			fmt.Println(verify.KindOf(err), "at", l.Size())
			continue
		}
		fmt.Println("size", l.Size())
	}
	fmt.Println(l.Close())
	// Output:
	// size 1
	// place at 1
	// <nil>
}

// What was read of a hook partition, and what was not.
func ExampleLedger() {
	ledger := verify.NewLedger()
	for _, value := range []string{
		`{"dead_letters":1,"dropped":0,"from":0,"partition":0,"records":10,"rejected":1,"steps":10,"to":10,"topic":"acs.hooks.turn-end","values_hash":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`,
		`{"from":10,"gap":true,"partition":0,"to":15,"topic":"acs.hooks.turn-end"}`,
		`{"dead_letters":0,"dropped":2,"from":20,"partition":0,"records":5,"rejected":0,"steps":3,"to":25,"topic":"acs.hooks.turn-end","values_hash":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`,
	} {
		c, err := verify.ParseCoverage([]byte(value))
		if err != nil {
			log.Fatal(err)
		}
		if err := ledger.Add(c); err != nil {
			fmt.Println(err)
		}
	}
	for _, p := range ledger.Partitions() {
		fmt.Printf("%s/%d: %d records to offset %d, gaps %v, missing %v\n", p.Topic, p.Partition, p.Records, p.To, p.Gaps, p.Missing)
	}
	// Output:
	// not_covered: acs.hooks.turn-end/0: nothing accounts for offsets 15 to 19
	// acs.hooks.turn-end/0: 15 records to offset 25, gaps [{10 15}], missing [{15 20}]
}
