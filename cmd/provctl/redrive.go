package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"provstream/internal/codec"
	"provstream/internal/kafka"
	"provstream/internal/redrive"
)

type redriveCmd struct {
	kafka.Flags `embed:""`
	Kind        []string `help:"Dead letters of these kinds only." placeholder:"KIND"`
	Topic       []string `help:"Dead letters that came from these topics only (with the prefix)." placeholder:"TOPIC"`
	Since       string   `help:"Rejected at this time or later: RFC 3339, or a duration back from now." placeholder:"TIME"`
	Until       string   `help:"Rejected before this time: RFC 3339, or a duration back from now." placeholder:"TIME"`
	MaxAttempts int      `help:"Leave alone what was tried so often already." default:"5"`
	DryRun      bool     `help:"Count what would be sent."`
	Instance    string   `help:"Part of the transactional id; runs of two people at a time need two names." default:"provctl"`
}

func (c *redriveCmd) Help() string {
	return example("Sends dead letters back to the topic and partition they came from, with their key, value, headers and timestamp, in transactions. "+
		"What came to the dead letters after the command began is left to the next run. The same filter goes on where its last run ended; "+
		"another filter begins at the oldest dead letter.",
		"provctl redrive --kind payload --since 24h --dry-run",
		"provctl redrive --kind tenant_mismatch --topic acs.hooks.user-message")
}

func (c *redriveCmd) Run(g *globals) error {
	cfg, err := c.config()
	if err != nil {
		return err
	}
	cfg.Progress = func(r redrive.Report) { g.progress("%s", r) }
	report, err := redrive.Run(g.ctx, cfg)
	g.progressDone()
	if err != nil {
		return fmt.Errorf("%w (%s)", err, report)
	}
	if g.json {
		return g.printJSON(report)
	}
	g.printf("%s\n", report)
	for _, kind := range sortedKeys(report.ByKind) {
		g.printf("  %-16s %d\n", kind, report.ByKind[kind])
	}
	return nil
}

func (c *redriveCmd) config() (redrive.Config, error) {
	cfg := redrive.Config{Kinds: c.Kind, Topics: c.Topic, MaxAttempts: c.MaxAttempts, DryRun: c.DryRun}
	cfg.Flags, cfg.Instance = c.Flags, c.Instance
	var faults kafka.Faults
	for _, k := range c.Kind {
		if !slices.Contains(codec.Kinds(), k) {
			faults.Add(fmt.Errorf("--kind: %q is none of %v", k, codec.Kinds()))
		}
	}
	for _, t := range c.Topic {
		if !kafka.IsHookTopic(c.Prefix, t) {
			faults.Add(fmt.Errorf("--topic: %q is no hook topic of this deployment", t))
		}
	}
	if c.MaxAttempts < 1 {
		faults.Add(errors.New("--max-attempts: must be 1 or more"))
	}
	cfg.Since = pastTime(&faults, "--since", c.Since)
	cfg.Until = pastTime(&faults, "--until", c.Until)
	return cfg, faults.Err()
}

// pastTime reads RFC 3339 or a duration back from now.
func pastTime(faults *kafka.Faults, flag, s string) time.Time {
	if s == "" {
		return time.Time{}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return time.Now().Add(-d)
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		faults.Add(fmt.Errorf("%s: %q is neither RFC 3339 nor a duration like 24h", flag, s))
	}
	return t
}
