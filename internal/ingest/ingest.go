// Package ingest is the first of the three services: it reads the hook topics
// and writes what the evidence is made from.
//
// For every record of acs.hooks.* and acs.decisions it writes, in the same
// transaction as the offset:
//
//   - a step or a decision to prov.steps, in the partition of its run key (of a
//     batch record, one for each good element);
//   - a dead letter to prov.dead-letter, where anything in the record failed;
//   - at the end of the transaction, for each hook partition that was read, one
//     coverage record to prov.coverage, and one for each hole;
//   - with the committed offset, the largest recorded_at read so far in that
//     partition: the aggregator's ticks go by it.
//
// It keeps no state but that. Reading an envelope is the business of package
// codec; this package is the shell around it.
package ingest

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"provstream/internal/codec"
	"provstream/internal/kafka"
	"provstream/internal/topics"
)

// Service is the service's name in groups, transactional ids and metrics.
const Service = "ingest"

// Config of the service.
type Config struct {
	kafka.Config
	// Codec says how envelopes are read. DecisionsTopic is set by Run.
	Codec codec.Config
	// DeadLetterReference keeps values, keys and headers of the source out of
	// the dead letters.
	DeadLetterReference bool
	// Registerer gets the metrics; nil keeps none.
	Registerer prometheus.Registerer
	// Health is told of the service's state; nil is told nothing.
	Health *kafka.Health
}

// Run is the service. It returns nil when ctx has ended, or an error that
// coming back does not cure.
func Run(ctx context.Context, cfg Config) error {
	cfg.Service = Service
	cfg.Config = cfg.Config.WithDefaults()
	cfg.Codec.DecisionsTopic = cfg.Topic(topics.Decisions)
	s := &service{cfg: cfg, metrics: newMetrics(cfg.Registerer), readers: make(chan *codec.Reader, runtime.GOMAXPROCS(0))}
	for range cap(s.readers) {
		r, err := codec.NewReader(cfg.Codec)
		if err != nil {
			return fmt.Errorf("ingest: %w", err)
		}
		s.readers <- r
	}
	return kafka.RunService(ctx, cfg.Config, cfg.Registerer, cfg.Health, kafka.LoopSpec{
		Topics: []string{`acs\.hooks\..+`, `acs\.decisions`},
		Regex:  true,
		Resets: true,
		Align:  alignWithin,
	}, func(c *kafka.Cluster) (kafka.Parts, error) {
		if err := kafka.WarnOfHooks(ctx, c, cfg.Config); err != nil {
			return kafka.Parts{}, err
		}
		return kafka.Parts{Open: func(_ context.Context, in kafka.Input) (kafka.Task, error) { return s.open(c, in) }}, nil
	})
}

// alignWithin is how far the hook partitions of a backlog may be apart.
const alignWithin = 10 * time.Second

// service is what the tasks of one process share. Readers are not safe for
// concurrent use: a task borrows one for a batch, which also bounds how many
// work at a time.
type service struct {
	cfg     Config
	metrics *metrics
	readers chan *codec.Reader
}

func nowMs() int64 { return time.Now().UnixMilli() }
