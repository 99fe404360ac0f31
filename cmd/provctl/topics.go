package main

import (
	"fmt"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"

	"provstream/internal/kafka"
	"provstream/internal/topology"
)

type topicsCmd struct {
	Create topicsCreateCmd `cmd:"" help:"Create the topics that are missing."`
	Check  topicsCheckCmd  `cmd:"" help:"Compare the cluster's topics with the table."`
	List   topicsListCmd   `cmd:"" help:"List the deployment's topics with their records and bytes."`
	ACLs   topicsACLsCmd   `cmd:"" name:"acls" help:"Print, grant or check the rights that a service or a reader needs."`
}

// admin connects for administration; close ends it.
func admin(f kafka.Flags) (adm *kadm.Client, closeIt func(), err error) {
	client, err := f.Client(topology.Fresh())
	if err != nil {
		return nil, nil, err
	}
	return kadm.NewClient(client), client.Close, nil
}

type topicsCreateCmd struct {
	kafka.Flags    `embed:""`
	Partitions     int32 `help:"Partitions of the partitioned prov.* topics: the most instances of a service that can share the work. It cannot be changed later." default:"12"`
	Replication    int16 `help:"Replicas of each partition." default:"3"`
	Hooks          bool  `help:"Create a hook topic for each ACS method and acs.decisions too."`
	HookPartitions int32 `help:"Partitions of the hook topics; 0 is --partitions." default:"0"`
	HookCreateTime bool  `help:"Leave the timestamps of hook records to their producers instead of LogAppendTime."`
}

func (c *topicsCreateCmd) Help() string {
	return example("Creates what is missing and changes nothing that exists. The prov.* topics are the pipeline's own; the acs.* topics belong to "+
		"whoever publishes the hooks, and are created with --hooks only.",
		"provctl topics create --brokers kafka:9092 --partitions 12 --replication 3",
		"provctl topics create --hooks --replication 1")
}

func (c *topicsCreateCmd) Run(g *globals) error {
	adm, done, err := admin(c.Flags)
	if err != nil {
		return err
	}
	defer done()
	spec := topology.Spec{
		Prefix: c.Prefix, Partitions: c.Partitions, Replication: c.Replication,
		Hooks: c.Hooks, HookPartitions: c.HookPartitions, HookCreateTime: c.HookCreateTime,
	}
	created, err := topology.Create(g.ctx, adm, spec)
	if err != nil {
		return err
	}
	if g.json {
		return g.printJSON(map[string]any{"created": nonNil(created)})
	}
	for _, t := range created {
		g.printf("created %s\n", t)
	}
	if len(created) == 0 {
		g.printf("nothing to do: every topic exists\n")
	}
	// What exists is left alone, also where this command was asked for something
	// else. Who may create and not look is told nothing.
	if problems, err := topology.Check(g.ctx, adm, spec); err == nil {
		for _, p := range problems {
			if p.Severity == topology.Error {
				g.printf("%s\n", p)
			}
		}
	}
	return nil
}

type topicsCheckCmd struct {
	kafka.Flags `embed:""`
	Partitions  int32 `help:"Partitions that the partitioned topics must have; 0: the same everywhere." default:"0"`
	Replication int16 `help:"Replicas that each partition must have; 0: any." default:"0"`

	HookCreateTime bool `help:"The producers' timestamps on hook records are meant: no warning about them."`
}

func (c *topicsCheckCmd) Help() string {
	return example("Tells every difference between the cluster's topics and the table, and its cure. Status 1 when there is an error; warnings are "+
		"something to know.",
		"provctl topics check --brokers kafka:9092 --replication 3")
}

func (c *topicsCheckCmd) Run(g *globals) error {
	adm, done, err := admin(c.Flags)
	if err != nil {
		return err
	}
	defer done()
	problems, err := topology.Check(g.ctx, adm, topology.Spec{Prefix: c.Prefix, Partitions: c.Partitions, Replication: c.Replication, HookCreateTime: c.HookCreateTime})
	if err != nil {
		return err
	}
	failed := 0
	for _, p := range problems {
		if p.Severity == topology.Error {
			failed++
		}
	}
	if g.json {
		if err := g.printJSON(map[string]any{"holds": failed == 0, "problems": nonNil(problems)}); err != nil {
			return err
		}
	} else {
		for _, p := range problems {
			g.printf("%s\n", p)
		}
		if failed == 0 {
			g.printf("the topics are as they should be (%d warnings)\n", len(problems))
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d settings of the topics are wrong: the check %w", failed, errDoesNotHold)
	}
	return nil
}

type topicsListCmd struct {
	kafka.Flags `embed:""`
}

func (c *topicsListCmd) Help() string {
	return example("Topics of the deployment that exist, in the order of the data flow. Records are offsets: control records count.",
		"provctl topics list --brokers kafka:9092 --json")
}

func (c *topicsListCmd) Run(g *globals) error {
	adm, done, err := admin(c.Flags)
	if err != nil {
		return err
	}
	defer done()
	rows, err := topology.List(g.ctx, adm, c.Prefix)
	if err != nil {
		return err
	}
	if g.json {
		return g.printJSON(nonNil(rows))
	}
	untold := false
	for _, r := range rows {
		size := strconv.FormatInt(r.Bytes, 10)
		if r.Bytes < 0 {
			size, untold = "?", true
		}
		g.printf("%-40s %3d partitions  %d replicas %12d records %14s bytes\n", r.Topic, r.Partitions, r.Replication, r.Records, size)
	}
	if untold {
		g.printf("the brokers do not tell the bytes: that takes Describe on the cluster\n")
	}
	return nil
}
