package main

import (
	"fmt"
	"time"

	"provstream/internal/doctor"
	"provstream/internal/kafka"
)

type doctorCmd struct {
	kafka.Flags    `embed:""`
	ClockTolerance time.Duration `help:"How far clocks may be apart: the aggregator's flag." default:"1s"`
	Replication    int16         `help:"Replicas that each partition must have; 0: any." default:"0"`
	HookCreateTime bool          `help:"The producers' timestamps on hook records are meant: no warning about them."`
	As             string        `help:"Check that these credentials have the rights of this role, too: those of provctl topics acls." enum:",agent,ingest,aggregator,signer,reader,auditor,operator,canary" default:"" placeholder:"ROLE"`
	Verbose        bool          `help:"Tell the checks that found nothing, too."`
}

func (c *doctorCmd) Help() string {
	return example("Looks at brokers, topics, replicas, consumer groups, stored state, open transactions, clocks and keys, and says what is wrong and what to do. "+
		"It changes nothing. Status 1 when there is an error; warnings are something to know.",
		"provctl doctor --brokers kafka:9092 --replication 3",
		"provctl doctor --as signer --sasl scram-sha-512 --sasl-user signer --sasl-password-file signer.pw")
}

func (c *doctorCmd) Run(g *globals) error {
	findings, err := doctor.Run(g.ctx, doctor.Config{Flags: c.Flags, Tolerance: c.ClockTolerance, Replication: c.Replication, HookCreateTime: c.HookCreateTime, As: c.As})
	if err != nil {
		return err
	}
	errs := 0
	for _, f := range findings {
		if f.Severity == doctor.Error {
			errs++
		}
	}
	if g.json {
		if err := g.printJSON(map[string]any{"findings": findings, "errors": errs}); err != nil {
			return err
		}
	} else {
		for _, f := range findings {
			if f.Severity == doctor.OK && !c.Verbose {
				continue
			}
			g.printf("%-8s %-13s %s\n", f.Severity, f.Check, f.What)
			if f.Cure != "" {
				g.printf("%-22s → %s\n", "", f.Cure)
			}
		}
		if errs == 0 {
			g.printf("no errors in %d checks\n", len(doctor.Checks()))
		}
	}
	if errs != 0 {
		return fmt.Errorf("%d errors: the check %w", errs, errDoesNotHold)
	}
	return nil
}
