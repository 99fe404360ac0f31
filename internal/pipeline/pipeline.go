// Package pipeline runs the three services in one process, and follows how far
// they have come. It is what `provctl demo`, `up` and `bench` share; in a
// deployment each service is a process of its own (cmd/ingest, cmd/aggregator,
// cmd/signer) and runs the same code.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"provstream/internal/aggregator"
	"provstream/internal/codec"
	"provstream/internal/ingest"
	"provstream/internal/kafka"
	"provstream/internal/keys"
	"provstream/internal/signer"
	"provstream/internal/window"
)

// Config of the three services.
type Config struct {
	Flags      kafka.Flags
	Deployment string
	Instance   string
	// Ring or KeyDir holds the keys of the signer.
	Ring   *keys.Ring
	KeyDir string

	Codec          codec.Config
	Window         window.Config
	ClockTolerance time.Duration
	CommitInterval time.Duration
	NoTransactions bool
	Compression    string // of what the services write; "" is their default
	Logger         *slog.Logger
	// Registerers get each service's metrics, by its name; may be nil.
	Registerers map[string]prometheus.Registerer
}

// Service names, in the order of the data flow.
const (
	Ingest     = ingest.Service
	Aggregator = aggregator.Service
	Signer     = signer.Service
)

// Pipeline is a set of running services.
type Pipeline struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	health map[string]*kafka.Health
	err    error
}

// New prepares a pipeline that ends with ctx; nothing runs yet.
func New(ctx context.Context, cfg Config) *Pipeline {
	ctx, cancel := context.WithCancel(ctx)
	return &Pipeline{cfg: cfg, ctx: ctx, cancel: cancel, health: map[string]*kafka.Health{}}
}

// Start starts services by name. The first one that fails for good ends all.
func (p *Pipeline) Start(names ...string) {
	for _, name := range names {
		h := new(kafka.Health)
		p.mu.Lock()
		p.health[name] = h
		p.mu.Unlock()
		p.wg.Go(func() {
			if err := p.run(name, h); err != nil {
				p.fail(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
}

func (p *Pipeline) run(name string, h *kafka.Health) error {
	base := kafka.Config{
		Flags: p.cfg.Flags, Deployment: p.cfg.Deployment, Instance: p.cfg.Instance, CommitInterval: p.cfg.CommitInterval,
		NoTransactions: p.cfg.NoTransactions, Compression: p.cfg.Compression, Logger: p.cfg.Logger,
		// The process ends when its services do: nobody comes back for the
		// partitions under this instance's name.
		LeaveOnStop: true,
	}
	if base.Logger != nil {
		base.Logger = base.Logger.With("service", name)
	}
	reg := p.cfg.Registerers[name]
	switch name {
	case Ingest:
		return ingest.Run(p.ctx, ingest.Config{Config: base, Codec: p.cfg.Codec, Registerer: reg, Health: h})
	case Aggregator:
		return aggregator.Run(p.ctx, aggregator.Config{Config: base, Window: p.cfg.Window, ClockTolerance: p.cfg.ClockTolerance,
			Registerer: reg, Health: h})
	case Signer:
		return signer.Run(p.ctx, signer.Config{Config: base, Ring: p.cfg.Ring, KeyDir: p.cfg.KeyDir, Registerer: reg, Health: h})
	}
	return fmt.Errorf("no service is called %q", name)
}

func (p *Pipeline) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
	}
	p.cancel()
}

// Err is why the pipeline has ended, nil while it runs or when it was stopped.
func (p *Pipeline) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Health of a service by name; nil before it was started.
func (p *Pipeline) Health(name string) *kafka.Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.health[name]
}

// Done is closed when the pipeline was stopped or has failed.
func (p *Pipeline) Done() <-chan struct{} { return p.ctx.Done() }

// Stop ends the services gracefully and waits for them.
func (p *Pipeline) Stop() error {
	p.cancel()
	p.wg.Wait()
	return p.Err()
}

// Wait calls ready every interval until it says so, the pipeline ends or ctx
// does.
func (p *Pipeline) Wait(ctx context.Context, interval time.Duration, ready func(ctx context.Context) (bool, error)) error {
	for {
		ok, err := ready(ctx)
		switch {
		case p.Err() != nil:
			return p.Err()
		case err != nil:
			return err
		case ok:
			return nil
		}
		select {
		case <-ctx.Done():
			return p.explain(ctx.Err())
		case <-p.ctx.Done():
			return errors.Join(p.Err(), p.ctx.Err())
		case <-time.After(interval):
		}
	}
}

// explain adds what the services last complained about to a timeout.
func (p *Pipeline) explain(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, h := range p.health {
		if s := h.Status(); s.LastError != "" {
			err = fmt.Errorf("%w (%s: %s)", err, name, s.LastError)
		}
	}
	return err
}
