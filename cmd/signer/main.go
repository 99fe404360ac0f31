// Command signer signs provenance DAGs and the heads of the logs that they and
// the coverage records stand in. It is a shell around package signer, and the
// only service that opens a private key.
package main

import (
	"context"
	"errors"
	"fmt"

	"provstream/internal/kafka"
	"provstream/internal/keys"
	"provstream/internal/serve"
	"provstream/internal/signer"
)

type cli struct {
	kafka.ServiceFlags
	serve.Flags

	Keys string `help:"Key directory, as provctl keys new makes it; read again when it changes." placeholder:"DIR"`
}

func main() {
	serve.Main(signer.Service, "Signs provenance DAGs and the heads of their logs.", "127.0.0.1:9466", new(cli))
}

// Prepare implements [serve.Command].
func (c *cli) Prepare() (func(context.Context, *serve.Service) error, error) {
	cfg, err := c.config()
	return func(ctx context.Context, s *serve.Service) error {
		cfg.Logger, cfg.Registerer, cfg.Health = s.Logger, s.Registry, s.Health
		return signer.Run(ctx, cfg)
	}, err
}

// config turns the flags into values; all faults come together.
func (c *cli) config() (signer.Config, error) {
	var faults kafka.Faults
	cfg := signer.Config{KeyDir: c.Keys}
	var err error
	cfg.Config, err = c.ServiceFlags.Config(signer.Service)
	faults.Add(err)
	c.Flags.Check(&faults)
	if c.Keys == "" {
		faults.Add(errors.New("--keys: name the key directory; `provctl keys new` makes one"))
	} else if _, err := keys.Load(c.Keys); err != nil {
		faults.Add(fmt.Errorf("--keys: %w", err))
	}
	return cfg, faults.Err()
}
