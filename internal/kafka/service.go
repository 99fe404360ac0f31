package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RunService is the shell that the three services share: lives of a loop, each
// with a connection and tasks of its own, until ctx ends (nil) or an error that
// coming back does not cure. make is called once a life.
func RunService(ctx context.Context, cfg Config, reg prometheus.Registerer, health *Health, spec LoopSpec, make func(context.Context, *Cluster) (OpenTask, error)) error {
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
		err := runLife(ctx, cfg, m, health, spec, make)
		health.update(func(s *Status) {
			s.Running, s.Open, s.Opening, s.Partitions = false, 0, 0, nil
			if err != nil {
				s.LastError, s.LastErrorAt = err.Error(), time.Now()
			}
		})
		return err
	})
}

func runLife(ctx context.Context, cfg Config, m *loopMetrics, health *Health, spec LoopSpec, make func(context.Context, *Cluster) (OpenTask, error)) error {
	cluster, err := Open(ctx, cfg.Flags)
	if err != nil {
		return err
	}
	defer cluster.Close()
	// What make starts ends with the life, before the next one begins.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	open, err := make(ctx, cluster)
	if err != nil {
		return err
	}
	if m.reg != nil || health != nil {
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		spec.lag = newLagMonitor(cluster, m, health)
		wg.Go(func() { spec.lag.run(ctx) })
	}
	loop := NewLoop(cfg, cluster, spec, open)
	health.update(func(s *Status) { s.Running = true })
	return loop.Run(ctx)
}
