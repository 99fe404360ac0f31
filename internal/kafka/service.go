package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Parts are what a service brings to one life of its loop.
type Parts struct {
	Open OpenTask
	// Beside, if not nil, runs beside the loop until its context ends, at the
	// beginning of a stop or at the end of the life; it is waited for.
	Beside func(context.Context)
	// Last, if not nil, is called when a graceful stop begins. It writes a
	// record into each of the service's input partitions that it can, and
	// returns their offsets. The loop goes on until it has read them, for a
	// few seconds at most; so its last transaction, the one that is
	// [Out.Final], commits an offset of every partition, and the group fences
	// what an instance writes that has lost its partitions unawares.
	Last func(context.Context) map[Partition]int64
}

// RunService is the shell that the three services share: lives of a loop, each
// with a connection and tasks of its own, until ctx ends (nil) or an error that
// coming back does not cure. make is called once a life.
func RunService(ctx context.Context, cfg Config, reg prometheus.Registerer, health *Health, spec LoopSpec, make func(*Cluster) (Parts, error)) error {
	cfg = cfg.WithDefaults()
	m := newLoopMetrics(reg, cfg.Service)
	m.watch(health)
	spec.clientHooks = m.clientHooks
	told := spec.OnTransaction
	spec.OnTransaction = func(e TransactionEnd) {
		if told != nil {
			told(e)
		}
		m.transaction(e)
		health.update(func(s *Status) {
			if e.Committed {
				s.Commits++
				s.LastCommit = time.Now()
			} else {
				s.Aborts++
			}
		})
	}
	spec.OnTasks = func(open, opening int) {
		m.partitionsOpen.Set(float64(open))
		m.partitionsStart.Set(float64(opening))
		health.update(func(s *Status) { s.Open, s.Opening = open, opening })
	}
	stop := context.AfterFunc(ctx, func() { health.update(func(s *Status) { s.Stopping = true }) })
	defer stop()
	first := true
	return Supervise(ctx, cfg.Logger, func(ctx context.Context) error {
		if !first {
			m.restarts.Inc()
		}
		first = false
		err := ExplainRights(runLife(ctx, cfg, m, health, spec, make), cfg.Service)
		health.update(func(s *Status) {
			s.Running, s.Open, s.Opening, s.Partitions = false, 0, 0, nil
			if err != nil {
				s.LastError, s.LastErrorAt = err.Error(), time.Now()
			}
		})
		if spec.Once && Refused(err) {
			return Fatal(err)
		}
		return err
	})
}

func runLife(ctx context.Context, cfg Config, m *loopMetrics, health *Health, spec LoopSpec, make func(*Cluster) (Parts, error)) error {
	writes, err := cfg.producerOptions()
	if err != nil {
		return Fatal(err)
	}
	cluster, err := Open(ctx, cfg.Flags, append(writes, kgo.ProducerLinger(0), kgo.WithLogger(NewLogger(cfg.Logger)))...)
	if err != nil {
		return err
	}
	defer cluster.Close()
	if err := cluster.checkRights(ctx, cfg.Service); err != nil {
		return err
	}
	parts, err := make(cluster)
	if err != nil {
		return err
	}
	// What runs beside the loop ends before the next life begins.
	beside, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if m.reg != nil || health != nil {
		spec.lag = newLagMonitor(cluster, m, health)
		wg.Go(func() { spec.lag.run(beside) })
	}
	if parts.Beside != nil {
		wg.Go(func() { parts.Beside(beside) })
	}
	spec.last = parts.Last
	loop := NewLoop(cfg, cluster, spec, parts.Open)
	health.update(func(s *Status) { s.Running = true })
	return loop.Run(ctx)
}
