// Command signer signs provenance DAGs and the heads of the logs that they and
// the coverage records stand in. It is a shell around package signer, and the
// only service that opens a private key.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"provstream/internal/kafka"
	"provstream/internal/serve"
	"provstream/internal/signer"
)

type cli struct {
	kafka.ServiceFlags
	serve.Flags

	Keys string `help:"Key directory, as provctl keys new makes it; read again when it changes." placeholder:"DIR"`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default action is back: a second one ends at once.
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "signer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var c cli
	done, err := serve.Parse("signer", "Signs provenance DAGs and the heads of their logs.", "127.0.0.1:9466", &c, args, stdout, stderr)
	if done || err != nil {
		return err
	}
	if c.Probe {
		return c.Ready(ctx)
	}
	cfg, err := c.config()
	if err != nil {
		return err
	}
	if c.PrintConfig {
		return serve.PrintConfig(stdout, c)
	}
	s := serve.New(signer.Service, c.Flags, stderr)
	cfg.Logger, cfg.Registerer, cfg.Health = s.Logger, s.Registry, s.Health
	return s.Run(ctx, func(ctx context.Context) error { return signer.Run(ctx, cfg) })
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
	}
	return cfg, faults.Err()
}
