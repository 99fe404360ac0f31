// Command aggregator reads steps and writes turn summaries, session summaries
// and unsigned provenance DAGs. It is a shell around package aggregator.
package main

import (
	"context"
	"fmt"
	"time"

	"provstream/internal/aggregator"
	"provstream/internal/kafka"
	"provstream/internal/serve"
	"provstream/internal/window"
)

type cli struct {
	kafka.ServiceFlags
	serve.Flags

	IngestGroup    string `help:"Consumer group of ingest; <prefix>provstream-ingest when empty."`
	ClockTolerance string `help:"How far the clocks of hosts and brokers may be apart." default:"1s"`
	ReplayRecords  int64  `help:"A restart replays at most so many records of a partition, and one batch; what lies further behind is saved." default:"50000"`

	CompleteGrace string `help:"A turn closes so long after its turnEnd when its step_count is met." default:"1s"`
	Grace         string `help:"A turn closes so long after its turnEnd when its step_count is not met." default:"10s"`
	SealGrace     string `help:"A run seals so long after its sessionEnd." default:"10s"`
	TurnIdle      string `help:"A turn without turnEnd closes so long after its last step." default:"15m"`
	SessionIdle   string `help:"A run without sessionEnd seals so long after its last record." default:"1h"`
	LateGrace     string `help:"What comes after a sealed run seals so long after its last record." default:"1m"`
	LateRetention string `help:"How long a run is remembered after its sessionEnd." default:"10m"`
	IdleRetention string `help:"How long a run is remembered after it sealed for silence." default:"24h"`
	MaxRunWeight  string `help:"A run of this weight seals a segment." default:"4MiB"`
	MaxOpenSteps  int    `help:"A partition with more open steps seals the runs that are silent for longest." default:"2000000"`
	MaxRunIds     int    `name:"max-run-ids" help:"Hashes that are remembered of a run's sealed segments." default:"200000"`
}

func main() {
	serve.Main(aggregator.Service, "Reads steps; writes turn and session summaries and unsigned provenance DAGs.", "127.0.0.1:9465", new(cli))
}

// Prepare implements [serve.Command].
func (c *cli) Prepare() (func(context.Context, *serve.Service) error, error) {
	cfg, err := c.config()
	return func(ctx context.Context, s *serve.Service) error {
		cfg.Logger, cfg.Registerer, cfg.Health = s.Logger, s.Registry, s.Health
		return aggregator.Run(ctx, cfg)
	}, err
}

// config turns the flags into values; all faults come together.
func (c *cli) config() (aggregator.Config, error) {
	var faults kafka.Faults
	cfg := aggregator.Config{IngestGroup: c.IngestGroup, ReplayRecords: c.ReplayRecords}
	var err error
	cfg.Config, err = c.ServiceFlags.Config(aggregator.Service)
	faults.Add(err)
	c.Flags.Check(&faults)
	grace := func(flag, s string) time.Duration { return faults.Duration(flag, s, 0, 0) }
	cfg.ClockTolerance = faults.Duration("--clock-tolerance", c.ClockTolerance, time.Millisecond, time.Hour)
	cfg.Window = window.Config{
		CompleteGrace: grace("--complete-grace", c.CompleteGrace),
		Grace:         grace("--grace", c.Grace),
		SealGrace:     grace("--seal-grace", c.SealGrace),
		TurnIdle:      grace("--turn-idle", c.TurnIdle),
		SessionIdle:   grace("--session-idle", c.SessionIdle),
		LateGrace:     grace("--late-grace", c.LateGrace),
		LateRetention: grace("--late-retention", c.LateRetention),
		IdleRetention: grace("--idle-retention", c.IdleRetention),
		MaxRunWeight:  faults.Size("--max-run-weight", c.MaxRunWeight, 64<<10, 4<<20),
		MaxOpenSteps:  c.MaxOpenSteps,
		MaxRunIDs:     c.MaxRunIds,
	}
	if c.ReplayRecords < 1 {
		faults.Add(fmt.Errorf("--replay-records: %d is less than 1", c.ReplayRecords))
	}
	if c.MaxOpenSteps < 1 {
		faults.Add(fmt.Errorf("--max-open-steps: %d is less than 1", c.MaxOpenSteps))
	}
	if c.MaxRunIds < 1 {
		faults.Add(fmt.Errorf("--max-run-ids: %d is less than 1", c.MaxRunIds))
	}
	return cfg, faults.Err()
}
