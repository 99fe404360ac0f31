package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// hookWorld plays agents and ingest: records appear, offsets are committed.
type hookWorld struct {
	t     *testing.T
	c     *kafkatest.Cluster
	cl    *kgo.Client
	clock kafka.HookClock
	group string
}

func newHookWorld(t *testing.T, c *kafkatest.Cluster) *hookWorld {
	cluster, err := kafka.Open(t.Context(), testConfig(c).Flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	w := &hookWorld{t: t, c: c, cl: c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner())), group: kafka.DefaultGroup(c.Prefix, "ingest")}
	w.clock = kafka.HookClock{Cluster: cluster, IngestGroup: w.group, Tolerance: time.Second}
	return w
}

func (w *hookWorld) send(topic string, n int) {
	w.t.Helper()
	for range n {
		if err := w.cl.ProduceSync(w.t.Context(), &kgo.Record{Topic: topic, Value: []byte("{}")}).FirstErr(); err != nil {
			w.t.Fatal(err)
		}
	}
}

// commit is what ingest does: an offset, and the largest recorded_at below it.
func (w *hookWorld) commit(topic string, at int64, metadata string) {
	w.t.Helper()
	var o kadm.Offsets
	o.Add(kadm.Offset{Topic: topic, Partition: 0, At: at, LeaderEpoch: -1, Metadata: metadata})
	if err := w.clock.Cluster.Admin.CommitAllOffsets(w.t.Context(), w.group, o); err != nil {
		w.t.Fatal(err)
	}
}

func (w *hookWorld) observe() kafka.Observation {
	w.t.Helper()
	o, err := w.clock.Observe(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// nowIs tells whether the observed time is that of the wall clock, less the
// tolerance.
func (w *hookWorld) nowIs(what string) {
	w.t.Helper()
	now := time.Now().Add(-time.Second).UnixMilli()
	o := w.observe()
	if !o.OK || o.T < now || o.T > now+500 || o.Holder != nil || o.Behind != 0 {
		w.t.Errorf("%s: %+v (holder %+v), want the time now, %d", what, o, o.Holder, now)
	}
}

func TestTheClockGoesAsFarAsIngestHasRead(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newHookWorld(t, c)
		start, end, decisions := c.Topic(topics.Hook(acs.MethodTurnStart)), c.Topic(topics.Hook(acs.MethodTurnEnd)), c.Topic(topics.Decisions)

		w.nowIs("all hook topics are empty")

		w.send(start, 3)
		if o := w.observe(); o.OK || !o.Holder.Blocked || o.Holder.Topic != start {
			t.Errorf("ingest never read %s: %+v", start, o)
		}

		w.commit(start, 3, kafka.RecordedAtMetadata(1000))
		w.nowIs("ingest has read all, the others are empty")

		w.send(start, 1)
		if o := w.observe(); !o.OK || o.T != 1000 || o.Holder.Topic != start || o.Behind != 1 {
			t.Errorf("ingest is one record behind: %+v", o)
		}

		// Another topic is an hour ahead: the one that lags decides.
		w.send(end, 2)
		w.commit(end, 1, kafka.RecordedAtMetadata(1000+3_600_000))
		if o := w.observe(); !o.OK || o.T != 1000 || o.Holder.Topic != start || o.Behind != 2 {
			t.Errorf("one topic lags an hour: %+v", o)
		}
		w.commit(start, 4, kafka.RecordedAtMetadata(2000))
		if o := w.observe(); !o.OK || o.T != 1000+3_600_000 || o.Holder.Topic != end {
			t.Errorf("the other lags now: %+v", o)
		}
		w.commit(end, 2, kafka.RecordedAtMetadata(1000+3_600_001))
		w.nowIs("all is read")

		// A record stamped in the future does not push the clock.
		w.send(start, 1)
		w.commit(start, 4, kafka.RecordedAtMetadata(time.Now().UnixMilli()+3_600_000))
		if o := w.observe(); !o.OK || o.T > time.Now().UnixMilli()-1000 {
			t.Errorf("a time to come: %+v", o)
		}
		w.commit(start, 5, kafka.RecordedAtMetadata(3000))

		// Decisions count like hooks.
		w.send(decisions, 1)
		if o := w.observe(); o.OK || o.Holder.Topic != decisions {
			t.Errorf("decisions are unread: %+v", o)
		}
		w.commit(decisions, 1, kafka.RecordedAtMetadata(3000))

		// A new topic holds the clock from its first record on, known to
		// ingest or not; a deleted one does no longer.
		fresh := c.Topic("acs.hooks.fresh")
		if err := c.Fake.CreateTopic(fresh, 1, nil); err != nil {
			t.Fatal(err)
		}
		w.nowIs("a new topic is empty")
		w.send(fresh, 1)
		if o := w.observe(); o.OK || o.Holder.Topic != fresh {
			t.Errorf("a new topic is unread: %+v", o)
		}
		if err := c.Fake.DeleteTopic(fresh); err != nil {
			t.Fatal(err)
		}
		w.nowIs("the new topic is deleted")

		// Everything in it expired: nothing there is unread.
		w.send(c.Topic(topics.Hook(acs.MethodSessionEnd)), 2)
		if err := c.Fake.DeleteRecords(c.Topic(topics.Hook(acs.MethodSessionEnd)), 0, 2); err != nil {
			t.Fatal(err)
		}
		w.nowIs("all records of a topic expired before ingest came")
	})
}

// An open transaction of an agent holds the last stable offset, not the clock:
// its records are not visible yet.
func TestTheClockDoesNotWaitForOpenTransactions(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		w := newHookWorld(t, c)
		hook := c.Topic(topics.Hook(acs.MethodTurnStart))
		w.send(hook, 1)
		w.commit(hook, 1, kafka.RecordedAtMetadata(1000))
		agent := c.Client(t, kgo.TransactionalID("agent"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		if err := agent.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := agent.ProduceSync(t.Context(), &kgo.Record{Topic: hook, Value: []byte("{}")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		w.nowIs("a transaction is open")
		if err := agent.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		if o := w.observe(); !o.OK || o.T != 1000 || o.Behind != 1 {
			t.Errorf("the transaction has committed: %+v", o)
		}
	})
}
