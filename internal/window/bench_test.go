package window_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"provstream/internal/acs"
	"provstream/internal/codec"
	"provstream/internal/fleet"
	"provstream/internal/generate"
	"provstream/internal/window"
)

// fleetSteps returns the steps and decisions of the airline fleet as prov.steps
// values, in the order of their records; of a generated fleet where the file is
// absent.
func fleetSteps(tb testing.TB) []*acs.Step {
	tb.Helper()
	reader, err := codec.NewReader(codec.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	var steps []*acs.Step
	offsets := map[string]int64{}
	take := func(topic string, key, value []byte, at int64, headers []codec.Header) {
		rec := codec.Record{Topic: topic, Offset: offsets[topic], Timestamp: at, Key: key, Value: value, Headers: headers}
		offsets[topic]++
		reader.Read(&rec, at, func(_, value []byte) {
			s := &acs.Step{}
			if err := codec.DecodeStep(s, append([]byte(nil), value...)); err != nil {
				tb.Fatal(err)
			}
			steps = append(steps, s)
		})
	}
	each := func(r *fleet.Record) {
		var headers []codec.Header
		for _, h := range r.Headers {
			headers = append(headers, codec.Header{Key: h.Key, Value: h.Value})
		}
		take(r.Topic, r.Key, r.Value, r.TimeMs, headers)
	}
	if name, ok := sharedFleet(); ok {
		err = fleet.ReadFile(name, nil, func(r fleet.Record) error { each(&r); return nil })
	} else {
		var g *generate.Generator
		if g, err = generate.New(generate.Config{Seed: 1, Sessions: 60}); err == nil {
			for r := range g.All() {
				each(&r)
			}
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	return steps
}

func sharedFleet() (string, bool) {
	for dir, up := ".", 0; up < 6; dir, up = filepath.Join(dir, ".."), up+1 {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			name := filepath.Join(dir, "..", "shared", "fleet", "airline.jsonl.gz")
			_, err := os.Stat(name)
			return name, err == nil
		}
	}
	return "", false
}

// BenchmarkCore is the pure core on the fleet's shape: decode a step, window,
// seal, canonical DAG. A tick comes every second of the fleet's time.
func BenchmarkCore(b *testing.B) {
	const copies = 20
	type record struct {
		value []byte
		tick  int64
	}
	steps := fleetSteps(b)
	var log []record
	last := int64(0)
	n := 0
	for _, s := range steps {
		if s.RecordedAt >= last+1000 {
			last = s.RecordedAt
			log = append(log, record{tick: last})
		}
		session := s.Session
		for c := range copies {
			s.Session = fmt.Sprintf("%s-%d", session, c)
			log = append(log, record{value: codec.AppendStep(nil, s)})
			n++
		}
		s.Session = session
	}
	log = append(log, record{tick: last + 100_000})
	b.ResetTimer()
	b.ReportAllocs()
	began := cpuTime()
	dags, bytes := 0, 0
	for range b.N {
		p := window.NewPartition(window.DefaultConfig())
		emit := func(e window.Emission) {
			if e.Kind == window.Run {
				dags++
				bytes += len(e.Value)
			}
		}
		var s acs.Step
		for i := range log {
			if log[i].value == nil {
				p.Tick(int64(i), log[i].tick, emit)
				continue
			}
			s.Reset()
			if err := codec.DecodeStepInPlace(&s, log[i].value); err != nil {
				b.Fatal(err)
			}
			p.Apply(int64(i), &s, emit)
		}
	}
	b.StopTimer()
	if dags == 0 {
		b.Fatal("no run was sealed")
	}
	cpu := cpuTime() - began
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/step")
	b.ReportMetric(float64(cpu.Nanoseconds())/float64(b.N*n), "cpu-ns/step")
	b.ReportMetric(float64(b.N*n)/cpu.Seconds(), "steps/cpu-s")
	b.ReportMetric(float64(dags)/float64(b.N), "dags/op")
}

// BenchmarkOpenState measures what a partition holds for 10^6 open steps.
func BenchmarkOpenState(b *testing.B) {
	steps := fleetSteps(b)
	for range b.N {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		cfg := window.DefaultConfig()
		cfg.MaxOpenSteps = 2_000_000
		p := window.NewPartition(cfg)
		n, runs := 0, 0
		for c := 0; n < 1_000_000; c++ {
			for _, s := range steps {
				session := s.Session
				s.Session = fmt.Sprintf("%s-%d", session, c)
				p.Apply(int64(n), s, func(window.Emission) { b.Fatal("a window closed") })
				s.Session = session
				n++
			}
		}
		runs = p.Stats().OpenRuns
		runtime.GC()
		runtime.ReadMemStats(&after)
		held := float64(after.HeapAlloc - before.HeapAlloc)
		b.ReportMetric((held-1024*float64(runs))/float64(n), "B/step-beside-1kB/run")
		b.ReportMetric(held/float64(n), "B/step")
		b.ReportMetric(float64(runs), "runs")
		runtime.KeepAlive(p)
	}
}

// BenchmarkRunLength shows that a step costs the same in a short and in a long
// run: runs of n steps one after the other, a turn every six, a tick every
// second, so that thousands of turns close at one tick.
func BenchmarkRunLength(b *testing.B) { benchmarkRunLength(b, 20_000, window.DefaultConfig()) }

// BenchmarkRunLengthLive does the same at the pace of a live session: 20 steps a
// second, so that each tick closes three turns and tells of the session so far.
func BenchmarkRunLengthLive(b *testing.B) { benchmarkRunLength(b, 20, window.DefaultConfig()) }

// BenchmarkRunLengthAtOnce closes each turn with the record that completes it.
func BenchmarkRunLengthAtOnce(b *testing.B) {
	cfg := window.DefaultConfig()
	cfg.CompleteGrace, cfg.Grace = 0, 0
	benchmarkRunLength(b, 20, cfg)
}

func benchmarkRunLength(b *testing.B, stepsPerSecond int, cfg window.Config) {
	const steps = 1_000_000
	for _, n := range []int{100, 1000, 10_000, 100_000, steps} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			began := cpuTime()
			for range b.N {
				p := window.NewPartition(cfg)
				emit := func(window.Emission) {}
				tick := int64(0)
				var s acs.Step
				for i := range steps {
					at := int64(i) * 1000 / int64(stepsPerSecond)
					if at >= tick+1000 {
						tick = at
						p.Tick(int64(i), tick, emit)
					}
					longRunStep(&s, i/n, i%n, n, at)
					p.Apply(int64(i), &s, emit)
				}
				p.Tick(steps, tick+3_600_000, emit)
			}
			b.ReportMetric(float64((cpuTime()-began).Nanoseconds())/float64(b.N)/steps, "cpu-ns/step")
		})
	}
}

