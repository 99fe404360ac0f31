package kafkatest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// TestVirtual holds that a whole exactly-once hop runs under virtual time, an
// idle hour included.
func TestVirtual(t *testing.T) {
	start := time.Now()
	synctest.Test(t, func(t *testing.T) {
		c := Virtual(t, Options{Partitions: 2})
		produce(t, c, "prov.runs", 20)
		time.Sleep(time.Hour)
		if got := hop(t, c, "prov.runs", "prov.dags", 20); len(got) != 20 {
			t.Errorf("the hop wrote %d records, want 20", len(got))
		}
	})
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("an idle hour took %v of real time", d)
	}
}

// TestAny runs the same hop on loopback, or on the real broker.
func TestAny(t *testing.T) {
	c := Any(t, Options{Partitions: 2})
	produce(t, c, "prov.runs", 200)
	if got := hop(t, c, "prov.runs", "prov.dags", 200); len(got) != 200 {
		t.Errorf("the hop wrote %d records, want 200", len(got))
	}
}

func produce(t *testing.T, c *Cluster, topic string, n int) {
	t.Helper()
	cl := c.Client(t, kgo.DefaultProduceTopic(c.Topic(topic)))
	defer cl.Close()
	for i := range n {
		cl.Produce(t.Context(), kgo.KeyStringRecord(fmt.Sprint(i), fmt.Sprintf("%04d", i)), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce: %v", err)
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// hop copies n records in transactions, aborting every third, and returns what a
// committed reader sees.
func hop(t *testing.T, c *Cluster, from, to string, n int) []string {
	t.Helper()
	group := c.Prefix + "hop"
	opts := append([]kgo.Opt{
		kgo.TransactionalID(c.Prefix + "hop-0"), kgo.ConsumerGroup(group), kgo.ConsumeTopics(c.Topic(from)),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.BlockRebalanceOnPoll(),
		kgo.DefaultProduceTopic(c.Topic(to)), kgo.FetchMaxWait(100 * time.Millisecond),
	}, c.Opts...)
	s, err := kgo.NewGroupTransactSession(opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for done, turn := 0, 0; done < n; turn++ {
		fetches := s.PollRecords(ctx, 17)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := s.Begin(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			s.Produce(ctx, kgo.KeySliceRecord(r.Key, r.Value), nil)
		})
		commit := kgo.TransactionEndTry(turn%3 != 2)
		ended, err := s.End(ctx, commit)
		if err != nil {
			t.Fatal(err)
		}
		if ended {
			done += fetches.NumRecords()
		}
		s.AllowRebalance()
	}
	reader := c.Client(t, kgo.ConsumeTopics(c.Topic(to)), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	defer reader.Close()
	var got []string
	for len(got) < n {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	slices.Sort(got)
	if d := len(got) - len(slices.Compact(slices.Clone(got))); d != 0 {
		t.Errorf("%d records were written twice", d)
	}
	offsets, err := kadm.NewClient(c.Client(t)).FetchOffsets(ctx, group)
	if err != nil {
		t.Fatal(err)
	}
	var committed int64
	offsets.Each(func(o kadm.OffsetResponse) { committed += o.At })
	if committed != int64(n) {
		t.Errorf("the group's offsets add up to %d, want %d", committed, n)
	}
	return got
}
