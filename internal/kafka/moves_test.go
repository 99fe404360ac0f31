package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// The coordinators of group and transactions move, and so do the leaders of all
// partitions, again and again under load.
func TestLoopFollowsMoves(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		cfg := testConfig(c)
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		stop := startRelay(t, cfg, nil)
		const n = 300
		for i := range n {
			produce(t, cl, cfg.Topic(topics.Steps), i, i+1, c.Partitions)
			time.Sleep(20 * time.Millisecond)
			switch i % 40 {
			case 10:
				c.Fake.RehashCoordinators()
			case 30:
				c.Fake.ShufflePartitionLeaders()
			}
		}
		drained(t, cfg, n, c.Partitions)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		checkRelay(t, cfg, n, c.Partitions)
	})
}

// An instance dies in the middle of a transaction and never comes back. Another
// one takes its partitions over when its session has timed out; what it had
// written is aborted by the coordinator, and readers wait for that no longer than
// the transaction timeout.
func TestLoopOutlivesAHangingTransaction(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		cfg := testConfig(c)
		cfg.Instance, cfg.SessionTimeout = "a", 4*time.Second
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
		produce(t, cl, cfg.Topic(topics.Steps), 0, 40, c.Partitions)

		dead, err := kgo.NewGroupTransactSession(append(c.Opts,
			kgo.ConsumerGroup(kafka.DefaultGroup(cfg.Prefix, cfg.Service)), kgo.InstanceID("dead"), kgo.ConsumeTopics(cfg.Topic(topics.Steps)),
			kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()), kgo.Balancers(kgo.CooperativeStickyBalancer()), kgo.SessionTimeout(cfg.SessionTimeout),
			kgo.TransactionalID(kafka.TransactionalID(cfg.Prefix, cfg.Service, "dead")), kgo.TransactionTimeout(10*time.Second),
			kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
		if err != nil {
			t.Fatal(err)
		}
		if err := dead.Begin(); err != nil {
			t.Fatal(err)
		}
		for seen := 0; seen < 20; {
			for _, r := range dead.PollFetches(t.Context()).Records() {
				seen++
				out := &kgo.Record{Topic: cfg.Topic(topics.Turns), Partition: r.Partition, Value: append([]byte("1 "), r.Value...)}
				if err := dead.ProduceSync(t.Context(), out).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
		}
		died := time.Now()
		dead.Close() // neither ends the transaction nor, as a static member, leaves

		stop := startRelay(t, cfg, nil)
		produce(t, cl, cfg.Topic(topics.Steps), 40, 80, c.Partitions)
		drained(t, cfg, 80, c.Partitions)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		checkRelay(t, cfg, 80, c.Partitions) // waits for the last stable offset
		if took := time.Since(died); took < 4*time.Second || took > 25*time.Second {
			t.Errorf("all was there %v after the death", took)
		}
	})
}
