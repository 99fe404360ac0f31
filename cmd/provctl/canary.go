package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"provstream/internal/canary"
	"provstream/internal/kafka"
	"provstream/internal/serve"
)

type canaryCmd struct {
	kafka.Flags   `embed:""`
	pins          `embed:""`
	Tenant        string        `help:"Tenant of the synthetic sessions; nobody else may use it." default:"provstream-canary"`
	Interval      time.Duration `help:"From the start of one session to the start of the next." default:"1m"`
	Timeout       time.Duration `help:"How long a session's DAG is waited for: more than the aggregator's --seal-grace." default:"1m"`
	Count         int           `help:"End after so many sessions; 0 goes on until stopped. Status 1 if any of them was not verified." default:"0"`
	ListenMetrics string        `help:"Address of /metrics, /healthz, /ready and /status; none when empty." default:"127.0.0.1:9467"`
	WebConfig     string        `help:"Web configuration file of prometheus/exporter-toolkit: TLS and passwords of that address." placeholder:"FILE"`
	LogFormat     string        `help:"text or json." enum:"text,json" default:"text"`
	LogLevel      string        `help:"debug, info, warn or error." enum:"debug,info,warn,error" default:"info"`
}

func (c *canaryCmd) Help() string {
	return example("Sends a synthetic session of a tenant of its own to the hook topics, waits for its signed DAG in prov.dags, verifies it with pinned keys, and "+
		"exports how long that took and what failed. Run one beside the services and alert on it; or a few sessions once after a change.",
		"provctl canary --brokers kafka:9092 --jwks jwks.json --interval 1m",
		"provctl canary --brokers kafka:9092 --jwks jwks.json --count 3 --interval 0s --json")
}

func (c *canaryCmd) Run(g *globals) error {
	var faults kafka.Faults
	faults.Add(c.Check())
	pinned, err := c.load()
	faults.Add(err)
	if c.Tenant == "" {
		faults.Add(errors.New("--tenant: must not be empty"))
	}
	if c.Interval < 0 || c.Timeout <= 0 || c.Count < 0 {
		faults.Add(errors.New("--interval, --timeout and --count: must not be negative, and --timeout not 0"))
	}
	f := serve.Flags{ListenMetrics: c.ListenMetrics, WebConfig: c.WebConfig, LogFormat: c.LogFormat, LogLevel: c.LogLevel}
	if c.Count > 0 {
		f.ListenMetrics = "" // nobody scrapes what ends at once
	}
	f.Check(&faults)
	if err := faults.Err(); err != nil {
		return err
	}
	s := serve.New("canary", f, g.stderr)
	s.Health.Works()
	results := []canary.Result{}
	failed := 0
	err = s.Run(g.ctx, func(ctx context.Context) error {
		failed, err = canary.Run(ctx, canary.Config{
			Flags: c.Flags, Keys: pinned, Tenant: c.Tenant, Interval: c.Interval, Timeout: c.Timeout, Logger: s.Logger, Registerer: s.Registry,
			OnResult: func(r canary.Result) {
				if c.Count > 0 {
					results = append(results, r)
				}
			},
		}, c.Count)
		return err
	})
	if err != nil {
		return err
	}
	if g.json {
		if err := g.printJSON(map[string]any{"holds": failed == 0, "sessions": results}); err != nil {
			return err
		}
	} else {
		for _, r := range results {
			g.printf("%s %s %.3f s %s\n", r.Run, r.Result, r.Seconds, r.Error)
		}
	}
	if c.Count > 0 && failed > 0 {
		return fmt.Errorf("%d of %d synthetic sessions failed: the check %w", failed, c.Count, errDoesNotHold)
	}
	return nil
}
