// Package kafka is the wiring between the pure parts of provstream and a Kafka
// cluster: connection flags, the transactional consume-process-produce loop
// that all three services are, raw reads of a partition between two offsets,
// and the observation of the hook topics that ticks are made from.
//
// # The order of effects
//
// A [Loop] turns a batch of input records into one transaction. What happens,
// in this order, and what a crash right after it means:
//
//  1. Poll. Rebalances are blocked from the first record until step 7. A crash
//     loses memory only; the committed offsets are where they were.
//  2. BeginTransaction. A local act of the client.
//  3. Tasks process the records and produce their outputs into the
//     transaction; readers under read_committed do not see them. A crash
//     leaves an open transaction. The next client of the same transactional id
//     aborts it with its InitProducerID; if none comes, the coordinator does
//     after the transaction timeout (10 s).
//  4. Tasks add what belongs to the end of the batch (state, coverage,
//     checkpoint); the client flushes, and every record has been acknowledged
//     before the commit is decided. A record that cannot be written makes the
//     loop abort and leave: the client itself would commit without it.
//  5. The consumed offsets, with the metadata of the tasks, are added to the
//     transaction. A crash leaves an open transaction, as in 3.
//  6. EndTxn: the transaction coordinator writes its decision. From here on
//     the batch has happened, whole, even if the answer is lost. The markers
//     reach the output partitions and the offsets one by one afterwards: who
//     restores state from a topic reads the offsets as stable and waits for
//     the topic's last stable offset.
//  7. Tasks are told; rebalances may go on.
//
// If step 6 ends in an abort, every task that took part is dropped and opened
// again from what is committed: the same code as at the start of the process.
// After an abort that the client reports without an error, the loop compares the
// offsets that the client goes on from with those that the brokers have: after
// some answers the client takes for aborted what has committed. No error is
// retried at its place. The loop closes its client and a new one comes back
// ([Supervise]); its InitProducerID, before anything else, waits for an undecided
// transaction of the old one and fences it.
//
// A graceful stop commits the open transaction. A service with more to write then
// (the aggregator's snapshots) first writes a record into each of its input
// partitions ([Parts.Last]): so the last transaction commits an offset of each,
// which the group refuses from an instance that has lost the partition unawares.
package kafka
