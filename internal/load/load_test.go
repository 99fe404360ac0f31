package load

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/fleet"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

func sender(t *testing.T, c *kafkatest.Cluster, opts Options) *Sender {
	t.Helper()
	s, err := NewSender(kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix, Extra: c.Opts}, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// A record arrives as the file has it: key, headers, value, timestamp, in the
// partition of its key; one without a key in partition 0.
func TestRecordsArriveAsTheyAre(t *testing.T) {
	c := kafkatest.Any(t, kafkatest.Options{Partitions: 3})
	s := sender(t, c, Options{CreateTopics: true})
	want := []fleet.Record{
		{Topic: "acs.hooks.user-message", Key: []byte("k1"), TimeMs: time.Now().UnixMilli(), Value: []byte(`{"a":1,"a":2}`),
			Headers: []fleet.Header{{Key: "h", Value: []byte("1")}, {Key: "h", Value: []byte{0xff}}}},
		{Topic: "acs.hooks.of-my-own", Key: []byte("k2"), TimeMs: time.Now().UnixMilli() - 1000, Value: nil},
		{Topic: "acs.decisions", Key: nil, TimeMs: time.Now().UnixMilli(), Value: []byte("\xff")},
	}
	for i := range want {
		if err := s.Send(t.Context(), &want[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Flush(t.Context()); err != nil || s.Acked() != 3 {
		t.Fatalf("%d acknowledged: %v", s.Acked(), err)
	}
	cl := c.Client(t, kgo.ConsumeTopics(c.Topic("acs.hooks.user-message"), c.Topic("acs.hooks.of-my-own"), c.Topic("acs.decisions")))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got := map[string]*kgo.Record{}
	for len(got) < len(want) && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { got[strings.TrimPrefix(r.Topic, c.Prefix)] = r })
	}
	for _, w := range want {
		r := got[w.Topic]
		if r == nil {
			t.Errorf("%s: nothing arrived", w.Topic)
			continue
		}
		partition := int32(0)
		if w.Key != nil {
			partition = topics.Partition(w.Key, 3)
		}
		if !bytes.Equal(r.Key, w.Key) || !bytes.Equal(r.Value, w.Value) || r.Value == nil != (w.Value == nil) || r.Partition != partition || len(r.Headers) != len(w.Headers) {
			t.Errorf("%s: %+v", w.Topic, r)
		}
		if r.Timestamp.UnixMilli() != w.TimeMs && c.Fake != nil {
			t.Errorf("%s: timestamp %d, want %d", w.Topic, r.Timestamp.UnixMilli(), w.TimeMs)
		}
	}
}

func TestWhatCannotBeSent(t *testing.T) {
	c := kafkatest.Any(t, kafkatest.Options{})
	for name, tc := range map[string]struct {
		opts Options
		r    fleet.Record
		want string
	}{
		"a topic that is missing": {Options{}, fleet.Record{Topic: "acs.hooks.nobody-made"}, "does not exist"},
		"a topic of the pipeline": {Options{CreateTopics: true}, fleet.Record{Topic: topics.DAGs}, "go to acs.hooks"},
		"a record that is too large": {Options{}, fleet.Record{Topic: "acs.hooks.user-message", Key: []byte("k"), Value: bytes.Repeat([]byte("x"), 5<<20)},
			"raise max.message.bytes"},
	} {
		s := sender(t, c, tc.opts)
		err := s.Send(t.Context(), &tc.r)
		if err == nil {
			err = s.Flush(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewSender(kafka.Flags{Brokers: c.Brokers}, Options{Compression: "tar"}); err == nil {
		t.Error("an unknown compression is accepted")
	}
}

func TestRateIsKept(t *testing.T) {
	c := kafkatest.Any(t, kafkatest.Options{})
	s := sender(t, c, Options{Rate: 200})
	begin := time.Now()
	for range 41 {
		if err := s.Send(t.Context(), &fleet.Record{Topic: "acs.hooks.user-message", Key: []byte("k"), Value: []byte("{}"), TimeMs: begin.UnixMilli()}); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(begin); took < 190*time.Millisecond {
		t.Errorf("41 records at 200/s took %s", took)
	}
}
