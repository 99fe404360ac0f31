// Package verify checks what provstream signs: DAGs, the log that they stand
// in, and what was read to make them. It works on bytes, needs no Kafka and
// no network, and trusts nothing but the public keys that it is given.
//
// The evidence, from the record outwards:
//
//   - A record of prov.dags is a Kindgi Provenance DAG 1.0.0 in RFC 8785 form,
//     signed with Ed25519 by the tenant's DAG key. [Verifier.DAG] checks one:
//     strict JSON, canonical bytes, version, schema, key and its binding to
//     the tenant, signature, and the graph.
//   - Its header tlog-proof holds its place in the log of its partition and
//     the proof of it (C2SP tlog-proof). [Verifier.Record] checks both: one
//     record and two pinned keys verify offline.
//   - A record of prov.checkpoints is a signed head of such a log (C2SP
//     tlog-checkpoint). [Keys.Checkpoint] opens one, [Consistency] proves that a
//     later head continues an earlier one.
//   - A whole partition is checked by a [Log], which hashes leaf by leaf and
//     compares with every head; so nothing can be dropped, inserted or moved.
//   - A record of prov.coverage says which offsets of the hook topics were
//     read and what became of them; a [Ledger] checks that nothing is missing.
//
// Whoever keeps the last checkpoint that they have seen, and proves the next
// one against it, notices every rewriting of history, even by the holder of
// the log key.
//
// Every error is an *[Error] that says which rule is broken ([Kind]), where,
// and by which key or hash. A [Verifier] is for one goroutine; [Keys] may be
// shared.
package verify
