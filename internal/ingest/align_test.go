package ingest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// A broker hands out as much of a sparse topic as of a dense one. In a backlog
// the sparse one must wait, else what joins the two holds everything between.
func TestABacklogIsReadSideBySide(t *testing.T) {
	kafkatest.Bubble(t, kafkatest.Options{}, func(t *testing.T, c *kafkatest.Cluster) {
		const dense, every, seconds = 6000, 10, 6000
		w := newWorld(t, c)
		cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(32<<10),
			kgo.ProducerBatchCompression(kgo.NoCompression()))
		began := time.Now().Add(-seconds * time.Second)
		tools := w.Topic(topics.Hook(acs.MethodToolCallRequest))
		users := w.Topic(topics.Hook(acs.MethodUserMessage))
		var records []*kgo.Record
		add := func(topic string, i int) {
			value := strings.Replace(userMessage(1, 100_000+len(records), ""), "secret words", strings.Repeat("long words ", 60), 1)
			records = append(records, &kgo.Record{Topic: topic, Value: []byte(value), Timestamp: began.Add(time.Duration(i) * time.Second)})
		}
		for i := range dense {
			add(tools, i)
			if i%every == 0 {
				add(users, i)
			}
		}
		if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		sparse := make(map[string]bool)
		for _, r := range records {
			if r.Topic == users {
				_, id, _ := strings.Cut(string(r.Value), `"request_id":"`)
				sparse[id[:36]] = true
			}
		}
		stop := w.start(t)
		w.caughtUp(t)
		stop()

		var s acs.Step
		var read, ahead [2]int64 // newest time, by topic; largest lead
		n := 0
		for _, r := range w.read(t, topics.Steps) {
			if err := codec.DecodeStep(&s, r.Value); err != nil {
				t.Fatal(err)
			}
			n++
			k := 0
			if sparse[s.StepID] {
				k = 1
			}
			read[k] = max(read[k], s.RecordedAt)
			if read[0] > 0 && read[1] > 0 && n < len(records)*9/10 {
				ahead[k] = max(ahead[k], read[k]-read[1-k])
			}
		}
		if n != len(records) {
			t.Errorf("%d steps, want %d", n, len(records))
		}
		// One fetch of the sparse topic spans some 700 s. Unaligned, it would be at
		// its end when a fifth of the dense one is read.
		if lead := time.Duration(ahead[1]) * time.Millisecond; lead > 1500*time.Second {
			t.Errorf("the sparse topic was %v ahead of the dense one", lead)
		}
	})
}