// longRunStep makes step k of a run: turns of a turnStart, four messages whose
// lineage goes back one step, and a turnEnd; the last one is the sessionEnd.
func longRunStep(s *acs.Step, run, k, n int, at int64) {
	s.Reset()
	s.Tenant, s.Session = "default", fmt.Sprintf("run-%d", run)
	s.StepID = fmt.Sprintf("%08x-0000-4000-8000-%012x", run, k)
	s.EventTime, s.RecordedAt = at, at
	s.Coordinates = acs.Coordinates{Topic: "acs.hooks.x", Offset: int64(k), Index: -1}
	s.RequestHash = acs.Hash{byte(k), byte(k >> 8), byte(k >> 16), byte(run), byte(run >> 8), byte(run >> 16)}
	s.AgentID = "agent"
	turn := fmt.Sprintf("turn-%d", k/6)
	switch {
	case k == n-1:
		s.Method = acs.MethodSessionEnd
	case k%6 == 0:
		s.Method, s.PayloadTurnID, s.TurnID = acs.MethodTurnStart, turn, turn
	case k%6 == 5:
		s.Method, s.PayloadTurnID, s.TurnID = acs.MethodTurnEnd, turn, turn
		s.StepCount = acs.Number{Set: true, Value: 4}
	default:
		s.Method, s.TurnID = acs.MethodUserMessage, turn
		p := s.AddProvenance()
		p.ID, p.Origin = fmt.Sprintf("p%d", k), "user_input"
		if k > 1 && k%6 > 1 {
			p.DerivedFrom = append(p.DerivedFrom, fmt.Sprintf("p%d", k-1))
		}
	}
}
