package integration

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// A partition's first commit is in a transaction that is still open: who takes
// the partition over must wait for it. Asked for all partitions of the group, Apache
// Kafka does not tell of such a one.
// kfake says that such a group does not exist.
func TestAFirstCommitIsWaitedFor(t *testing.T) {
	c := kafkatest.Real(t, kafkatest.Options{})
	ctx := t.Context()
	group, topic, txn := c.Prefix+"first-commit", c.Topic(topics.Steps), c.Prefix+"first-commit"
	cl := c.Client(t, kgo.TransactionalID(txn), kgo.TransactionTimeout(30*time.Second))
	id, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		t.Fatal(err)
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = txn, id, epoch, group
	if resp, err := add.RequestWith(ctx, cl); err != nil || resp.ErrorCode != 0 {
		t.Fatal(err, kerr.ErrorForCode(resp.ErrorCode))
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.Group, commit.ProducerID, commit.ProducerEpoch, commit.Generation = txn, group, id, epoch, -1
	known, err := kadm.NewClient(cl).ListTopics(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = topic, known[topic].ID
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch = 1, 5, -1
	rt.Partitions = append(rt.Partitions, rp)
	commit.Topics = append(commit.Topics, rt)
	if resp, err := commit.RequestWith(ctx, cl); err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatal(err, resp)
	}

	cluster, err := kafka.Open(ctx, kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix, Extra: c.Opts})
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	of := map[string][]int32{topic: {0, 1}}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if got, err := cluster.CommittedOf(short, group, of); err == nil {
		t.Fatalf("%v while the transaction is open", got)
	}
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = txn, id, epoch, true
	if resp, err := end.RequestWith(ctx, cl); err != nil || resp.ErrorCode != 0 {
		t.Fatal(err, kerr.ErrorForCode(resp.ErrorCode))
	}
	got, err := cluster.CommittedOf(ctx, group, of)
	if err != nil {
		t.Fatal(err)
	}
	if o, ok := got.Lookup(topic, 1); !ok || o.At != 5 {
		t.Errorf("offset %d of a partition with 5 committed", o.At)
	}
	if o, ok := got.Lookup(topic, 0); !ok || o.At != -1 {
		t.Errorf("offset %d of a partition without a commit", o.At)
	}
}
