package aggregator_test

import (
	"context"
	"flag"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/acs"
	"provstream/internal/aggregator"
	"provstream/internal/codec"
	"provstream/internal/kafka"
	"provstream/internal/kafkatest"
	"provstream/internal/topics"
	"provstream/internal/window"
)

// openSteps writes n steps of sessions that do not end to prov.steps/0: user
// messages, tool calls and their results with one provenance id each, in
// sessions of 100, evenly over the time before now.
func openSteps(b testing.TB, cl *kgo.Client, topic string, n int, over time.Duration) {
	b.Helper()
	methods := []string{acs.MethodUserMessage, acs.MethodToolCallRequest, acs.MethodToolCallResult, acs.MethodAgentResponse}
	now := time.Now().UnixMilli()
	for i := range n {
		session := fmt.Sprintf("00000000-0000-4000-8000-%012d", i/100)
		id := fmt.Sprintf("00000000-0000-4000-9000-%012d", i)
		at := now - over.Milliseconds()*int64(n-i)/int64(n)
		s := acs.Step{
			Tenant: "default", Session: session, StepID: id, ID: "1", Method: methods[i%len(methods)], EventTime: at, RecordedAt: at,
			AgentID: "agent", TurnID: session + "-turn", Environment: "production", Platform: "bench",
			Coordinates: acs.Coordinates{Topic: "acs.hooks.user-message", Offset: int64(i), Index: -1},
			Provenance:  []acs.Provenance{{ID: id, Origin: "tool_output", SourceID: "source"}},
		}
		cl.Produce(context.Background(), &kgo.Record{Topic: topic, Key: []byte(topics.RunKey(s.Tenant, s.Session)), Value: codec.AppendStep(nil, &s)}, func(_ *kgo.Record, err error) {
			if err != nil {
				b.Error(err)
			}
		})
	}
	if err := cl.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var restoreSteps = flag.Int("restore.steps", 200_000, "open steps in BenchmarkRestore")

// BenchmarkRestore builds the state of a partition with open steps again, from
// the log alone and from snapshots, broker in the same process. steps/s is by
// the clock, steps/cpu-s by the CPU time of the process, which does not depend on
// what else the machine does.
func BenchmarkRestore(b *testing.B) {
	steps := *restoreSteps
	for name, replay := range map[string]int64{"log": 1 << 40, "snapshots": 1000} {
		b.Run(name, func(b *testing.B) {
			c := kafkatest.Loopback(b, kafkatest.Options{Partitions: 1, Nodes: 1})
			flags := kafka.Flags{Brokers: c.Brokers, Prefix: c.Prefix, Extra: c.Opts}
			cl := c.Client(b, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(1<<20))
			openSteps(b, cl, c.Topic(topics.Steps), steps, time.Duration(steps)*time.Millisecond)
			tick := &kgo.Record{Topic: c.Topic(topics.Steps), Value: codec.AppendTick(nil, time.Now().UnixMilli())}
			if err := cl.ProduceSync(b.Context(), tick).FirstErr(); err != nil {
				b.Fatal(err)
			}
			cfg := aggregator.Config{Config: kafka.Config{Flags: flags, Service: aggregator.Service}, Window: window.DefaultConfig(), ReplayRecords: replay}
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- aggregator.Run(ctx, cfg) }()
			cluster, err := kafka.Open(b.Context(), flags)
			if err != nil {
				b.Fatal(err)
			}
			defer cluster.Close()
			for {
				offsets, err := cluster.Committed(b.Context(), kafka.DefaultGroup(c.Prefix, aggregator.Service))
				if err != nil {
					b.Fatal(err)
				}
				if o, ok := offsets.Lookup(c.Topic(topics.Steps), 0); ok && o.At > int64(steps) {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			if replay < int64(steps) {
				cancel() // the graceful stop saves the rest
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			defer cancel()
			b.ResetTimer()
			began, spent := time.Now(), cpu()
			for range b.N {
				i, err := aggregator.Inspect(b.Context(), cluster, cfg, 0, true)
				if err != nil {
					b.Fatal(err)
				}
				if i.Stats == nil || i.Stats.OpenSteps != steps {
					b.Fatalf("restored %+v", i)
				}
				if i.Loaded+i.Replayed < steps {
					b.Fatalf("%d from snapshots, %d from the log", i.Loaded, i.Replayed)
				}
			}
			total := float64(steps * b.N)
			b.ReportMetric(total/time.Since(began).Seconds(), "steps/s")
			b.ReportMetric(total/(cpu()-spent).Seconds(), "steps/cpu-s")
			b.ReportMetric(0, "ns/op")
		})
	}
}
