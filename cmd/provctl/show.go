package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"

	"provstream/internal/kafka"
	"provstream/internal/show"
	"provstream/internal/topics"
)

type showCmd struct {
	kafka.Flags `embed:""`
	RunID       string `arg:"" name:"run" optional:"" help:"Run id (the ACS session id), tenant/run id, a DAG id, or the beginning of a run id; without it the run with the most nodes."`
	From        string `help:"Read the DAGs from a file, a folder that demo --keep left, or - for stdin, instead of the cluster." placeholder:"PATH"`
	Format      string `help:"tree, mermaid, dot or json." enum:"tree,mermaid,dot,json" default:"tree"`
	Explain     string `help:"Why this node depends on its sources: a node id, its number, a step id or a provenance id." placeholder:"NODE"`
	Limit       int    `help:"Print at most so many nodes or paths; 0 is all." default:"0"`
}

func (c *showCmd) Help() string {
	return example("Draws a run: turn by turn, with the decision and what was found beside each step. --explain gives the shortest path from a node to "+
		"each input, retrieval and tool result that its data comes from, and the origins that reach it.",
		"provctl demo --keep out && provctl show --from out",
		"provctl show 34b81ca0 --from out --format mermaid > run.mmd",
		"provctl show acme/34b81ca0-b92f-5432-b4ba-bc420e8abc3c --explain model-output:12 --brokers kafka:9092")
}

func (c *showCmd) Run(g *globals) error {
	dags, err := c.dags(g)
	if err != nil {
		return err
	}
	run, err := show.Find(dags, c.RunID)
	if err != nil {
		return err
	}
	style := show.Style{Color: g.color, MaxNodes: c.Limit}
	switch {
	case c.Explain != "":
		e, err := run.Explain(c.Explain)
		if err != nil {
			return err
		}
		if g.json || c.Format == "json" {
			return g.printJSON(e)
		}
		return run.Text(g.stdout, e, c.Limit, style)
	case g.json || c.Format == "json":
		return g.printJSON(run.JSON())
	case c.Format == "mermaid":
		return run.Mermaid(g.stdout)
	case c.Format == "dot":
		return run.DOT(g.stdout)
	}
	return run.Tree(g.stdout, style)
}

// dags reads every DAG of the source. On a cluster a run with its tenant stands
// in one partition, and only that one is read.
func (c *showCmd) dags(g *globals) ([]*show.DAG, error) {
	var dags []*show.DAG
	add := func(value []byte) error {
		d, ok, err := show.Parse(value)
		if err != nil {
			return err
		}
		if ok {
			dags = append(dags, d)
		}
		return nil
	}
	if c.From != "" {
		return dags, eachValue(c.From, g.stdin, add)
	}
	only := func(partitions int32) int32 {
		i := strings.LastIndexByte(c.RunID, '/')
		if i < 0 || len(c.RunID)-i-1 != len("00000000-0000-0000-0000-000000000000") {
			return everyPartition
		}
		return topics.Partition([]byte(topics.RunKey(c.RunID[:i], c.RunID[i+1:])), partitions)
	}
	err := readTopic(g.ctx, c.Flags, topics.DAGs, only, func(r *kgo.Record) error {
		if err := add(r.Value); err != nil {
			return fmt.Errorf("%s/%d@%d: %w", r.Topic, r.Partition, r.Offset, err)
		}
		return nil
	})
	return dags, err
}

// eachValue hands the record values of a file to f: one JSON document after the
// other, each a value itself or a line that demo --keep wrote. Of a folder it is
// prov.dags.jsonl, or prov.runs.jsonl where nothing was signed.
func eachValue(path string, stdin io.Reader, f func(value []byte) error) error {
	in := stdin
	if path != "-" {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			dir := path
			path = filepath.Join(dir, topics.DAGs+".jsonl")
			if info, err := os.Stat(path); err != nil || info.Size() == 0 {
				path = filepath.Join(dir, topics.Runs+".jsonl")
			}
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	dec := json.NewDecoder(in)
	for n := 1; ; n++ {
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			var line struct {
				Topic string  `json:"topic"`
				Value *string `json:"value"`
			}
			if json.Unmarshal(raw, &line) == nil && line.Topic != "" && line.Value != nil {
				raw = json.RawMessage(*line.Value)
			}
			err = f(raw)
		}
		if err != nil {
			return fmt.Errorf("%s: document %d: %w", path, n, err)
		}
	}
}

// everyPartition is what only returns to read a topic whole.
const everyPartition = int32(-1)

// readTopic hands every committed record of a topic, up to its present end, to
// f, partition by partition; only may name the one to read.
func readTopic(ctx context.Context, flags kafka.Flags, base string, only func(partitions int32) int32, f func(*kgo.Record) error) error {
	cluster, err := evidenceCluster(flags)
	if err != nil {
		return err
	}
	defer cluster.Close()
	topic := flags.Topic(base)
	partitions, err := partitionsOf(ctx, cluster, topic)
	if err != nil {
		return err
	}
	one := only(int32(len(partitions)))
	for _, p := range partitions {
		if one != everyPartition && one != p {
			continue
		}
		b, err := cluster.Bounds(ctx, topic, p)
		if err != nil {
			return err
		}
		if b.Start >= b.End {
			continue
		}
		err = cluster.Read(ctx, topic, p, b.Start, b.End, kafka.ReadCommitted, func(records []*kgo.Record) error {
			for _, r := range records {
				if err := f(r); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
