// Package aggregator is the second of the three services: it reads prov.steps
// and writes turn summaries, session summaries and unsigned DAGs.
//
// What it computes is package window's: a pure state machine for each partition
// that takes steps, decisions and ticks in log order and emits records. This
// package is the shell: one task a partition owns its machine, feeds it,
// produces what it emits to the same partition number, and writes with each
// transaction to prov.aggregator.state what a restart needs to build the machine
// again (see state.go). It also makes the ticks, the only way in which time
// passes for the machines (see ticker.go).
package aggregator

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"provstream/internal/kafka"
	"provstream/internal/topics"
	"provstream/internal/window"
)

// Service is the service's name in groups, transactional ids and metrics.
const Service = "aggregator"

// Config of the service.
type Config struct {
	kafka.Config
	// IngestGroup is the consumer group of ingest, whose committed offsets the
	// ticks are made from; the default group of the prefix when empty.
	IngestGroup string
	// Window is how turns and runs close. The zero value is the default.
	Window window.Config
	// ReplayRecords bounds what a restart replays of a partition of prov.steps:
	// a run with a change that lies further behind is saved.
	ReplayRecords int64
	// ClockTolerance is how far the clocks of hosts and brokers may be apart.
	ClockTolerance time.Duration
	// Registerer gets the metrics; nil keeps none.
	Registerer prometheus.Registerer
	// Health is told of the service's state; nil is told nothing.
	Health *kafka.Health
}

// DefaultClockTolerance is the default of --clock-tolerance.
const DefaultClockTolerance = time.Second

// DefaultReplayRecords is the default of --replay-records.
const DefaultReplayRecords = 50_000

// Run is the service. It returns nil when ctx has ended, or an error that
// coming back does not cure.
func Run(ctx context.Context, cfg Config) error {
	cfg.Service = Service
	cfg.Config = cfg.Config.WithDefaults()
	if cfg.IngestGroup == "" {
		cfg.IngestGroup = kafka.DefaultGroup(cfg.Prefix, "ingest")
	}
	if cfg.Window == (window.Config{}) {
		cfg.Window = window.DefaultConfig()
	}
	if cfg.ReplayRecords == 0 {
		cfg.ReplayRecords = DefaultReplayRecords
	}
	if cfg.ClockTolerance == 0 {
		cfg.ClockTolerance = DefaultClockTolerance
	}
	m := newMetrics(cfg.Registerer, cfg.Health)
	return kafka.RunService(ctx, cfg.Config, cfg.Registerer, cfg.Health, kafka.LoopSpec{Topics: []string{topics.Steps}},
		func(c *kafka.Cluster) (kafka.Parts, error) {
			if err := kafka.WarnOfHooks(ctx, c, cfg.Config); err != nil {
				return kafka.Parts{}, err
			}
			s := &service{cfg: cfg, cluster: c, metrics: m}
			s.ticker = newTicker(s)
			return kafka.Parts{Open: s.open, Beside: s.ticker.run, Last: s.ticker.last}, nil
		})
}

// service is one life of the aggregator: what its tasks share.
type service struct {
	cfg     Config
	cluster *kafka.Cluster
	metrics *metrics
	ticker  *ticker
}
