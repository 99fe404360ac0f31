// Command ingest reads the ACS hook topics and writes steps, dead letters and
// coverage records. It is a shell around package ingest.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"provstream/internal/codec"
	"provstream/internal/ingest"
	"provstream/internal/kafka"
	"provstream/internal/serve"
)

type cli struct {
	kafka.ServiceFlags
	serve.Flags

	UnknownHooks    string `help:"accept or reject steps/* methods outside ACS 0.1.0." default:"accept"`
	Provenance      string `help:"optional, or required: a data-bearing field without provenance is a dead letter." default:"optional"`
	DeadLetterValue string `help:"full, or reference: dead letters carry coordinates only." default:"full"`
	TenantTopics    string `help:"JSON file with an object, topic to tenant: which tenant may write which hook topic." placeholder:"FILE"`
	DefaultTenant   string `help:"Tenant of envelopes that name none." default:"default"`
	MaxValueBytes   string `help:"Longest record value that is read." default:"1MiB"`
	MaxClockSkew    string `help:"Event time and time of arrival may be so far apart before a step counts as skewed." default:"300s"`
}

func main() {
	serve.Main(ingest.Service, "Reads the ACS hook topics; writes steps, dead letters and coverage.", "127.0.0.1:9464", new(cli))
}

// Prepare implements [serve.Command].
func (c *cli) Prepare() (func(context.Context, *serve.Service) error, error) {
	cfg, err := c.config()
	return func(ctx context.Context, s *serve.Service) error {
		cfg.Logger, cfg.Registerer, cfg.Health = s.Logger, s.Registry, s.Health
		return ingest.Run(ctx, cfg)
	}, err
}

// config turns the flags into values; all faults come together.
func (c *cli) config() (ingest.Config, error) {
	var faults kafka.Faults
	var cfg ingest.Config
	var err error
	cfg.Config, err = c.ServiceFlags.Config(ingest.Service)
	faults.Add(err)
	c.Flags.Check(&faults)
	cfg.Codec = codec.Config{
		UnknownHooksReject: choice(&faults, "--unknown-hooks", c.UnknownHooks, "accept", "reject"),
		ProvenanceRequired: choice(&faults, "--provenance", c.Provenance, "optional", "required"),
		DefaultTenant:      c.DefaultTenant,
		MaxValueBytes:      int(faults.Size("--max-value-bytes", c.MaxValueBytes, 1<<10, 1<<20)),
		MaxClockSkew:       faults.Duration("--max-clock-skew", c.MaxClockSkew, time.Second, 0),
	}
	cfg.DeadLetterReference = choice(&faults, "--dead-letter-value", c.DeadLetterValue, "full", "reference")
	if c.DefaultTenant == "" {
		faults.Add(fmt.Errorf("--default-tenant: must not be empty"))
	}
	if c.TenantTopics != "" {
		b, err := os.ReadFile(c.TenantTopics)
		if err == nil {
			err = json.Unmarshal(b, &cfg.Codec.TenantTopics)
		}
		if err != nil {
			faults.Add(fmt.Errorf("--tenant-topics: %w", err))
		}
	}
	return cfg, faults.Err()
}

// choice reads a flag of two values; it tells whether it is the second.
func choice(faults *kafka.Faults, flag, value, first, second string) bool {
	if value != first && value != second {
		faults.Add(fmt.Errorf("%s: %q is neither %s nor %s", flag, value, first, second))
	}
	return value == second
}
