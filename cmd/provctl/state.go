package main

import (
	"errors"
	"fmt"

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
	Runs        bool    `help:"List the open runs of each partition, the largest first."`
	Limit       int     `help:"With --runs: at most so many of a partition; 0 is all." default:"20"`
}

func (c *stateInspectCmd) Help() string {
	return example("Reads prov.aggregator.state as a restore does: low is the offset that a restart reads prov.steps from, next the offset it goes on at, "+
		"which must be the group's. Status 1 when a service would refuse the state.",
		"provctl state inspect",
		"provctl state inspect --runs --limit 5",
		"provctl state inspect --partition 3 --no-replay --json")
}

func (c *stateInspectCmd) Run(g *globals) error {
	if c.Limit < 0 {
		return fmt.Errorf("--limit: %d is negative", c.Limit)
	}
	if c.Runs && !c.Replay {
		return errors.New("--runs: the runs are known after a replay; leave out --no-replay")
	}
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
		switch {
		case !c.Runs:
			i.Runs = nil
		case c.Limit > 0:
			i.Runs = i.Runs[:min(len(i.Runs), c.Limit)]
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
			clock = instant(*i.Clock)
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
	if c.Runs {
		c.printRuns(g, all)
	}
}

// printRuns lists the open runs, partition by partition.
func (c *stateInspectCmd) printRuns(g *globals, all []aggregator.Inspection) {
	g.printf("\n%9s %7s %8s %10s %6s %12s %12s  %-24s %s\n", "partition", "segment", "steps", "weight", "turns", "first", "last", "last record", "run")
	for _, i := range all {
		for _, r := range i.Runs {
			ended := ""
			if r.Ended {
				ended = "  (ended, seals after its grace)"
			}
			g.printf("%9d %7d %8d %10d %6d %12d %12d  %-24s %s%s\n", i.Partition, r.Segment, r.Steps, r.Weight, r.Turns, r.FirstOffset, r.LastOffset, instant(r.LastMs), r.Run, ended)
		}
		if i.Stats != nil && len(i.Runs) < i.Stats.OpenRuns {
			g.printf("%9d and %d more\n", i.Partition, i.Stats.OpenRuns-len(i.Runs))
		}
	}
}
