package main

import (
	"fmt"
	"time"

	"provstream/internal/aggregator"
	"provstream/internal/kafka"
)

type stateCmd struct {
	Inspect stateInspectCmd `cmd:"" help:"Show what the aggregator has stored of each partition, and what a restart makes of it."`
}

type stateInspectCmd struct {
	kafka.Flags `embed:""`
	Group       string  `help:"Consumer group of the aggregator; <prefix>provstream-aggregator when empty."`
	Partition   []int32 `help:"These partitions only."`
	Replay      bool    `help:"Restore each partition as a service would, and count its runs and steps. Reads prov.steps." default:"true" negatable:""`
}

func (c *stateInspectCmd) Help() string {
	return example("Reads prov.aggregator.state as a restore does: low is the offset that a restart reads prov.steps from, next the offset it goes on at, "+
		"which must be the group's. Status 1 when a service would refuse the state.",
		"provctl state inspect",
		"provctl state inspect --partition 3 --no-replay --json")
}

func (c *stateInspectCmd) Run(g *globals) error {
	cluster, err := kafka.Open(g.ctx, c.Flags)
	if err != nil {
		return err
	}
	defer cluster.Close()
	cfg := aggregator.Config{}
	cfg.Flags, cfg.Group = c.Flags, c.Group
	partitions := c.Partition
	if len(partitions) == 0 {
		for p := range cluster.Partitions {
			partitions = append(partitions, p)
		}
	}
	var all []aggregator.Inspection
	faults := 0
	for _, p := range partitions {
		if p < 0 || p >= cluster.Partitions {
			return fmt.Errorf("--partition: there is no partition %d; the topics have %d", p, cluster.Partitions)
		}
		g.progress("partition %d", p)
		i, err := aggregator.Inspect(g.ctx, cluster, cfg, p, c.Replay)
		if err != nil {
			g.progressDone()
			return err
		}
		if i.Fault != "" {
			faults++
		}
		all = append(all, i)
	}
	g.progressDone()
	if g.json {
		if err := g.printJSON(map[string]any{"partitions": all}); err != nil {
			return err
		}
	} else {
		c.print(g, all)
	}
	if faults != 0 {
		return fmt.Errorf("%d of %d partitions would be refused: %w", faults, len(all), errDoesNotHold)
	}
	return nil
}

func (c *stateInspectCmd) print(g *globals, all []aggregator.Inspection) {
	g.printf("%9s %12s %12s %10s %10s %8s %10s  %s\n", "partition", "low", "next", "behind", "replay", "runs", "steps", "clock")
	for _, i := range all {
		clock, runs, steps := "-", "-", "-"
		if i.Clock != nil {
			clock = time.UnixMilli(*i.Clock).UTC().Format("2006-01-02T15:04:05.000Z")
		}
		if i.Stats != nil {
			runs, steps = fmt.Sprint(i.Stats.OpenRuns), fmt.Sprint(i.Stats.OpenSteps)
		}
		if !i.Stored {
			g.printf("%9d %12s %12s %10d\n", i.Partition, "-", "-", i.End-max(0, i.Committed))
		} else {
			g.printf("%9d %12d %12d %10d %10d %8s %10s  %s\n", i.Partition, i.Low, i.Next, i.End-i.Next, i.Next-i.Low, runs, steps, clock)
		}
		if i.Fault != "" {
			g.printf("          %s\n", i.Fault)
		}
	}
}
