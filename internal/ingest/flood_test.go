package ingest_test

import (
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
)

// Ten thousand bad records between ten thousand good ones are ten thousand dead
// letters: each is looked at once, the good ones flow, and nothing is held.
func TestAFloodOfBadRecords(t *testing.T) {
	const pairs = 10_000
	c := kafkatest.Loopback(t, kafkatest.Options{})
	w := newWorld(t, c)
	w.cfg.Registerer = prometheus.NewRegistry()
	hook := w.Topic(topics.Hook(acs.MethodUserMessage))
	cl := c.Client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	bad := []string{"no json", `{"a":1,"a":2}`, `[]`, `{"jsonrpc":"2.0"}`, `"\ud800"`, `1e400`}
	var records []*kgo.Record
	for i := range pairs {
		records = append(records,
			&kgo.Record{Topic: hook, Partition: 0, Value: []byte(bad[i%len(bad)])},
			&kgo.Record{Topic: hook, Partition: 0, Value: []byte(userMessage(i%50, i, ""))})
	}
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	records = nil
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	stop := w.start(t)
	w.caughtUp(t)
	runtime.GC()
	runtime.ReadMemStats(&after)
	stop()

	if n := len(w.read(t, topics.Steps)); n != pairs {
		t.Errorf("%d steps, want %d", n, pairs)
	}
	if n := len(w.read(t, topics.DeadLetter)); n != pairs {
		t.Errorf("%d dead letters, want %d", n, pairs)
	}
	checkCoverage(t, w, hook, 0, 2*pairs, pairs, pairs)
	// The broker is in this process and holds what was written: some 20 MB.
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 128<<20 {
		t.Errorf("%d MB more are held after 20,000 small records", grown>>20)
	}
}
